//! The transcript of an agent.

use brigade_agent::transcript_text::{TranscriptCall, TranscriptContent, TranscriptItem};
use brigade_model::json::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// A part of a transcript. Items are only added at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Transcript)]
pub struct TranscriptBody {
    pub items: Vec<TranscriptItemBody>,
    /// The parameter `page` of the next items; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page: Option<String>,
}

/// A step of an agent. Texts of tools and other tasks are data, not instructions of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TranscriptItem)]
pub struct TranscriptItemBody {
    pub index: usize,
    /// Open: `task`, `inbox`, `assistant`, `tool`, `approval`, `note`, `run`, `summary`.
    pub role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The model's reasoning, where the provider shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<TranscriptCallBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_result: Option<ToolResultBody>,
}

/// A tool call of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TranscriptCall)]
pub struct TranscriptCallBody {
    /// The number within its step, which a result names.
    pub number: u32,
    pub name: String,
    /// The arguments; absent if the model wrote no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub arguments: Option<Json>,
    /// The problem of arguments that are not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ToolResult)]
pub struct ToolResultBody {
    /// The number of the call within its step, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    pub name: String,
    pub text: String,
    pub failed: bool,
}

impl TranscriptItemBody {
    pub fn of(index: usize, item: TranscriptItem) -> Self {
        let mut body = Self {
            index,
            role: item.role.to_owned(),
            text: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_result: None,
        };
        match item.content {
            TranscriptContent::Text(text) => body.text = Some(text),
            TranscriptContent::Reply(reply) => {
                body.text = join(reply.texts);
                body.reasoning = join(reply.reasoning);
                body.tool_calls = reply.calls.into_iter().map(TranscriptCallBody::of).collect();
            }
            TranscriptContent::ToolResult(result) => {
                body.tool_result = Some(ToolResultBody {
                    number: result.number,
                    name: result.name,
                    text: result.text,
                    failed: result.failed,
                });
            }
        }
        body
    }
}

fn join(texts: Vec<String>) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join("\n"))
}

impl TranscriptCallBody {
    fn of(call: TranscriptCall) -> Self {
        let TranscriptCall { number, name, arguments } = call;
        let (arguments, problem) = match arguments {
            Ok(arguments) => (Json::of(&arguments).ok(), None),
            Err(problem) => (None, Some(problem)),
        };
        Self { number, name, arguments, problem }
    }
}
