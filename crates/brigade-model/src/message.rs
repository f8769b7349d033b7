//! Messages between tasks, clients and the operator.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CallIndex, MessageNo, Owner, RunNo, TaskNo, Time};
use crate::json::Json;
use crate::name::IdempotencyKey;

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
    /// The name by which a receiver can wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<MessageKey>,
}

/// The idempotency key of a message, and the run in which it is unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageKey {
    pub key: IdempotencyKey,
    /// The recipient's run. For a message to the session, the sender's run.
    pub run: RunNo,
}

/// The scope in which the key of a message is unique: one run of the recipient and one sender.
///
/// The operator and the clients are one sender together, so that a repeat may come from either. A
/// task is a sender of its own: children of one parent may use the same keys. The session has no
/// runs, so the sender's run takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageKeyScope {
    pub to: Owner,
    /// The sending task. `None` for the operator and for clients.
    pub from: Option<TaskNo>,
    pub run: RunNo,
}

impl MessageKeyScope {
    /// Returns the task whose run the scope names: the recipient, or the sender of a message to the
    /// session.
    pub fn task(&self) -> Option<TaskNo> {
        self.to.task().or(self.from)
    }
}

impl Message {
    /// Returns the scope of the message's key, if it has one.
    pub fn key_scope(&self) -> Option<MessageKeyScope> {
        let run = self.key.as_ref()?.run;
        Some(MessageKeyScope { to: self.to, from: self.from.task(), run })
    }

    /// Returns whether a wait for this name, or for any message, takes the message.
    pub fn matches_name(&self, name: Option<&str>) -> bool {
        name.is_none_or(|name| self.name.as_deref() == Some(name))
    }
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

impl MessageSender {
    /// Returns the task that sent the message, if one did.
    pub fn task(&self) -> Option<TaskNo> {
        match self {
            Self::Parent(no) | Self::Child(no) => Some(*no),
            Self::Operator | Self::Client | Self::Runtime => None,
        }
    }
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
#[non_exhaustive]
pub enum Receipt {
    Accepted,
    Delivered,
    Read,
    /// Pushed when the runtime ended. The recipient may or may not have it.
    DeliveryUnknown,
    DeadLettered(Arc<str>),
}
