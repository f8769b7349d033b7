//! Reads what a command wrote, or what a sub-agent said and did.

use brigade_agent::{Call, Effect, Hints, Outcome, ToolError};
use brigade_model::ids::TaskNo;
use brigade_model::refusal::Refusal;
use brigade_process::output::{Read, Resume, Search, SearchError, Start, Which, text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::list_tasks::line;
use super::{Delegate, Delegation};
use crate::session::Session;

const BYTES_DEFAULT: u64 = 8_000;
const BYTES_MAX: u64 = 50_000;
const MATCHES_MAX: usize = 1_000;
const LINE_BYTES: usize = 2_000;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadOutput {
    /// An address or name of a task that you started.
    task: String,
    /// The position to read from, as an earlier answer named it; 0 is the beginning. Default: the end.
    #[serde(default)]
    from: Option<u64>,
    /// How much to return. Default 8000, most 50000.
    #[serde(default)]
    max_bytes: Option<u64>,
    /// Only lines that match this regular expression.
    #[serde(default)]
    pattern: Option<String>,
}

/// A part of what there is to read.
struct Part {
    text: String,
    from: u64,
    next: u64,
    total: u64,
}

impl Delegation for ReadOutput {
    const NAME: &'static str = "read_output";
    const DESCRIPTION: &'static str = "Read a command's output, or a sub-agent's conversation, running \
        or ended: its end, a part from a position, or the lines that match a pattern. Use it for what a \
        result left out, and to look at work that runs. Takes no result and does not wait. Not for \
        polling until a task ends: wait_tasks does that.";
    const HINTS: Hints = Hints::of(Effect::Pure);

    async fn run(self, delegate: &Delegate, _call: &Call) -> Result<Outcome, ToolError> {
        if self.max_bytes == Some(0) {
            return Err(ToolError::new("the argument `max_bytes` is 0; give 1 to 50000"));
        }
        let (no, row) = delegate.link.child(&self.task).await?;
        let said = delegate.link.transcript(no).await?;
        let session = delegate.link.session().await?;
        let headline = line(no, &row, delegate.agents.now());
        if let Some(pattern) = &self.pattern {
            let matches = self.matches(&session, (no, said), pattern).await?;
            return Ok(Outcome::text(format!("{matches}\n[{headline}]")));
        }
        let part = self.part(&session, (no, said)).await?;
        let on = match part.next < part.total {
            true => format!("; read on with from {}", part.next),
            false if row.is_living() => format!("; more may come: from {}", part.next),
            false => String::new(),
        };
        let body = part.text.trim_end_matches('\n');
        let body = if body.is_empty() { "(nothing here)" } else { body };
        Ok(Outcome::text(format!(
            "{body}\n[{headline}; bytes {} to {} of {}{on}]",
            part.from, part.next, part.total
        )))
    }
}

impl ReadOutput {
    /// At least a letter, so that who reads on gets on.
    fn most(&self) -> u64 {
        self.max_bytes.unwrap_or(BYTES_DEFAULT).clamp(4, BYTES_MAX)
    }

    async fn part(
        &self,
        session: &Session,
        (no, said): (TaskNo, Option<String>),
    ) -> Result<Part, Refusal> {
        if let Some(said) = said {
            return Ok(self.part_of(&said));
        }
        let output = session.output(no).await?;
        let from = self.from.map_or(Start::FromEnd(self.most()), Start::At);
        let read = Read { which: Which::Combined, from, max_bytes: self.most() as usize };
        let page = tokio::task::spawn_blocking(move || output.read(read)).await;
        let page = page.map_err(|error| Refusal::internal(error.to_string()))?;
        let page = page.map_err(|error| Refusal::unavailable(format!("its output: {error}")))?;
        let page = page.whole_characters();
        let (from, next, total) = (page.from, page.next, page.total);
        Ok(Part { text: text(&page), from, next, total })
    }

    fn part_of(&self, said: &str) -> Part {
        let total = said.len();
        let from = self.from.unwrap_or((total as u64).saturating_sub(self.most()));
        let from = said.ceil_char_boundary(usize::try_from(from).unwrap_or(total).min(total));
        let next = said.floor_char_boundary((from + self.most() as usize).min(total)).max(from);
        let text = said[from..next].to_owned();
        Part { text, from: from as u64, next: next as u64, total: total as u64 }
    }

    async fn matches(
        &self,
        session: &Session,
        (no, said): (TaskNo, Option<String>),
        pattern: &str,
    ) -> Result<String, Refusal> {
        let from = self.from.unwrap_or(0);
        let most = self.most() as usize;
        let lines: Vec<(u64, String)> = match said {
            Some(said) => {
                let pattern =
                    regex::Regex::new(pattern).map_err(|error| wrong(&error.to_string()))?;
                let starts = said.split_inclusive('\n').scan(0u64, |at, line| {
                    let start = *at;
                    *at += line.len() as u64;
                    Some((start, line.trim_end_matches('\n')))
                });
                let found = starts.filter(|(_, line)| pattern.is_match(line));
                found.map(|(at, line)| (at, clip(line))).collect()
            }
            None => self.search(session, no, pattern.to_owned()).await?,
        };
        let mut bytes = 0;
        let mut shown: Vec<String> = Vec::new();
        let mut more = None;
        for (at, line) in lines.into_iter().filter(|(at, _)| *at >= from) {
            bytes += line.len() + 12;
            if bytes > most {
                more = Some(at);
                break;
            }
            shown.push(format!("{at}: {line}"));
        }
        if shown.is_empty() && more.is_none() {
            return Ok("no line matches".to_owned());
        }
        if let Some(at) = more {
            shown.push(format!("[more lines match; go on with from {at}]"));
        }
        Ok(shown.join("\n"))
    }

    async fn search(
        &self,
        session: &Session,
        no: TaskNo,
        pattern: String,
    ) -> Result<Vec<(u64, String)>, Refusal> {
        let output = session.output(no).await?;
        let from = Resume::at(self.from.unwrap_or(0));
        let searched = tokio::task::spawn_blocking(move || {
            output.search(Search {
                which: Which::Combined,
                pattern: &pattern,
                ignore_case: false,
                from,
                max_matches: MATCHES_MAX,
                max_line_bytes: LINE_BYTES,
            })
        });
        match searched.await.map_err(|error| Refusal::internal(error.to_string()))? {
            Ok(found) => Ok(found.lines.into_iter().map(|line| (line.at, line.text)).collect()),
            Err(SearchError::Pattern(problem)) => Err(wrong(&problem.to_string())),
            Err(SearchError::Io(error)) => {
                Err(Refusal::unavailable(format!("its output: {error}")))
            }
        }
    }
}

fn wrong(problem: &str) -> Refusal {
    Refusal::invalid(format!("the argument `pattern`: {problem}"))
}

fn clip(line: &str) -> String {
    line[..line.floor_char_boundary(LINE_BYTES)].to_owned()
}
