//! `inbox`: reads the messages of top-level tasks to the client that started them.

use brigade_model::command::MarkRead;
use brigade_model::ids::MessageNo;
use brigade_model::message::{Message, MessagePurpose, MessageSender, Receipt};
use brigade_model::refusal::Refusal;
use brigade_protocol::TaskTarget;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{InboxItem, InboxRequest};
use brigade_runtime::Session;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// The bounds of one reply, so that it fits a line.
const ITEMS_MAX: usize = 1_000;

const ITEM_BYTES_MAX: usize = 1024 * 1024;

/// The number of latest messages among which read ones are searched.
const READ_MESSAGES_MAX: u64 = 10_000;

impl RequestHandler for InboxRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<InboxItem>, Refusal> {
        let from = match &self.from {
            Some(task) => {
                let target = TaskTarget { session: self.session.clone(), task: task.clone() };
                Some(context.find_task(&target).await?.no)
            }
            None => None,
        };
        let Some(session) = context.sessions(Some(&self.session)).await?.pop() else {
            return Ok(Vec::new());
        };
        let mut notes = Vec::new();
        let mut bytes = 0;
        for (message, receipt) in list_messages(&self, &session).await? {
            let MessageSender::Child(sender) = message.from else { continue };
            if !is_wanted(&self, &message) || from.is_some_and(|from| from != sender) {
                continue;
            }
            if let Some(note) = new_inbox_item(context, &session, &message, receipt).await? {
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

fn is_wanted(request: &InboxRequest, message: &Message) -> bool {
    let is_question = matches!(message.purpose, MessagePurpose::Question(_));
    let is_named = request.numbers.is_empty() || request.numbers.contains(&message.no.0);
    is_named && message.no.0 > request.after && !(request.notes_only && is_question)
}

async fn list_messages(
    request: &InboxRequest,
    session: &Session,
) -> Result<Vec<(std::sync::Arc<Message>, Receipt)>, Refusal> {
    let unread = session.read_inbox(MarkRead::Nothing).await?;
    let unread = unread.into_iter().map(|message| (message, Receipt::Accepted));
    if !request.include_read {
        return Ok(unread.collect());
    }
    let last = session.row().last_message.0;
    let first = (request.after + 1).max(last.saturating_sub(READ_MESSAGES_MAX) + 1);
    let mut all: Vec<_> = unread.filter(|(message, _)| message.no.0 < first).collect();
    for number in first..=last {
        let stored = session.receipt(MessageNo(number)).await?;
        if let Some(row) = stored.filter(|row| row.message.to.task().is_none()) {
            all.push((row.message, row.receipt));
        }
    }
    Ok(all)
}

/// Returns the message for this client; `None` if another client or conversation started the
/// sender.
async fn new_inbox_item(
    context: &RequestContext,
    session: &Session,
    message: &Message,
    receipt: Receipt,
) -> Result<Option<InboxItem>, Refusal> {
    let MessageSender::Child(sender) = message.from else { return Ok(None) };
    let row = session.get(sender).await.ok().map(|task| task.row);
    // Without its row, nobody knows to which client the sender belongs.
    let is_received = match &row {
        Some(row) => context.receives_from(row),
        None => !context.is_client(),
    };
    if !is_received {
        return Ok(None);
    }
    let text = message.body.decode().unwrap_or_else(|_| message.body.as_str().to_owned());
    Ok(Some(InboxItem {
        number: message.no.0,
        from: row.as_ref().map_or_else(|| sender.to_string(), |row| row.address(sender)),
        name: row.and_then(|row| row.name.as_ref().map(ToString::to_string)),
        message_name: message.name.as_deref().map(str::to_owned),
        text,
        sent_at: message.sent_at.0,
        receipt,
        question: match message.purpose {
            MessagePurpose::Question(call) => Some(call.0),
            MessagePurpose::Note => None,
        },
    }))
}

/// Marks messages as read. Removes those that another caller has read in the meantime.
async fn mark_read(session: &Session, notes: &mut Vec<InboxItem>) -> Result<(), Refusal> {
    let unread = notes.iter().filter(|note| note.receipt == Receipt::Accepted);
    let unread: Vec<MessageNo> = unread.map(|note| MessageNo(note.number)).collect();
    if unread.is_empty() {
        return Ok(());
    }
    let marked = session.read_inbox(MarkRead::These(unread)).await?;
    let is_marked = |number: u64| marked.iter().any(|message| message.no.0 == number);
    notes.retain(|note| note.receipt != Receipt::Accepted || is_marked(note.number));
    Ok(())
}
