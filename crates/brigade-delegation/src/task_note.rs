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
    pub name: Option<String>,
    pub text: String,
}

pub(crate) fn add_notes(reply: &mut DelegationReply, notes: &[TaskNote]) {
    if notes.is_empty() {
        return;
    }
    let mut values: Vec<Value> = Vec::with_capacity(notes.len());
    for note in notes {
        let TaskNote { number, from, name, text } = note;
        let read_on = format!("read_output, task {from:?}");
        let text = truncate_with_hint(text, TEXT_BYTES_MAX, "The note", &read_on);
        let quoted_name = name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        reply.add_body(&format!("{from}{quoted_name} says: {text}"));
        values.push(json!({ "number": number, "from": from, "name": name, "text": text }));
    }
    reply.set_field("notes", values.into());
}
