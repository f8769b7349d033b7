//! The data of server-sent events, except for changes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brigade_agent::AgentOutput;
use brigade_process::output::StdStream;
use serde::Serialize;
use utoipa::ToSchema;

/// A place in the feed: of the events `cursor`, `gap`, `heartbeat`, `too_slow` and `bye`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Cursor)]
pub struct CursorBody {
    /// The place from which to go on. Absent in a stream that is not one of changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A piece of a process's output: the event `output`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ProcessOutput)]
pub struct ProcessOutputBody {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The offset of the first byte in the followed view.
    pub from: u64,
    /// The offset of the byte after the last one: the parameter `from` to go on with.
    pub next: u64,
    /// The piece, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The piece in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Output that is no longer stored: the event `dropped`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DroppedOutput)]
pub struct DroppedOutputBody {
    pub from: u64,
    pub next: u64,
}

/// A piece of an agent's output. Its event is `step`, `text`, `reasoning`, `restarted`, `tool_call`,
/// `tool_result` or `lagged`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AgentOutput)]
pub struct AgentOutputBody {
    /// The number of a step, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// A piece of text or reasoning, or the result of a tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The id of a tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments as JSON text, or empty if they are malformed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The tool call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

impl ProcessOutputBody {
    /// Creates the body of a piece that starts at this offset.
    pub fn new(stream: StdStream, from: u64, bytes: Vec<u8>) -> Self {
        let next = from + bytes.len() as u64;
        let stream = match stream {
            StdStream::Stdout => "stdout".to_owned(),
            StdStream::Stderr => "stderr".to_owned(),
        };
        match String::from_utf8(bytes) {
            Ok(text) => Self { stream, from, next, text: Some(text), base64: None },
            Err(error) => {
                let base64 = Some(STANDARD.encode(error.as_bytes()));
                Self { stream, from, next, text: None, base64 }
            }
        }
    }
}

impl AgentOutputBody {
    /// Returns the name of the event of an output.
    pub fn event(output: &AgentOutput) -> &'static str {
        match output {
            AgentOutput::Step { .. } => "step",
            AgentOutput::Text(_) => "text",
            AgentOutput::Reasoning(_) => "reasoning",
            AgentOutput::Restarted => "restarted",
            AgentOutput::ToolCall { .. } => "tool_call",
            AgentOutput::ToolResult { .. } => "tool_result",
            AgentOutput::Lagged => "lagged",
            _ => "other",
        }
    }

    pub fn of(output: &AgentOutput) -> Self {
        let text = |text: &str| Some(text.to_owned());
        let none = Self::default();
        match output {
            AgentOutput::Step { step } => Self { step: Some(*step), ..none },
            AgentOutput::Text(piece) | AgentOutput::Reasoning(piece) => {
                Self { text: text(piece), ..none }
            }
            AgentOutput::ToolCall { id, name, arguments } => {
                Self { id: text(id), tool: text(name), arguments: text(arguments), ..none }
            }
            AgentOutput::ToolResult { id, name, text: result, failed } => Self {
                id: text(id),
                tool: text(name),
                text: text(result),
                is_error: Some(*failed),
                ..none
            },
            _ => none,
        }
    }
}
