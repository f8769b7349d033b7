//! Reads what a command has written, or what an agent has said and done.

use brigade_delegation::output::Keep;
use brigade_delegation::{OutputMatches, OutputPart, OutputStream, ReadOutput};
use brigade_model::refusal::Refusal;

use super::summary::summary;
use super::tool::{Answer, Call, Tool};
use crate::requests::{Beginning, Matches, Read, Said, Search, Transcript, Which};

/// Looked through for matches after a position.
const MATCHES: usize = 10_000;

impl Tool for ReadOutput {
    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let most = self.max_bytes()?;
        let info = call.show(&self.task).await?;
        if info.is_agent() {
            self.refuse_stream(&call.address(&info))?;
        }
        if let Some(pattern) = &self.pattern {
            let matches = search(&self, call, pattern).await?;
            let info = call.show(&self.task).await?;
            return Ok(Answer::Said(matches.render(&summary(call, &info), most)));
        }
        // An agent is looked at first: what it says after that is more that may come.
        let (part, info) = match info.is_agent() {
            true => (read_conversation(&self, call, (most, !info.living)).await?, info),
            false => (read(&self, call, most).await?, call.show(&self.task).await?),
        };
        let keep = if self.from.is_some() { Keep::Beginning } else { Keep::End };
        Ok(Answer::Said(part.fit(keep).render(&summary(call, &info))))
    }
}

fn which(asked: &ReadOutput) -> Which {
    match asked.stream {
        Some(OutputStream::Stdout) => Which::Stdout,
        Some(OutputStream::Stderr) => Which::Stderr,
        Some(OutputStream::Combined) | None => Which::Combined,
    }
}

async fn read(asked: &ReadOutput, call: &Call, most: usize) -> Result<OutputPart, Refusal> {
    let from = asked.from.map_or(Beginning::End(most as u64), Beginning::At);
    let question =
        || Read { target: call.target(&asked.task), which: which(asked), from, max_bytes: most };
    let page = call.line.ask(question).await?;
    let (from, next, total) = (page.from, page.next, page.total);
    Ok(OutputPart { text: page.text(), from, next, total, may_grow: !page.ended })
}

async fn read_conversation(
    asked: &ReadOutput,
    call: &Call,
    (most, is_over): (usize, bool),
) -> Result<OutputPart, Refusal> {
    let target = call.target(&asked.task);
    let ask = |from, max_bytes| {
        let target = target.clone();
        call.line.ask(move || Transcript { target: target.clone(), from, max_bytes })
    };
    let from = match asked.from {
        Some(from) => from,
        None => {
            let length = ask(0, Some(0)).await?.unwrap_or_default().total;
            length.saturating_sub(most as u64)
        }
    };
    let Said { text, next, total } = ask(from, Some(most)).await?.unwrap_or_default();
    let from = next - text.len() as u64;
    Ok(OutputPart { text, from, next, total, may_grow: !is_over })
}

async fn search(asked: &ReadOutput, call: &Call, pattern: &str) -> Result<OutputMatches, Refusal> {
    let question = || Search {
        target: call.target(&asked.task),
        which: which(asked),
        pattern: pattern.to_owned(),
        ignore_case: false,
        max_matches: MATCHES,
    };
    let Matches { lines, more, cut } = call.line.ask(question).await?;
    let from = asked.from.unwrap_or(0);
    let lines = lines.into_iter().filter(|line| line.at >= from);
    Ok(OutputMatches {
        lines: lines.map(|line| (line.at, line.text)).collect(),
        has_more: more,
        unsearched_bytes: cut,
    })
}
