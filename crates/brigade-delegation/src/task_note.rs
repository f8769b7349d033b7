//! Messages of tasks to the caller, as part of a reply.

use brigade_model::truncate::truncate_with_hint;
use serde_json::{Value, json};

use crate::agent_task_summary::TEXT_BYTES_MAX;
use crate::delegation_reply::DelegationReply;

/// A message of a task to its starter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskNote {
    pub number: u64,
    /// The address of the task.
    pub from: String,
    /// The name of the task.
    pub name: Option<String>,
    /// The name that the task gave the message.
    pub message_name: Option<String>,
    pub text: String,
}

pub(crate) fn add_notes(reply: &mut DelegationReply, notes: &[TaskNote]) {
    if notes.is_empty() {
        return;
    }
    let mut values: Vec<Value> = Vec::with_capacity(notes.len());
    for note in notes {
        let TaskNote { number, from, name, message_name, text } = note;
        let read_on = format!("read_output, task {from:?}");
        let text = truncate_with_hint(text, TEXT_BYTES_MAX, "The note", &read_on);
        let quoted_name = name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let named = message_name.as_ref().map(|name| format!(" (named {name:?})"));
        let named = named.unwrap_or_default();
        reply.add_body(&format!("{from}{quoted_name} says{named}: {text}"));
        let mut value = json!({ "number": number, "from": from, "name": name, "text": text });
        if let Some(message_name) = message_name {
            value["message_name"] = json!(message_name);
        }
        values.push(value);
    }
    reply.set_field("notes", values.into());
}
