//! Reads the output of a process, or the transcript of a sub-agent.

use std::sync::Arc;

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::output_tail::KeptPart;
use brigade_delegation::{OutputMatches, OutputPart, OutputStream, ReadOutput};
use brigade_model::ids::TaskNo;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_model::truncate::truncate_end;
use brigade_process::output::{OutputRead, OutputView, ReadStart, SearchCursor, page_text};

use super::summary::summarize_task;
use super::{AgentDelegationTool, DelegationContext};
use crate::processes::TaskOutputSearch;
use crate::session::Session;

const MATCHES_MAX: usize = 1_000;
const LINE_BYTES_MAX: usize = 2_000;

impl AgentDelegationTool for ReadOutput {
    const EFFECT: ToolEffect = ToolEffect::Pure;

    async fn run(
        self,
        delegate: &DelegationContext,
        _call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        let max_bytes = self.max_bytes()?;
        let StoredTask { no, row } = delegate.link.find_child(&self.task).await?;
        let transcript = delegate.link.transcript(no).await?;
        let session = delegate.link.session().await?;
        let summary = summarize_task(no, &row, delegate.agents.now());
        if transcript.is_some() {
            self.refuse_stream(&summary.address)?;
        }
        let source = OutputSource { session: &session, no, transcript };
        let reply = match &self.pattern {
            Some(pattern) => source.search(&self, pattern).await?.render(&summary, max_bytes),
            None => {
                let keep = if self.from.is_some() { KeptPart::Beginning } else { KeptPart::End };
                let mut part = source.read(&self, max_bytes).await?.truncate_for_clients(keep);
                part.may_grow = row.is_alive();
                part.render(&summary)
            }
        };
        Ok(ToolReply::text(reply.text()))
    }
}

/// The output of a process, or the transcript of an agent.
struct OutputSource<'a> {
    session: &'a Session,
    no: TaskNo,
    transcript: Option<String>,
}

impl OutputSource<'_> {
    async fn read(&self, args: &ReadOutput, max_bytes: usize) -> Result<OutputPart, Refusal> {
        if let Some(transcript) = &self.transcript {
            return Ok(transcript_part(transcript, args.from, max_bytes));
        }
        let output = self.session.task_output(self.no).await?;
        let start = args.from.map_or(ReadStart::FromEnd(max_bytes as u64), ReadStart::At);
        let read = OutputRead { view: output_view(args), start, max_bytes };
        let page = output.read(read).await?.end_on_character();
        Ok(OutputPart {
            text: page_text(&page),
            from: page.from,
            next: page.next,
            total: page.total,
            may_grow: true,
        })
    }

    async fn search(&self, args: &ReadOutput, pattern: &str) -> Result<OutputMatches, Refusal> {
        let from = args.from.unwrap_or(0);
        if let Some(transcript) = &self.transcript {
            let lines = find_matching_lines(transcript, from, pattern)?;
            return Ok(OutputMatches { lines, has_more: false, unsearched_bytes: 0 });
        }
        let output = self.session.task_output(self.no).await?;
        let found = output
            .search(TaskOutputSearch {
                view: output_view(args),
                pattern: pattern.to_owned(),
                ignore_case: false,
                cursor: SearchCursor::at(from),
                max_matches: MATCHES_MAX,
                max_line_bytes: LINE_BYTES_MAX,
                max_bytes: None,
                deadline: None,
                stop: Arc::default(),
            })
            .await?;
        Ok(OutputMatches {
            has_more: found.lines.len() >= MATCHES_MAX || !found.is_complete,
            lines: found.lines.into_iter().map(|line| (line.at, line.text)).collect(),
            unsearched_bytes: found.dropped_bytes,
        })
    }
}

fn output_view(args: &ReadOutput) -> OutputView {
    match args.stream {
        Some(OutputStream::Stdout) => OutputView::Stdout,
        Some(OutputStream::Stderr) => OutputView::Stderr,
        Some(OutputStream::Combined) | None => OutputView::Combined,
    }
}

fn transcript_part(transcript: &str, from: Option<u64>, max_bytes: usize) -> OutputPart {
    let total = transcript.len();
    let from = from.unwrap_or((total as u64).saturating_sub(max_bytes as u64));
    let from = transcript.ceil_char_boundary(usize::try_from(from).unwrap_or(total).min(total));
    let next = transcript.floor_char_boundary((from + max_bytes).min(total)).max(from);
    OutputPart {
        text: transcript[from..next].to_owned(),
        from: from as u64,
        next: next as u64,
        total: total as u64,
        may_grow: true,
    }
}

fn find_matching_lines(
    transcript: &str,
    from: u64,
    pattern: &str,
) -> Result<Vec<(u64, String)>, Refusal> {
    let pattern = regex::Regex::new(pattern).map_err(|error| pattern_error(&error.to_string()))?;
    let starts = transcript.split_inclusive('\n').scan(0u64, |at, line| {
        let start = *at;
        *at += line.len() as u64;
        Some((start, line.trim_end_matches('\n')))
    });
    let found = starts.filter(|(at, line)| *at >= from && pattern.is_match(line));
    Ok(found.map(|(at, line)| (at, truncate_end(line, LINE_BYTES_MAX))).collect())
}

fn pattern_error(problem: &str) -> Refusal {
    Refusal::invalid(format!("the argument `pattern`: {problem}"))
}
