//! `read_output` for clients: reads the output of a process, or the transcript of an agent.

use brigade_delegation::output_tail::KeptPart;
use brigade_delegation::{OutputMatches, OutputPart, OutputStream, ReadOutput};
use brigade_model::refusal::Refusal;

use super::summary::summarize_task;
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use brigade_protocol::RequestClient;
use brigade_protocol::requests::{
    OutputOffset, ReadOutputRequest, ReadTranscriptRequest, SearchOutputReply, SearchOutputRequest,
    StreamSelection, TranscriptPage,
};

/// The maximum number of matches that are read to find those after a position.
const MATCHES_MAX: usize = 10_000;

impl ClientDelegationTool for ReadOutput {
    async fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> Result<McpToolReply, Refusal> {
        let max_bytes = self.max_bytes()?;
        let info = call.show_task(&self.task).await?;
        if info.is_agent() {
            self.refuse_stream(&call.address(&info))?;
        }
        if let Some(pattern) = &self.pattern {
            let matches = search_output(&self, call, pattern).await?;
            let info = call.show_task(&self.task).await?;
            let summary = summarize_task(call, &info);
            return Ok(McpToolReply::Reply(matches.render(&summary, max_bytes)));
        }
        // An agent's state is read before its transcript: if it was alive, the transcript may still
        // grow.
        let (part, info) = match info.is_agent() {
            true => {
                let range = TranscriptRange { max_bytes, is_ended: !info.alive };
                (read_transcript_part(&self, call, range).await?, info)
            }
            false => {
                let part = read_output_part(&self, call, max_bytes).await?;
                (part, call.show_task(&self.task).await?)
            }
        };
        let keep = if self.from.is_some() { KeptPart::Beginning } else { KeptPart::End };
        Ok(McpToolReply::Reply(
            part.truncate_for_clients(keep).render(&summarize_task(call, &info)),
        ))
    }
}

/// The part of a transcript to read.
struct TranscriptRange {
    max_bytes: usize,
    /// The agent has ended, so that the transcript does not grow.
    is_ended: bool,
}

fn stream_selection(args: &ReadOutput) -> StreamSelection {
    match args.stream {
        Some(OutputStream::Stdout) => StreamSelection::Stdout,
        Some(OutputStream::Stderr) => StreamSelection::Stderr,
        Some(OutputStream::Combined) | None => StreamSelection::Combined,
    }
}

async fn read_output_part<C: RequestClient>(
    args: &ReadOutput,
    call: &McpCallContext<C>,
    max_bytes: usize,
) -> Result<OutputPart, Refusal> {
    let from = args.from.map_or(OutputOffset::FromEnd(max_bytes as u64), OutputOffset::At);
    let read = || ReadOutputRequest {
        target: call.target(&args.task),
        streams: stream_selection(args),
        from,
        max_bytes,
    };
    let page = call.request_client.call(read).await?;
    Ok(OutputPart {
        text: page.text(),
        from: page.from,
        next: page.next,
        total: page.total,
        may_grow: !page.ended,
    })
}

async fn read_transcript_part<C: RequestClient>(
    args: &ReadOutput,
    call: &McpCallContext<C>,
    range: TranscriptRange,
) -> Result<OutputPart, Refusal> {
    let target = call.target(&args.task);
    let read = |from, max_bytes| {
        let target = target.clone();
        call.request_client.call(move || ReadTranscriptRequest {
            target: target.clone(),
            from,
            max_bytes,
        })
    };
    let from = match args.from {
        Some(from) => from,
        None => {
            let length = read(0, Some(0)).await?.unwrap_or_default().total;
            length.saturating_sub(range.max_bytes as u64)
        }
    };
    let page = read(from, Some(range.max_bytes)).await?.unwrap_or_default();
    let TranscriptPage { text, next, total } = page;
    let from = next - text.len() as u64;
    Ok(OutputPart { text, from, next, total, may_grow: !range.is_ended })
}

async fn search_output<C: RequestClient>(
    args: &ReadOutput,
    call: &McpCallContext<C>,
    pattern: &str,
) -> Result<OutputMatches, Refusal> {
    let search = || SearchOutputRequest {
        target: call.target(&args.task),
        streams: stream_selection(args),
        pattern: pattern.to_owned(),
        ignore_case: false,
        max_matches: MATCHES_MAX,
        from: None,
    };
    let SearchOutputReply { lines, has_more, dropped_bytes, .. } =
        call.request_client.call(search).await?;
    let from = args.from.unwrap_or(0);
    let lines = lines.into_iter().filter(|line| line.position >= from);
    Ok(OutputMatches {
        lines: lines.map(|line| (line.position, line.text)).collect(),
        has_more,
        unsearched_bytes: dropped_bytes,
    })
}
