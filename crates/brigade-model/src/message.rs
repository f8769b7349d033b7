//! What tasks and people say to each other.

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
    /// The recipient should hear it now, not at its next pause.
    #[serde(default)]
    pub interrupt: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageNo>,
    /// Nothing follows it: the recipient's input ends here.
    #[serde(default)]
    pub closes_input: bool,
}

/// Where a message comes from. It travels with the message, so that a child's words are never
/// taken for the user's.
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

/// How far a message has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receipt {
    Accepted,
    Delivered,
    Read,
    /// Handed over when the runtime went away; the other side may or may not have it.
    DeliveryUnknown,
    DeadLettered(Arc<str>),
}
