//! Reads what a command has written, or what an agent has said and done.

use brigade_delegation::output_tail::KeptPart;
use brigade_delegation::{OutputMatches, OutputPart, OutputStream, ReadOutput};
use brigade_model::refusal::Refusal;

use super::summary::summarize_task;
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use crate::requests::{
    OutputOffset, ReadOutputRequest, ReadTranscriptRequest, SearchOutputReply, SearchOutputRequest,
    StreamSelection, TranscriptPage,
};

/// Looked through for matches after a position.
const MATCHES_MAX: usize = 10_000;

impl ClientDelegationTool for ReadOutput {
    async fn run(self, call: &McpCallContext) -> Result<McpToolReply, Refusal> {
        let most = self.max_bytes()?;
        let info = call.show_task(&self.task).await?;
        if info.is_agent() {
            self.refuse_stream(&call.address(&info))?;
        }
        if let Some(pattern) = &self.pattern {
            let matches = search_output(&self, call, pattern).await?;
            let info = call.show_task(&self.task).await?;
            return Ok(McpToolReply::Reply(matches.render(&summarize_task(call, &info), most)));
        }
        // An agent is looked at first: what it says after that is more that may come.
        let (part, info) = match info.is_agent() {
            true => (read_transcript_part(&self, call, (most, !info.alive)).await?, info),
            false => {
                (read_output_part(&self, call, most).await?, call.show_task(&self.task).await?)
            }
        };
        let keep = if self.from.is_some() { KeptPart::Beginning } else { KeptPart::End };
        Ok(McpToolReply::Reply(
            part.truncate_for_clients(keep).render(&summarize_task(call, &info)),
        ))
    }
}

fn stream_selection(asked: &ReadOutput) -> StreamSelection {
    match asked.stream {
        Some(OutputStream::Stdout) => StreamSelection::Stdout,
        Some(OutputStream::Stderr) => StreamSelection::Stderr,
        Some(OutputStream::Combined) | None => StreamSelection::Combined,
    }
}

async fn read_output_part(
    asked: &ReadOutput,
    call: &McpCallContext,
    most: usize,
) -> Result<OutputPart, Refusal> {
    let from = asked.from.map_or(OutputOffset::FromEnd(most as u64), OutputOffset::At);
    let question = || ReadOutputRequest {
        target: call.target(&asked.task),
        streams: stream_selection(asked),
        from,
        max_bytes: most,
    };
    let page = call.daemon.call(question).await?;
    let (from, next, total) = (page.from, page.next, page.total);
    Ok(OutputPart { text: page.text(), from, next, total, may_grow: !page.ended })
}

async fn read_transcript_part(
    asked: &ReadOutput,
    call: &McpCallContext,
    (most, is_over): (usize, bool),
) -> Result<OutputPart, Refusal> {
    let target = call.target(&asked.task);
    let ask = |from, max_bytes| {
        let target = target.clone();
        call.daemon.call(move || ReadTranscriptRequest { target: target.clone(), from, max_bytes })
    };
    let from = match asked.from {
        Some(from) => from,
        None => {
            let length = ask(0, Some(0)).await?.unwrap_or_default().total;
            length.saturating_sub(most as u64)
        }
    };
    let TranscriptPage { text, next, total } = ask(from, Some(most)).await?.unwrap_or_default();
    let from = next - text.len() as u64;
    Ok(OutputPart { text, from, next, total, may_grow: !is_over })
}

async fn search_output(
    asked: &ReadOutput,
    call: &McpCallContext,
    pattern: &str,
) -> Result<OutputMatches, Refusal> {
    let question = || SearchOutputRequest {
        target: call.target(&asked.task),
        streams: stream_selection(asked),
        pattern: pattern.to_owned(),
        ignore_case: false,
        max_matches: MATCHES_MAX,
    };
    let SearchOutputReply { lines, has_more: more, dropped_bytes: cut } =
        call.daemon.call(question).await?;
    let from = asked.from.unwrap_or(0);
    let lines = lines.into_iter().filter(|line| line.position >= from);
    Ok(OutputMatches {
        lines: lines.map(|line| (line.position, line.text)).collect(),
        has_more: more,
        unsearched_bytes: cut,
    })
}
