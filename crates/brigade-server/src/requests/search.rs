//! Lines of a command's output, or of an agent's conversation, that match.

use brigade_model::refusal::Refusal;
use brigade_process::output::{self, Resume, SearchError, Stream};
use regex::RegexBuilder;
use serde::{Deserialize, Serialize};

use super::read::Which;
use crate::ask::{Ask, Items, Never, raw};
use crate::desk::{Desk, Target};
use crate::info::unreadable;

const LINE_BYTES: usize = 2_000;
const MATCHES_MAX: usize = 10_000;
/// What the matches of one answer may take up as they are written, so that it fits a line.
const ANSWER_BYTES: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search {
    pub target: Target,
    #[serde(default)]
    pub which: Which,
    /// A regular expression.
    pub pattern: String,
    #[serde(default)]
    pub ignore_case: bool,
    pub max_matches: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Matches {
    pub lines: Vec<MatchedLine>,
    /// There may be more.
    pub more: bool,
    /// Bytes that were not looked at because they are not kept.
    pub cut: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatchedLine {
    pub at: u64,
    pub stderr: bool,
    pub text: String,
}

impl Ask for Search {
    type Done = Matches;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Matches, Refusal> {
        let found = desk.find(&self.target).await?;
        if let Some(said) = found.session.transcript(found.task_ref()).await? {
            return self.search_conversation(&said);
        }
        let output = found.session.output(found.task_ref()).await?;
        let max_matches = self.max_matches.min(MATCHES_MAX);
        let searched = tokio::task::spawn_blocking(move || {
            output.search(output::Search {
                which: self.which.into(),
                pattern: &self.pattern,
                ignore_case: self.ignore_case,
                from: Resume::default(),
                max_matches,
                max_line_bytes: LINE_BYTES,
            })
        });
        let found = match searched.await.map_err(|e| Refusal::internal(e.to_string()))? {
            Ok(found) => found,
            Err(SearchError::Pattern(problem)) => {
                return Err(Refusal::invalid(format!("the pattern is wrong: {problem}")));
            }
            Err(SearchError::Io(error)) => return Err(unreadable(&error)),
        };
        let lines = found.lines.into_iter().map(|line| MatchedLine {
            at: line.at,
            stderr: line.stream == Stream::Stderr,
            text: line.text,
        });
        let mut lines: Vec<MatchedLine> = lines.collect();
        let more = lines.len() >= max_matches;
        let fitting = fitting(&lines)?;
        let is_cut = fitting < lines.len();
        lines.truncate(fitting);
        Ok(Matches { more: more || is_cut, lines, cut: found.cut })
    }
}

impl Search {
    /// What an agent has said and done has lines too.
    fn search_conversation(&self, said: &str) -> Result<Matches, Refusal> {
        let pattern = RegexBuilder::new(&self.pattern).case_insensitive(self.ignore_case).build();
        let pattern = pattern
            .map_err(|problem| Refusal::invalid(format!("the pattern is wrong: {problem}")))?;
        let max_matches = self.max_matches.min(MATCHES_MAX);
        let mut lines = Vec::new();
        let mut at = 0;
        for line in said.split_inclusive('\n') {
            let text = line.trim_end_matches('\n');
            if lines.len() < max_matches && pattern.is_match(text) {
                let text = text[..text.floor_char_boundary(LINE_BYTES)].to_owned();
                lines.push(MatchedLine { at, stderr: false, text });
            }
            at += line.len() as u64;
        }
        let found = lines.len();
        lines.truncate(fitting(&lines)?);
        Ok(Matches { more: found >= max_matches || lines.len() < found, lines, cut: 0 })
    }
}

/// How many of them fit into an answer. A byte of output can be six of JSON.
fn fitting(lines: &[MatchedLine]) -> Result<usize, Refusal> {
    let mut left = ANSWER_BYTES;
    for (at, line) in lines.iter().enumerate() {
        // With the comma.
        let bytes = raw(line)?.get().len() + 1;
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return Ok(at),
        }
    }
    Ok(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_fits_a_line_whatever_was_matched() {
        for text in ["x", "\u{1}"] {
            let line = MatchedLine { at: 7, stderr: true, text: text.repeat(LINE_BYTES) };
            let mut lines = vec![line; MATCHES_MAX];
            lines.truncate(fitting(&lines).expect("lines"));
            let written = raw(&lines).expect("an answer").get().len();
            assert!(written <= ANSWER_BYTES + 2, "{written}");
            assert!(
                written > ANSWER_BYTES - 6 * LINE_BYTES - 100,
                "one more has no room: {written}"
            );
        }
    }
}
