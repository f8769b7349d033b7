//! What tasks said to whoever started them at top level.

use brigade_model::command::MarkRead;
use brigade_model::ids::{MessageNo, TaskNo};
use brigade_model::message::{Message, MessagePurpose, MessageSender, Receipt};
use brigade_model::refusal::Refusal;
use brigade_runtime::Session;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};

/// One answer has no more than this, so that it fits a line.
const ITEMS_MAX: usize = 1_000;
const ITEM_BYTES_MAX: usize = 1024 * 1024;
/// How far back is looked for what was read before.
const READ_MESSAGES_MAX: u64 = 10_000;

/// The oldest first, and of many the first part: with `take` the next question brings the rest,
/// else one that says after which number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InboxRequest {
    pub session: String,
    /// Only from this task.
    #[serde(default)]
    pub from: Option<String>,
    /// Only after the message of this number.
    #[serde(default)]
    pub after: u64,
    /// What the answer has counts as read.
    #[serde(default)]
    pub mark_read: bool,
    /// No questions: those stay where they are until they are answered.
    #[serde(default)]
    pub notes_only: bool,
    /// With what was read before, as far as it is kept.
    #[serde(default)]
    pub include_read: bool,
}

/// A message to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxItem {
    pub number: u64,
    /// The address of whoever sent it: what it says is data, not the user's words.
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub text: String,
    /// Milliseconds since the epoch.
    pub sent_at: u64,
    /// How far it had come before this answer.
    pub receipt: Receipt,
    /// It is a question: the number that an answer names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<u32>,
}

impl Call for InboxRequest {
    type Reply = Vec<InboxItem>;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<InboxItem>, Refusal> {
        let from = match &self.from {
            Some(task) => {
                let target = TaskTarget { session: self.session.clone(), task: task.clone() };
                Some(desk.find_task(&target).await?.no)
            }
            None => None,
        };
        let Some(session) = desk.sessions(Some(&self.session)).await?.pop() else {
            return Ok(Vec::new());
        };
        let mut notes = Vec::new();
        let mut bytes = 0;
        for (message, receipt) in self.list_messages(&session).await? {
            let MessageSender::Child(sender) = message.from else { continue };
            if !self.is_wanted(&message) || from.is_some_and(|from| from != sender) {
                continue;
            }
            if let Some(note) = new_inbox_item(desk, &session, (sender, &message), receipt).await? {
                bytes += note.text.len();
                notes.push(note);
            }
            if notes.len() == ITEMS_MAX || bytes >= ITEM_BYTES_MAX {
                break;
            }
        }
        if self.mark_read {
            mark_read(&session, &mut notes).await?;
        }
        Ok(notes)
    }
}

impl InboxRequest {
    fn is_wanted(&self, message: &Message) -> bool {
        let is_question = matches!(message.purpose, MessagePurpose::Question(_));
        message.no.0 > self.after && !(self.notes_only && is_question)
    }

    async fn list_messages(
        &self,
        session: &Session,
    ) -> Result<Vec<(std::sync::Arc<Message>, Receipt)>, Refusal> {
        let unread = session.read_inbox(MarkRead::Nothing).await?;
        let unread = unread.into_iter().map(|message| (message, Receipt::Accepted));
        if !self.include_read {
            return Ok(unread.collect());
        }
        let last = session.row().last_message.0;
        let first = (self.after + 1).max(last.saturating_sub(READ_MESSAGES_MAX) + 1);
        let mut all: Vec<_> = unread.filter(|(message, _)| message.no.0 < first).collect();
        for number in first..=last {
            let kept = session.receipt(MessageNo(number)).await?;
            if let Some(row) = kept.filter(|row| row.message.to.task().is_none()) {
                all.push((row.message, row.receipt));
            }
        }
        Ok(all)
    }
}

/// As this client sees it: none, where another client or conversation started the task.
async fn new_inbox_item(
    desk: &RequestContext,
    session: &Session,
    (sender, message): (TaskNo, &Message),
    receipt: Receipt,
) -> Result<Option<InboxItem>, Refusal> {
    let row = session.get(sender).await.ok().map(|(_, row)| row);
    if row.as_ref().is_some_and(|row| !desk.receives_from(row)) {
        return Ok(None);
    }
    let text = message.body.decode().unwrap_or_else(|_| message.body.as_str().to_owned());
    Ok(Some(InboxItem {
        number: message.no.0,
        from: row.as_ref().map_or_else(|| sender.to_string(), |row| row.address(sender)),
        name: row.and_then(|row| row.name.as_ref().map(ToString::to_string)),
        text,
        sent_at: message.sent_at.0,
        receipt,
        question: match message.purpose {
            MessagePurpose::Question(call) => Some(call.0),
            MessagePurpose::Note => None,
        },
    }))
}

/// Marks them as read. One that somebody else read meanwhile is theirs.
async fn mark_read(session: &Session, notes: &mut Vec<InboxItem>) -> Result<(), Refusal> {
    let unread = notes.iter().filter(|note| note.receipt == Receipt::Accepted);
    let unread: Vec<MessageNo> = unread.map(|note| MessageNo(note.number)).collect();
    if unread.is_empty() {
        return Ok(());
    }
    let taken = session.read_inbox(MarkRead::These(unread)).await?;
    let is_taken = |number: u64| taken.iter().any(|message| message.no.0 == number);
    notes.retain(|note| note.receipt != Receipt::Accepted || is_taken(note.number));
    Ok(())
}
