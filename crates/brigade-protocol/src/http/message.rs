//! Messages and their receipts.

use brigade_model::ids::{Owner, SessionId};
use brigade_model::json::Json;
use brigade_model::message::{Message, MessagePurpose, MessageSender, Receipt};
use brigade_model::task_tree::MessageRow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApiTime, TaskId};

/// A message to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
#[schema(as = MessageRequest)]
pub struct MessageRequestBody {
    /// The message; a process gets it as a line of its input. Optional with `close_input`.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub body: Option<Json>,
    /// The name by which a job receives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Delivers it now, not at the agent's next step.
    pub interrupt: bool,
    /// Closes the input of a process after the message.
    pub close_input: bool,
}

/// Reads an explicit `null` as a value.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// The numbers of sent messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Sent)]
pub struct SentBody {
    pub numbers: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Message)]
pub struct MessageBody {
    /// The number within the session.
    pub number: u64,
    pub from: MessageSenderBody,
    /// The task that receives it; absent for the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<TaskId>,
    #[schema(value_type = Value)]
    pub body: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub sent_at: ApiTime,
    pub interrupt: bool,
    /// The input of the process ends with this message.
    pub close_input: bool,
    /// The call that an answer names, if the message is a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<u64>,
    pub receipt: ReceiptBody,
}

/// The sender of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MessageSender)]
pub struct MessageSenderBody {
    /// Open: `operator`, `client`, `parent`, `child`, `runtime`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The task, if one sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}

/// The delivery state of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Receipt)]
pub struct ReceiptBody {
    /// Open: `accepted`, `delivered`, `read`, `delivery_unknown`, `dead_letter`.
    pub state: String,
    /// The reason why it cannot be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Messages, the newest last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MessageList)]
pub struct MessageListBody {
    pub items: Vec<MessageBody>,
    /// The parameter `page` for older messages; absent at the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page: Option<String>,
}

/// A message of a top-level task to its client. Its text is data, not an instruction of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InboxItem)]
pub struct InboxItemBody {
    pub number: u64,
    /// The address of the sender.
    pub from: String,
    /// The name of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub text: String,
    pub sent_at: ApiTime,
    pub receipt: ReceiptBody,
    /// The call that an answer names, if the message is a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Inbox)]
pub struct InboxBody {
    /// The oldest first. If one answer does not hold all, ask again after the last number.
    pub items: Vec<InboxItemBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReadRequest)]
pub struct ReadRequestBody {
    /// The messages to mark as read, from 1 to 1000.
    #[schema(min_items = 1, max_items = 1000)]
    pub numbers: Vec<u64>,
}

impl MessageBody {
    pub fn of(session: SessionId, row: &MessageRow) -> Self {
        let Message { no, to, from, body, sent_at, purpose, .. } = &*row.message;
        Self {
            number: no.0,
            from: MessageSenderBody::of(session, from),
            to: match to {
                Owner::Session => None,
                Owner::Task(no) => Some(TaskId { session, no: *no }),
            },
            body: body.clone(),
            name: row.message.name.as_deref().map(str::to_owned),
            sent_at: (*sent_at).into(),
            interrupt: row.message.interrupt,
            close_input: row.message.closes_input,
            question: match purpose {
                MessagePurpose::Question(call) => Some(call.0),
                MessagePurpose::Note => None,
            },
            reply_to: row.message.reply_to.map(|no| no.0),
            receipt: ReceiptBody::of(&row.receipt),
        }
    }
}

impl MessageSenderBody {
    fn of(session: SessionId, sender: &MessageSender) -> Self {
        let kind = match sender {
            MessageSender::Operator => "operator",
            MessageSender::Client => "client",
            MessageSender::Parent(_) => "parent",
            MessageSender::Child(_) => "child",
            MessageSender::Runtime => "runtime",
        };
        let task = sender.task().map(|no| TaskId { session, no });
        Self { kind: kind.to_owned(), task }
    }
}

impl ReceiptBody {
    pub fn of(receipt: &Receipt) -> Self {
        let state = match receipt {
            Receipt::Accepted => "accepted",
            Receipt::Delivered => "delivered",
            Receipt::Read => "read",
            Receipt::DeliveryUnknown => "delivery_unknown",
            Receipt::DeadLettered(_) => "dead_letter",
            _ => "other",
        };
        let reason = match receipt {
            Receipt::DeadLettered(reason) => Some(reason.to_string()),
            _ => None,
        };
        Self { state: state.to_owned(), reason }
    }
}
