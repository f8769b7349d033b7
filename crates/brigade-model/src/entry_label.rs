//! Labels of journal entries.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The label of a journal entry: the kind of the call or record. Labels are stored. A job that is
/// entered again must make calls with the same labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EntryLabel {
    // Parked calls.
    Wait,
    Receive,
    Inbox,
    Sleep,
    Ask,
    Approve,
    ClientTool,

    // Other calls of a job.
    /// A named step.
    Step(Arc<str>),
    /// The job as a whole, which is entered again after it failed.
    JobRetry,
    Spawn,
    Send,
    Answer,
    Stop,

    // Records of an agent.
    /// A reply of the model.
    ModelReply,
    /// A note of the loop to the model.
    Note,
    /// A budget warning to the model.
    BudgetWarning,
    /// The start of a later run.
    RunStarted,
    /// A summary that replaces older messages.
    Summary,
    /// The start of a tool call that must not run twice.
    ToolStarted,
    ToolResult,
    /// The result of a tool call and its state changes.
    ToolResultAndState,
    /// State changes of plugins.
    State,
    /// The names of plugins whose `run_start` hook ran, and their state changes.
    PluginsStarted,
    /// State changes of the `before_tool` hooks of an admitted call.
    BeforeTool,
    /// State changes of the `step_end` hooks.
    StepEnd,
    /// A plugin's refusal to end the run.
    EndRefused,

    /// A label of an agent program that is not ours.
    Custom(Arc<str>),
}

impl EntryLabel {
    pub fn step(name: &str) -> Self {
        Self::Step(name.into())
    }

    pub fn custom(name: &str) -> Self {
        Self::Custom(name.into())
    }
}

impl Display for EntryLabel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Wait => "wait",
            Self::Receive => "receive",
            Self::Inbox => "inbox",
            Self::Sleep => "sleep",
            Self::Ask => "ask",
            Self::Approve => "approve",
            Self::ClientTool => "client tool",
            Self::Step(name) => return write!(f, "step {name}"),
            Self::JobRetry => "job",
            Self::Spawn => "spawn",
            Self::Send => "send",
            Self::Answer => "answer",
            Self::Stop => "stop",
            Self::ModelReply => "model reply",
            Self::Note => "note",
            Self::BudgetWarning => "budget warning",
            Self::RunStarted => "run started",
            Self::Summary => "summary",
            Self::ToolStarted => "tool started",
            Self::ToolResult => "tool result",
            Self::ToolResultAndState => "tool result and state",
            Self::State => "state",
            Self::PluginsStarted => "plugins started",
            Self::BeforeTool => "before tool",
            Self::StepEnd => "step end",
            Self::EndRefused => "end refused",
            Self::Custom(name) => name,
        };
        f.write_str(text)
    }
}
