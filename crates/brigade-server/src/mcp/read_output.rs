//! Reads what a command has written, or what an agent has said and done.

use brigade_model::refusal::Refusal;
use rmcp::model::ToolAnnotations;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::text;
use super::tool::{Answer, Call, Tool};
use crate::info::TaskInfo;
use crate::requests::{Beginning, Matches, Read, Said, Search, Transcript, Which};

const BYTES_DEFAULT: u64 = 8_000;
const BYTES_MAX: u64 = 100_000;
/// Looked through for matches after a position.
const MATCHES: usize = 10_000;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadOutput {
    /// Address or name.
    task: String,
    /// The position to read from, as an earlier answer named it; 0 is the beginning. Default: the end.
    #[serde(default)]
    from: Option<u64>,
    /// How much to return. Default 8000, most 100000.
    #[serde(default)]
    max_bytes: Option<u64>,
    /// Only lines that match this regular expression, from the beginning unless from says otherwise.
    #[serde(default)]
    pattern: Option<String>,
    /// Of a command. Default: both, in the order in which they came.
    #[serde(default)]
    stream: Option<Stream>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Stream {
    Stdout,
    Stderr,
    Combined,
}

impl Tool for ReadOutput {
    const NAME: &'static str = "read_output";
    const TITLE: &'static str = "Read output";
    const DESCRIPTION: &'static str = "Read a command's output, or a sub-agent's conversation, running \
        or ended: its end, a part from a position, or the lines that match a pattern. Takes no result \
        and does not wait. Not for polling until a task ends: wait_tasks returns then, with the last \
        lines.";

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false)
    }

    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let most = self.max_bytes.unwrap_or(BYTES_DEFAULT);
        if most == 0 {
            return Err(Refusal::invalid("the argument `max_bytes` is 0; give 1 to 100000"));
        }
        let most = most.min(BYTES_MAX) as usize;
        let info = call.show(&self.task).await?;
        if info.is_agent() && matches!(self.stream, Some(Stream::Stdout | Stream::Stderr)) {
            let address = call.address(&info);
            return Err(Refusal::invalid(format!(
                "the argument `stream`: {address} is an agent and has no streams; leave it out"
            )));
        }
        match &self.pattern {
            Some(pattern) => self.search(call, pattern, most).await,
            None if info.is_agent() => self.read_conversation(call, most).await,
            None => self.read(call, most).await,
        }
    }
}

impl ReadOutput {
    fn which(&self) -> Which {
        match self.stream {
            Some(Stream::Stdout) => Which::Stdout,
            Some(Stream::Stderr) => Which::Stderr,
            Some(Stream::Combined) | None => Which::Combined,
        }
    }

    async fn read(&self, call: &Call, most: usize) -> Result<Answer, Refusal> {
        let from = self.from.map_or(Beginning::End(most as u64), Beginning::At);
        let question =
            || Read { target: call.target(&self.task), which: self.which(), from, max_bytes: most };
        let page = call.line.ask(question).await?;
        let info = call.show(&self.task).await?;
        let (from, next, total) = (page.from, page.next, page.total);
        let part = Part { text: page.text(), from, next, total, ended: page.ended };
        Ok(part.told(call, &info))
    }

    async fn read_conversation(&self, call: &Call, most: usize) -> Result<Answer, Refusal> {
        let target = call.target(&self.task);
        let ask = |from, max_bytes| {
            let target = target.clone();
            call.line.ask(move || Transcript { target: target.clone(), from, max_bytes })
        };
        let from = match self.from {
            Some(from) => from,
            None => {
                let length = ask(0, Some(0)).await?.unwrap_or_default().total;
                length.saturating_sub(most as u64)
            }
        };
        // Looked at first: what it says after that is more that may come.
        let info = call.show(&self.task).await?;
        let Said { text, next, total } = ask(from, Some(most)).await?.unwrap_or_default();
        let from = next - text.len() as u64;
        Ok(Part { text, from, next, total, ended: !info.living }.told(call, &info))
    }

    async fn search(&self, call: &Call, pattern: &str, most: usize) -> Result<Answer, Refusal> {
        let question = || Search {
            target: call.target(&self.task),
            which: self.which(),
            pattern: pattern.to_owned(),
            ignore_case: false,
            max_matches: MATCHES,
        };
        let Matches { mut lines, more, cut } = call.line.ask(question).await?;
        lines.retain(|line| line.at >= self.from.unwrap_or(0));
        let found = lines.len();
        let mut bytes = 0;
        lines.retain(|line| {
            bytes += line.text.len() + 12;
            bytes <= most
        });
        let info = call.show(&self.task).await?;
        let mut texts: Vec<String> =
            lines.iter().map(|line| format!("{}: {}", line.at, line.text)).collect();
        let mut footer = format!("{found}{} lines match", if more { " or more" } else { "" });
        if lines.len() < found {
            let next = lines.last().map_or(0, |line| line.at + 1);
            footer.push_str(&format!("; {} shown, go on with from {next}", lines.len()));
        }
        if cut > 0 {
            footer.push_str(&format!("; {cut} bytes are not kept and were not searched"));
        }
        texts.push(format!("[{}; {footer}]", text::headline(call, &info)));
        let mut structured = text::structured(call, &info);
        structured["matches"] = json!(lines);
        structured["matching_lines"] = json!(found);
        Ok(Answer::Said { text: texts.join("\n"), structured })
    }
}

/// A part of what there is to read.
struct Part {
    text: String,
    from: u64,
    next: u64,
    total: u64,
    /// Nothing follows.
    ended: bool,
}

impl Part {
    fn told(&self, call: &Call, info: &TaskInfo) -> Answer {
        let Self { from, next, total, ended, .. } = *self;
        let on = if next < total {
            format!("; read on with from {next}")
        } else if ended {
            String::new()
        } else {
            format!("; more may come: from {next}")
        };
        let headline = text::headline(call, info);
        let body = self.text.trim_end_matches('\n');
        let body = if body.is_empty() { "(no output here)" } else { body };
        let text = format!("{body}\n[{headline}; bytes {from} to {next} of {total}{on}]");
        let mut structured = text::structured(call, info);
        structured["output"] = json!({
            "text": self.text, "from": from, "next": next, "total_bytes": total, "ended": ended,
        });
        Answer::Said { text, structured }
    }
}
