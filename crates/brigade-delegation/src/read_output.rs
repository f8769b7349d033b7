//! `read_output`: reads the output of a process, or the transcript of an agent.

use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::audience::Audience;
use crate::delegation_reply::DelegationReply;
use crate::output_tail::{KeptPart, truncate_for_json_lines};
use crate::task_summary::TaskSummary;
use crate::tool_args::{ToolArgs, ToolHints};

const BYTES_DEFAULT: u64 = 8_000;
/// The largest reply that every client shows to its model.
pub const BYTES_MAX: u64 = 40_000;
/// The space for the parts of a reply beside the output.
const REPLY_OVERHEAD_BYTES: usize = 2_000;
/// The size of the longest UTF-8 character, so that every read makes progress.
const BYTES_MIN: u64 = 4;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadOutput {
    /// Address or name.
    pub task: String,
    /// The position to read from, as named by an earlier reply; 0 is the start. Default: the end.
    #[serde(default)]
    pub from: Option<u64>,
    /// Bytes to return. Default 8000, most 40000.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Only lines that match this regular expression, from the beginning unless `from` is given.
    #[serde(default)]
    pub pattern: Option<String>,
    /// One stream of a command. Default: both, in the order in which they came.
    #[serde(default)]
    pub stream: Option<OutputStream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
    Combined,
}

impl ToolArgs for ReadOutput {
    const NAME: &'static str = "read_output";
    const TITLE: &'static str = "Read output";
    const HINTS: ToolHints = ToolHints::READ_ONLY;

    fn description(_audience: Audience) -> String {
        "Read the output of a command, or the transcript of a sub-agent, while it runs or after it \
         has ended: the end, a part from a position, or the lines that match a pattern. It does not wait \
         and takes no result. Not for polling until a task ends: use wait_tasks."
            .to_owned()
    }
}

impl ReadOutput {
    /// Returns the maximum number of bytes to read.
    pub fn max_bytes(&self) -> Result<usize, Refusal> {
        match self.max_bytes {
            Some(0) => Err(Refusal::invalid(format!(
                "the argument `max_bytes` is 0; give 1 to {BYTES_MAX}"
            ))),
            bytes => Ok(bytes.unwrap_or(BYTES_DEFAULT).clamp(BYTES_MIN, BYTES_MAX) as usize),
        }
    }

    /// Refuses a stream argument for an agent, which has no streams.
    pub fn refuse_stream(&self, address: &str) -> Result<(), Refusal> {
        match self.stream {
            Some(OutputStream::Stdout | OutputStream::Stderr) => Err(Refusal::invalid(format!(
                "the argument `stream`: {address} is an agent and has no streams; omit it"
            ))),
            Some(OutputStream::Combined) | None => Ok(()),
        }
    }
}

/// A part of an output or a transcript, with its positions in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPart {
    pub text: String,
    pub from: u64,
    pub next: u64,
    pub total: u64,
    /// The output may still grow.
    pub may_grow: bool,
}

impl OutputPart {
    /// Truncates the text so that every client shows all of the reply to its model.
    pub fn truncate_for_clients(mut self, keep: KeptPart) -> Self {
        let part =
            truncate_for_json_lines(&self.text, BYTES_MAX as usize - REPLY_OVERHEAD_BYTES, keep);
        if part.len() < self.text.len() {
            let cut = (self.text.len() - part.len()) as u64;
            match keep {
                KeptPart::Beginning => self.next -= cut,
                KeptPart::End => self.from += cut,
            }
            self.text = part.to_owned();
        }
        self
    }

    pub fn render(&self, task: &TaskSummary) -> DelegationReply {
        let Self { from, next, total, .. } = *self;
        let headline = format!("{}; bytes {from} to {next} of {total}.", task.headline());
        let mut reply = DelegationReply::new(headline);
        let body = self.text.trim_end_matches('\n');
        reply.add_body(if body.is_empty() { "(no output here)" } else { body });
        if next < total {
            reply.add_guidance([format!("To read on, call read_output with from {next}.")]);
        } else if self.may_grow {
            reply.add_guidance([format!("More may come: call read_output with from {next}.")]);
        }
        reply.add_fields(task.fields());
        // Joined with newlines, these lines are the bytes. An empty last line stands for a final
        // newline.
        let lines: Vec<&str> = self.text.split('\n').collect();
        reply.set_field("output", json!(lines));
        reply.set_field("from", json!(from));
        reply.set_field("next", json!(next));
        reply.set_field("total_bytes", json!(total));
        reply
    }
}

/// Lines that match a pattern, with the position of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputMatches {
    pub lines: Vec<(u64, String)>,
    /// More lines match than were returned.
    pub has_more: bool,
    /// Bytes that are no longer stored and were not searched.
    pub unsearched_bytes: u64,
}

impl OutputMatches {
    /// Renders as many lines as fit, from the first.
    pub fn render(&self, task: &TaskSummary, max_bytes: usize) -> DelegationReply {
        let found = self.lines.len();
        let lines = self.lines.iter().map(|(position, line)| format!("{position}: {line}"));
        let mut spent = 0;
        let shown: Vec<String> = lines
            .take_while(|line| {
                spent += line.len() + 4;
                spent <= max_bytes
            })
            .collect();
        let many = if self.has_more { " or more" } else { "" };
        let verb = if found == 1 { "line matches" } else { "lines match" };
        let mut reply = DelegationReply::new(format!("{}; {found}{many} {verb}.", task.headline()));
        reply.add_body(&shown.join("\n"));
        if let Some((next, _)) = self.lines.get(shown.len()) {
            reply.add_guidance([format!(
                "{} of them are shown; for more, call read_output with the same pattern and from \
                 {next}.",
                shown.len()
            )]);
        }
        if self.unsearched_bytes > 0 {
            reply.add_guidance([format!(
                "{} bytes are no longer stored and were not searched.",
                self.unsearched_bytes
            )]);
        }
        reply.add_fields(task.fields());
        reply.set_field("matches", json!(shown));
        reply.set_field("matching_lines", json!(found));
        reply
    }
}
