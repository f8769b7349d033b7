//! What one spawn changes of its agent's definition.

use brigade_llm::ReasoningEffort;
use serde::{Deserialize, Serialize};

use crate::client_tool::{self, ClientTool};

/// Instead of what the definition says, and beside the tools that it has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// The most tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// The most model calls of one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// What carries it out, by the name under which the program knows it. Without one, our own loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Tools that whoever started the agent runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ClientTool>,
}

impl AgentOverrides {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with them.
    pub fn find_problem(&self) -> Option<String> {
        if self.temperature.is_some_and(|heat| !(0.0..=2.0).contains(&heat)) {
            return Some("temperature: it must be from 0 to 2".to_owned());
        }
        if self.max_output == Some(0) {
            return Some("max_output: a reply of no tokens is none".to_owned());
        }
        if self.steps == Some(0) {
            return Some("steps: without a step nothing is done".to_owned());
        }
        client_tool::problem(&self.client_tools)
    }
}
