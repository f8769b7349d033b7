//! Messages between tasks, clients and the operator.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CallIndex, MessageNo, Owner, TaskNo, Time};
use crate::json::Json;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub no: MessageNo,
    pub to: Owner,
    pub from: MessageSender,
    pub body: Json,
    pub sent_at: Time,
    pub purpose: MessagePurpose,
    /// True if the recipient should get it at once, not at its next pause.
    #[serde(default)]
    pub interrupt: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageNo>,
    /// True if the recipient's input ends with this message.
    #[serde(default)]
    pub closes_input: bool,
}

/// The sender of a message. It travels with the message, so that a child's text is never taken for
/// the user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageSender {
    Operator,
    Client,
    Parent(TaskNo),
    Child(TaskNo),
    /// Brigade itself.
    Runtime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessagePurpose {
    Note,
    /// The sender is parked on this call until it is answered.
    Question(CallIndex),
}

/// The delivery state of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receipt {
    Accepted,
    Delivered,
    Read,
    /// Pushed when the runtime ended. The recipient may or may not have it.
    DeliveryUnknown,
    DeadLettered(Arc<str>),
}
