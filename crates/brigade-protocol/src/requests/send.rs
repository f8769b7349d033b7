//! `send`: sends a message to a task. A process gets it as a line of its input.

use brigade_model::json::Json;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SendRequest {
    pub target: TaskTarget,
    /// The message; `None` only closes the input.
    #[serde(default)]
    pub message: Option<Json>,
    /// Closes the input of a process.
    #[serde(default)]
    pub closes_input: bool,
    /// Delivers the message now, not at the next step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
}

impl Call for SendRequest {
    /// The numbers of the messages.
    type Reply = Vec<u64>;
    type Item = NoItems;
}
