//! `search_output`: finds matching lines in a process's output or an agent's transcript.

use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_end;
use brigade_process::output::{self, SearchCursor, SearchError, StdStream};
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{MatchedLineItem, SearchOutputReply, SearchOutputRequest};
use regex::RegexBuilder;

use crate::request_context::RequestContext;
use crate::request_handler::output_unreadable;
use crate::request_handler::{ItemSender, RequestHandler, to_raw_json};

const LINE_BYTES_MAX: usize = 2_000;

/// The maximum memory of a compiled pattern, and of the cache for its execution.
const PATTERN_BYTES: usize = 256 * 1024;

const MATCHES_MAX: usize = 10_000;

/// The maximum size of all matches of one reply as JSON, so that it fits a line.
const MATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

impl RequestHandler for SearchOutputRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<SearchOutputReply, Refusal> {
        let found = context.find_task(&self.target).await?;
        if let Some(transcript) = found.session.transcript(found.task_ref()).await? {
            let searched =
                tokio::task::spawn_blocking(move || search_transcript(&self, &transcript));
            return searched.await.map_err(|error| Refusal::internal(error.to_string()))?;
        }
        let output = found.session.output(found.task_ref()).await?;
        let max_matches = self.max_matches.min(MATCHES_MAX);
        let searched = tokio::task::spawn_blocking(move || {
            output.search(output::OutputSearch {
                view: self.streams.into(),
                pattern: &self.pattern,
                ignore_case: self.ignore_case,
                cursor: SearchCursor::default(),
                max_matches,
                max_line_bytes: LINE_BYTES_MAX,
            })
        });
        let found = match searched.await.map_err(|e| Refusal::internal(e.to_string()))? {
            Ok(found) => found,
            Err(SearchError::Pattern(problem)) => {
                return Err(Refusal::invalid(format!("the pattern is wrong: {problem}")));
            }
            Err(SearchError::Io(error)) => return Err(output_unreadable(&error)),
        };
        let lines = found.lines.into_iter().map(|line| MatchedLineItem {
            position: line.at,
            stderr: line.stream == StdStream::Stderr,
            text: line.text,
        });
        let mut lines: Vec<MatchedLineItem> = lines.collect();
        let reached_max = lines.len() >= max_matches;
        let fitting = count_fitting(&lines)?;
        let is_truncated = fitting < lines.len();
        lines.truncate(fitting);
        Ok(SearchOutputReply {
            has_more: reached_max || is_truncated,
            lines,
            dropped_bytes: found.dropped_bytes,
        })
    }
}

fn search_transcript(
    request: &SearchOutputRequest,
    transcript: &str,
) -> Result<SearchOutputReply, Refusal> {
    let pattern = RegexBuilder::new(&request.pattern)
        .case_insensitive(request.ignore_case)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build();
    let pattern =
        pattern.map_err(|problem| Refusal::invalid(format!("the pattern is wrong: {problem}")))?;
    let max_matches = request.max_matches.min(MATCHES_MAX);
    let mut lines = Vec::new();
    let mut position = 0;
    for line in transcript.split_inclusive('\n') {
        let text = line.trim_end_matches('\n');
        if lines.len() < max_matches && pattern.is_match(text) {
            let text = truncate_end(text, LINE_BYTES_MAX);
            lines.push(MatchedLineItem { position, stderr: false, text });
        }
        position += line.len() as u64;
    }
    let found = lines.len();
    lines.truncate(count_fitting(&lines)?);
    Ok(SearchOutputReply {
        has_more: found >= max_matches || lines.len() < found,
        lines,
        dropped_bytes: 0,
    })
}

/// Returns the number of lines that fit into a reply. A byte of output can take six bytes of JSON.
fn count_fitting(lines: &[MatchedLineItem]) -> Result<usize, Refusal> {
    let mut remaining = MATCH_BYTES_MAX;
    for (index, line) in lines.iter().enumerate() {
        // One more for the comma.
        let bytes = to_raw_json(line)?.get().len() + 1;
        match remaining.checked_sub(bytes) {
            Some(unused) => remaining = unused,
            None => return Ok(index),
        }
    }
    Ok(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_fits_a_line_whatever_was_matched() {
        for text in ["x", "\u{1}"] {
            let line =
                MatchedLineItem { position: 7, stderr: true, text: text.repeat(LINE_BYTES_MAX) };
            let mut lines = vec![line; MATCHES_MAX];
            lines.truncate(count_fitting(&lines).expect("lines"));
            let written = to_raw_json(&lines).expect("a reply").get().len();
            assert!(written <= MATCH_BYTES_MAX + 2, "{written}");
            assert!(
                written > MATCH_BYTES_MAX - 6 * LINE_BYTES_MAX - 100,
                "another line does not fit: {written}"
            );
        }
    }
}
