//! `search_output`: finds matching lines in a process's output or an agent's transcript.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_end;
use brigade_process::output::{SearchCursor, SearchResult, StdStream};
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{
    MatchedLineItem, SearchOutputReply, SearchOutputRequest, SearchPlace,
};
use brigade_runtime::{TaskOutput, TaskOutputSearch};
use regex::RegexBuilder;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler, to_raw_json};

const LINE_BYTES_MAX: usize = 2_000;

/// The maximum memory of a compiled pattern, and of the cache for its execution.
const PATTERN_BYTES: usize = 256 * 1024;

const MATCHES_MAX: usize = 10_000;

/// The maximum size of all matches of one reply as JSON, so that it fits a line.
const MATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The bytes that one request searches at most.
const SEARCH_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The time for which one request searches.
const SEARCH_TIME: Duration = Duration::from_secs(5);

impl RequestHandler for SearchOutputRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<SearchOutputReply, Refusal> {
        let found = context.find_task(&self.target).await?;
        let transcript = found.session.transcript(found.task_ref()).await?;
        let time = SearchTime::start();
        let _stop = StopOnDrop(time.stop.clone());
        let searched = match transcript {
            Some(transcript) => {
                tokio::task::spawn_blocking(move || search_transcript(&self, &transcript, &time))
            }
            None => {
                let output = found.session.task_output(found.task_ref()).await?;
                return search_process(&self, &output, &time).await;
            }
        };
        searched.await.map_err(|error| Refusal::internal(error.to_string()))?
    }
}

/// The time of one search, which ends when its request is dropped.
#[derive(Debug)]
struct SearchTime {
    deadline: Instant,
    stop: Arc<AtomicBool>,
}

impl SearchTime {
    fn start() -> Self {
        Self { deadline: Instant::now() + SEARCH_TIME, stop: Arc::default() }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// A guard that stops a search whose request was dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn search_process(
    request: &SearchOutputRequest,
    output: &TaskOutput,
    time: &SearchTime,
) -> Result<SearchOutputReply, Refusal> {
    let from = request.from.map_or(SearchCursor::default(), |from| {
        let SearchPlace { read_from, searched_to } = from;
        SearchCursor { read_from, searched_to }.without_long_lines()
    });
    let mut search = TaskOutputSearch {
        view: request.streams.into(),
        pattern: request.pattern.clone(),
        ignore_case: request.ignore_case,
        cursor: from,
        max_matches: request.max_matches.min(MATCHES_MAX),
        max_line_bytes: LINE_BYTES_MAX,
        max_bytes: Some(SEARCH_BYTES_MAX),
        deadline: Some(time.deadline),
        stop: time.stop.clone(),
    };
    let new_lines = |found: &SearchResult| -> Vec<MatchedLineItem> {
        let items = found.lines.iter().map(|line| MatchedLineItem {
            position: line.at,
            stderr: line.stream == StdStream::Stderr,
            text: line.text.clone(),
        });
        items.collect()
    };
    let mut found = output.search(search.clone()).await?;
    let mut lines = new_lines(&found);
    let fitting = count_fitting(&lines)?;
    if fitting < lines.len() {
        // The place after the last line that fits is known only to a search that ends there.
        search.max_matches = fitting;
        found = output.search(search).await?;
        lines = new_lines(&found);
        lines.truncate(count_fitting(&lines)?);
    }
    let SearchCursor { read_from, searched_to } = found.next_cursor;
    let next = (!found.is_complete).then_some(SearchPlace { read_from, searched_to });
    Ok(SearchOutputReply {
        has_more: next.is_some(),
        next,
        lines,
        dropped_bytes: found.dropped_bytes,
    })
}

fn search_transcript(
    request: &SearchOutputRequest,
    transcript: &str,
    time: &SearchTime,
) -> Result<SearchOutputReply, Refusal> {
    let pattern = RegexBuilder::new(&request.pattern)
        .case_insensitive(request.ignore_case)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build();
    let pattern =
        pattern.map_err(|problem| Refusal::invalid(format!("the pattern is wrong: {problem}")))?;
    let max_matches = request.max_matches.min(MATCHES_MAX);
    let searched_to = request.from.map_or(0, |from| from.searched_to);
    let mut lines = Vec::new();
    let mut position = 0;
    let mut next = None;
    for line in transcript.split_inclusive('\n') {
        if position >= searched_to {
            // A search that goes on has searched at least one line.
            let is_over = position > searched_to && time.is_over();
            if is_over || lines.len() >= max_matches {
                next = Some(position);
                break;
            }
            let text = line.trim_end_matches('\n');
            if pattern.is_match(text) {
                let text = truncate_end(text, LINE_BYTES_MAX);
                lines.push(MatchedLineItem { position, stderr: false, text });
            }
        }
        position += line.len() as u64;
    }
    let fitting = count_fitting(&lines)?;
    if let Some(omitted) = lines.get(fitting) {
        next = Some(omitted.position);
    }
    lines.truncate(fitting);
    Ok(SearchOutputReply {
        has_more: next.is_some(),
        next: next.map(|at| SearchPlace { read_from: at, searched_to: at }),
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

    #[test]
    fn a_search_of_a_transcript_goes_on_where_it_ended() {
        let transcript: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let search = |from, time: &SearchTime| {
            let request = SearchOutputRequest {
                target: brigade_protocol::TaskTarget { session: String::new(), task: "1".into() },
                streams: Default::default(),
                pattern: "7".to_owned(),
                ignore_case: false,
                max_matches: 3,
                from,
            };
            search_transcript(&request, &transcript, time).expect("a reply")
        };
        let over = SearchTime { deadline: Instant::now(), stop: Arc::default() };
        for time in [SearchTime::start(), over] {
            let mut found = Vec::new();
            let mut from = None;
            let mut calls = 0;
            loop {
                let reply = search(from, &time);
                assert!(reply.lines.len() <= 3);
                assert_eq!(reply.has_more, reply.next.is_some());
                found.extend(reply.lines.into_iter().map(|line| line.text));
                calls += 1;
                from = reply.next;
                if from.is_none() {
                    break;
                }
            }
            assert!(calls > 1);
            let expected = (0..100).filter(|number| number.to_string().contains('7'));
            let expected: Vec<String> = expected.map(|number| format!("line {number}")).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_dropped_request_stops_its_search() {
        let time = SearchTime::start();
        assert!(!time.is_over());
        drop(StopOnDrop(time.stop.clone()));
        assert!(time.is_over());
    }
}
