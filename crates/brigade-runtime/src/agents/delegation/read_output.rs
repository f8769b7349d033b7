//! Reads what a command wrote, or what a sub-agent said and did.

use brigade_agent::{Call, Effect, Outcome, ToolError};
use brigade_delegation::output::Keep;
use brigade_delegation::{OutputMatches, OutputPart, OutputStream, ReadOutput};
use brigade_model::ids::TaskNo;
use brigade_model::refusal::Refusal;
use brigade_process::output::{Read, Resume, Search, SearchError, Start, Which, text};

use super::summary::summary;
use super::{Delegate, Delegation};
use crate::session::Session;

const MATCHES_MAX: usize = 1_000;
const LINE_BYTES: usize = 2_000;

impl Delegation for ReadOutput {
    const EFFECT: Effect = Effect::Pure;

    async fn run(self, delegate: &Delegate, _call: &Call) -> Result<Outcome, ToolError> {
        let max_bytes = self.max_bytes()?;
        let (no, row) = delegate.link.child(&self.task).await?;
        let said = delegate.link.transcript(no).await?;
        let session = delegate.link.session().await?;
        let summary = summary(no, &row, delegate.agents.now());
        if said.is_some() {
            self.refuse_stream(&summary.address)?;
        }
        let source = Source { session: &session, no, said };
        let reply = match &self.pattern {
            Some(pattern) => source.search(&self, pattern).await?.render(&summary, max_bytes),
            None => {
                let keep = if self.from.is_some() { Keep::Beginning } else { Keep::End };
                let mut part = source.read(&self, max_bytes).await?.fit(keep);
                part.may_grow = row.is_living();
                part.render(&summary)
            }
        };
        Ok(Outcome::text(reply.text()))
    }
}

/// The output of a command, or the conversation of an agent.
struct Source<'a> {
    session: &'a Session,
    no: TaskNo,
    said: Option<String>,
}

impl Source<'_> {
    async fn read(&self, asked: &ReadOutput, most: usize) -> Result<OutputPart, Refusal> {
        if let Some(said) = &self.said {
            return Ok(part_of(said, asked.from, most));
        }
        let output = self.session.output(self.no).await?;
        let from = asked.from.map_or(Start::FromEnd(most as u64), Start::At);
        let read = Read { which: which(asked), from, max_bytes: most };
        let page = tokio::task::spawn_blocking(move || output.read(read)).await;
        let page = page.map_err(|error| Refusal::internal(error.to_string()))?;
        let page = page.map_err(|error| Refusal::unavailable(format!("its output: {error}")))?;
        let page = page.whole_characters();
        let (from, next, total) = (page.from, page.next, page.total);
        Ok(OutputPart { text: text(&page), from, next, total, may_grow: true })
    }

    async fn search(&self, asked: &ReadOutput, pattern: &str) -> Result<OutputMatches, Refusal> {
        let from = asked.from.unwrap_or(0);
        if let Some(said) = &self.said {
            let lines = matching_lines(said, from, pattern)?;
            return Ok(OutputMatches { lines, has_more: false, unsearched_bytes: 0 });
        }
        let output = self.session.output(self.no).await?;
        let (which, pattern) = (which(asked), pattern.to_owned());
        let searched = tokio::task::spawn_blocking(move || {
            output.search(Search {
                which,
                pattern: &pattern,
                ignore_case: false,
                from: Resume::at(from),
                max_matches: MATCHES_MAX,
                max_line_bytes: LINE_BYTES,
            })
        });
        match searched.await.map_err(|error| Refusal::internal(error.to_string()))? {
            Ok(found) => Ok(OutputMatches {
                has_more: found.lines.len() >= MATCHES_MAX,
                lines: found.lines.into_iter().map(|line| (line.at, line.text)).collect(),
                unsearched_bytes: found.cut,
            }),
            Err(SearchError::Pattern(problem)) => Err(wrong(&problem.to_string())),
            Err(SearchError::Io(error)) => {
                Err(Refusal::unavailable(format!("its output: {error}")))
            }
        }
    }
}

fn which(asked: &ReadOutput) -> Which {
    match asked.stream {
        Some(OutputStream::Stdout) => Which::Stdout,
        Some(OutputStream::Stderr) => Which::Stderr,
        Some(OutputStream::Combined) | None => Which::Combined,
    }
}

fn part_of(said: &str, from: Option<u64>, most: usize) -> OutputPart {
    let total = said.len();
    let from = from.unwrap_or((total as u64).saturating_sub(most as u64));
    let from = said.ceil_char_boundary(usize::try_from(from).unwrap_or(total).min(total));
    let next = said.floor_char_boundary((from + most).min(total)).max(from);
    OutputPart {
        text: said[from..next].to_owned(),
        from: from as u64,
        next: next as u64,
        total: total as u64,
        may_grow: true,
    }
}

fn matching_lines(said: &str, from: u64, pattern: &str) -> Result<Vec<(u64, String)>, Refusal> {
    let pattern = regex::Regex::new(pattern).map_err(|error| wrong(&error.to_string()))?;
    let starts = said.split_inclusive('\n').scan(0u64, |at, line| {
        let start = *at;
        *at += line.len() as u64;
        Some((start, line.trim_end_matches('\n')))
    });
    let found = starts.filter(|(at, line)| *at >= from && pattern.is_match(line));
    Ok(found.map(|(at, line)| (at, clip(line))).collect())
}

fn wrong(problem: &str) -> Refusal {
    Refusal::invalid(format!("the argument `pattern`: {problem}"))
}

fn clip(line: &str) -> String {
    line[..line.floor_char_boundary(LINE_BYTES)].to_owned()
}
