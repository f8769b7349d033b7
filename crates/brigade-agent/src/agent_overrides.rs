//! Overrides: the changes of one spawn to its agent's definition.

use brigade_llm::ReasoningEffort;
use serde::{Deserialize, Serialize};

use crate::client_tool::{self, ClientTool};

/// Values that replace those of the definition, and further tools.
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
    /// The name of a registered backend. Without one, the loop of this crate runs the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Tools that the client that started the agent executes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ClientTool>,
}

impl AgentOverrides {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the names of the set values that only the loop of this crate uses.
    pub fn loop_settings(&self) -> Vec<&'static str> {
        let settings = [
            ("temperature", self.temperature.is_some()),
            ("effort", self.effort.is_some()),
            ("max_output", self.max_output.is_some()),
            ("steps", self.steps.is_some()),
            ("client_tools", !self.client_tools.is_empty()),
        ];
        settings.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }

    /// Returns the first problem of the overrides, if there is one.
    pub fn find_problem(&self) -> Option<String> {
        if self.temperature.is_some_and(|value| !(0.0..=2.0).contains(&value)) {
            return Some("temperature: it must be from 0 to 2".to_owned());
        }
        if self.max_output == Some(0) {
            return Some("max_output: it must be at least 1".to_owned());
        }
        if self.steps == Some(0) {
            return Some("steps: it must be at least 1".to_owned());
        }
        client_tool::problem(&self.client_tools)
    }
}
