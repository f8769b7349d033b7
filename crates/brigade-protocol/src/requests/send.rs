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
    /// The idempotency key of the message. A repeat with the same content returns the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The name by which the recipient can wait for the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Refuses the message if the task has ended. Otherwise it begins the next run of an agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alive_only: bool,
}

impl SendRequest {
    /// The first protocol with keys and names. A daemon of an earlier one ignores them.
    pub const KEY_AND_NAME_PROTOCOL: u32 = 3;

    /// Creates a request without a key, a name or flags.
    pub fn new(target: TaskTarget, message: Json) -> Self {
        Self {
            target,
            message: Some(message),
            closes_input: false,
            interrupt: false,
            key: None,
            name: None,
            alive_only: false,
        }
    }

    /// Creates a request that only closes the input of a process.
    pub fn new_close(target: TaskTarget) -> Self {
        Self { message: None, closes_input: true, ..Self::new(target, Json::null()) }
    }
}

impl Call for SendRequest {
    /// The numbers of the messages.
    type Reply = Vec<u64>;
    type Item = NoItems;
}
