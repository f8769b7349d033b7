//! The events of one turn, the same for every vendor.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::usage::UsageReport;

/// An event of one turn of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// The agent's own session is known. Some programs repeat it with each event.
    SessionStarted {
        id: String,
    },
    Text(TextPart),
    Reasoning {
        text: String,
    },
    ToolCall {
        id: String,
        name: String,
        arguments: Value,
    },
    ToolResult {
        id: String,
        text: String,
        failed: bool,
    },
    /// The agent waits for a decision about a tool call.
    PermissionRequest(PermissionRequest),
    /// The agent does not need the answer to a permission request any more.
    RequestWithdrawn {
        id: String,
    },
    /// The agent waits for an answer of its user.
    Question(TurnQuestion),
    /// The agent waits for a reply to a request that its adapter does not know.
    OtherRequest {
        id: String,
    },
    Usage(UsageReport),
    /// A step of the agent begins or ends. `is_last` is true if it ends and no further step
    /// follows.
    Step {
        is_last: bool,
    },
    Closed(TurnClosing),
    Notice(TurnNotice),
}

/// A part of the agent's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPart {
    pub text: String,
    /// True if the text continues the part before it.
    pub is_delta: bool,
}

/// A request for permission to make a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionRequest {
    /// The id with which the request is answered.
    pub id: String,
    /// The agent's own name of the tool.
    pub tool: String,
    pub arguments: Value,
    pub call: RequestedCall,
    pub options: Vec<PermissionOption>,
}

/// A question of the agent to its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnQuestion {
    /// The id with which the question is answered.
    pub id: String,
    pub text: String,
}

/// A tool call in the terms of Brigade's permission rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedCall {
    /// The tool of Brigade that does the same, or the agent's own name.
    pub tool: String,
    /// The file or the command that the call is about.
    pub subject: Option<String>,
    pub kind: SubjectKind,
}

/// The kind of a call's subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    #[default]
    Text,
    /// A path. Rules name paths in the working directory without it.
    File,
    /// A command line of a shell.
    Shell,
}

/// An answer that the agent accepts. Choose it by its kind: the order means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionOption {
    pub id: String,
    pub name: String,
    pub kind: PermissionOptionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionOptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
}

/// The agent's own report about the end of its turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnClosing {
    pub success: bool,
    /// The result, if the closing event has it. Otherwise the last text is the result.
    pub result: Option<String>,
    pub error: Option<String>,
    /// True if the turn ended because the money that it may cost was spent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub budget_spent: bool,
}

/// A message of the program to its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnNotice {
    pub level: NoticeLevel,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    Info,
    Warning,
    /// An error. The agent may recover from it if it has a closing event.
    Error,
}
