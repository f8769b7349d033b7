//! The history of a task: the messages of the client and the replies of the agent, in their order.
//!
//! Tool calls and the texts of other tasks are no messages between client and agent, so they are not
//! in it. The transcript of the API has them.

use std::collections::{HashMap, VecDeque};

use a2a::{Message, Part, PartContent, Role};
use brigade_agent::transcript_text::TranscriptItem;
use brigade_model::ids::Owner;
use brigade_model::message::{MessageSender, Receipt};
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::MessageRow;
use brigade_protocol::http::TranscriptItemBody;
use brigade_store::MessageQuery;
use serde_json::Value;

use super::task_status::TaskFacts;
use crate::request_context::LocatedTask;

const HISTORY_DEFAULT: usize = 20;
const HISTORY_MAX: usize = 100;
/// The maximum size of the text of one message.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// The maximum size of all texts. Older messages are omitted.
const HISTORY_BYTES_MAX: usize = 1024 * 1024;
/// The number of items that are read at once.
const PAGE_ITEMS: usize = 500;
/// The number of messages of the session among which unread ones are searched.
const UNREAD_MAX: usize = 1_000;
/// The tool with which an agent asks the client.
const ASK_TOOL: &str = "ask_parent";
/// The start of the result of a question.
const ANSWER_PREFIX: &str = "The answer: ";

/// Returns the number of messages for a request, or refuses a negative one.
pub(crate) fn history_length(requested: Option<i32>) -> Result<usize, Refusal> {
    let Some(requested) = requested else { return Ok(HISTORY_DEFAULT) };
    let length = usize::try_from(requested);
    let length = length.map_err(|_| Refusal::invalid("`historyLength` is negative"))?;
    Ok(length.min(HISTORY_MAX))
}

/// Returns the newest messages, the oldest first. Messages that the agent has not read yet come last.
pub(crate) async fn read_history(
    found: &LocatedTask,
    facts: &TaskFacts,
    length: usize,
) -> Result<Vec<Message>, Refusal> {
    let mut history = TaskHistory { facts, length, messages: VecDeque::new() };
    if length == 0 {
        return Ok(Vec::new());
    }
    let mut start = None;
    loop {
        let page = found.session.transcript_page(found.task_ref(), start, PAGE_ITEMS).await?;
        let Some(page) = page else { break };
        for (item, index) in page.items.into_iter().zip(page.first_index..) {
            history.push_item(index, item);
        }
        if page.next.is_none() {
            break;
        }
        start = page.next;
    }
    if found.row.is_alive() {
        let query =
            MessageQuery { task: found.no, before: None, limit: length, read_limit: UNREAD_MAX };
        let page = found.session.messages(&query).await?;
        let is_unread = |row: &&MessageRow| {
            row.receipt == Receipt::Accepted && row.message.to == Owner::Task(found.no)
        };
        for row in page.items.iter().rev().filter(is_unread) {
            history.push_sent(&row.message);
        }
    }
    Ok(history.finish())
}

/// The newest messages of a task.
struct TaskHistory<'a> {
    facts: &'a TaskFacts,
    length: usize,
    messages: VecDeque<Message>,
}

impl TaskHistory<'_> {
    /// Adds the messages of an item: instructions, replies, questions with their answers, and
    /// messages of the client.
    fn push_item(&mut self, index: usize, item: TranscriptItem) {
        for message in &item.messages {
            self.push_sent(message);
        }
        let id = format!("{}-item-{index}", self.facts.id);
        let item = TranscriptItemBody::of(index, item);
        match item.role.as_str() {
            "task" => self.push(Role::User, id, item.text),
            "assistant" => {
                self.push(Role::Agent, id.clone(), item.text);
                for call in item.tool_calls.iter().filter(|call| call.name == ASK_TOOL) {
                    let arguments =
                        call.arguments.as_ref().and_then(|it| it.decode::<Value>().ok());
                    let question =
                        arguments.and_then(|it| Some(it["question"].as_str()?.to_owned()));
                    self.push(Role::Agent, format!("{id}-question-{}", call.number), question);
                }
            }
            "tool" => {
                let answer = item.tool_result.filter(|it| it.name == ASK_TOOL && !it.failed);
                let text = answer.map(|answer| match answer.text.strip_prefix(ANSWER_PREFIX) {
                    Some(text) => text.to_owned(),
                    None => answer.text,
                });
                self.push(Role::User, id, text);
            }
            _ => {}
        }
    }

    /// Adds a message that the client or the operator sent. Messages of other tasks are no part of
    /// the conversation.
    fn push_sent(&mut self, message: &brigade_model::message::Message) {
        if !matches!(message.from, MessageSender::Client | MessageSender::Operator) {
            return;
        }
        let key = message.key.as_ref().and_then(|key| key.key.as_str().strip_prefix("a2a/"));
        let id = match key {
            Some(id) => id.to_owned(),
            None => format!("{}-message-{}", self.facts.id, message.no),
        };
        let text = message.body.decode::<String>().unwrap_or_else(|_| message.body.to_string());
        self.push(Role::User, id, Some(text));
    }

    fn push(&mut self, role: Role, id: String, text: Option<String>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        if self.messages.len() == self.length {
            self.messages.pop_front();
        }
        let mut message = self.facts.message(id, Vec::new());
        message.role = role;
        if text.len() > MESSAGE_BYTES_MAX {
            message.metadata = Some(HashMap::from([("truncated".to_owned(), Value::Bool(true))]));
        }
        message.parts.push(Part::text(truncate_text(text)));
        self.messages.push_back(message);
    }

    /// Returns the newest messages within the bytes of an answer.
    fn finish(self) -> Vec<Message> {
        let mut bytes = 0;
        let mut messages: Vec<Message> = self.messages.into();
        let text_len = |message: &Message| match message.parts.first().map(|part| &part.content) {
            Some(PartContent::Text(text)) => text.len(),
            _ => 0,
        };
        let is_within = |message: &&Message| {
            bytes += text_len(message);
            bytes <= HISTORY_BYTES_MAX
        };
        let count = messages.iter().rev().take_while(is_within).count();
        messages.split_off(messages.len() - count)
    }
}

/// Truncates a text to the bytes of a message, with a note.
fn truncate_text(mut text: String) -> String {
    let length = text.len();
    if length > MESSAGE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
        text.push_str(&format!("\n[truncated: the whole text has {length} bytes]"));
    }
    text
}
