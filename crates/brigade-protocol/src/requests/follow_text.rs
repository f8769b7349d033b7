//! `follow_text`: sends the output of an agent's model as it is produced.

use brigade_agent::AgentOutput;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::task_target::TaskTarget;

/// The agent to follow, from the start of its latest run to the end of that run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FollowTextRequest {
    pub target: TaskTarget,
}

/// Output of an agent. A step whose number was there before replaces that step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentOutputItem {
    /// A model call starts. Steps are counted from 1 in each run.
    Step {
        step: u32,
    },
    Text(String),
    Reasoning(String),
    /// The model call starts again: all text since the last step is void.
    Restarted,
    /// The arguments are JSON, or empty if they are malformed.
    ToolCall {
        id: String,
        name: String,
        arguments: String,
    },
    ToolResult {
        id: String,
        name: String,
        text: String,
        failed: bool,
    },
    /// The reader was too slow, and the current step follows again.
    Lagged,
}

impl AgentOutputItem {
    /// Returns the item of an output; `None` for an output that this protocol does not have.
    pub fn of(output: AgentOutput) -> Option<Self> {
        Some(match output {
            AgentOutput::Step { step } => Self::Step { step },
            AgentOutput::Text(text) => Self::Text(text.to_string()),
            AgentOutput::Reasoning(text) => Self::Reasoning(text.to_string()),
            AgentOutput::Restarted => Self::Restarted,
            AgentOutput::ToolCall { id, name, arguments } => {
                Self::ToolCall { id: id.to_string(), name: name.to_string(), arguments }
            }
            AgentOutput::ToolResult { id, name, text, failed } => Self::ToolResult {
                id: id.to_string(),
                name: name.to_string(),
                text: text.to_string(),
                failed,
            },
            AgentOutput::Lagged => Self::Lagged,
            _ => return None,
        })
    }
}

impl Call for FollowTextRequest {
    type Reply = ();
    type Item = AgentOutputItem;
}
