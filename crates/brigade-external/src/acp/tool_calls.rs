//! The tool calls of a turn, from their first update to their end.

use std::path::Path;

use agent_client_protocol_schema::v1::{
    ContentBlock, Meta, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind,
};
use brigade_model::truncate::{head_bytes, tail_bytes, truncate_line};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tool_names::ToolNames;
use crate::turn_events::{RequestedCall, SubjectKind, TurnEvent};

use super::messages::ID_MAX;

/// The maximum size of a text of an open call in the saved state, in bytes.
const TEXT_MAX: usize = 64 * 1024;
/// The maximum number of calls, open or finished, in the saved state.
const CALLS_MAX: usize = 64;
/// The maximum number of files of a call, and of bytes in the path of each.
const PATHS_MAX: usize = 16;
const PATH_LENGTH_MAX: usize = 4096;
const TITLE_MAX: usize = 80;

/// The calls that the agent has begun, and the ids of those that have ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallList {
    open: Vec<OpenCall>,
    finished: Vec<String>,
}

/// A call that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenCall {
    id: String,
    name: Option<String>,
    title: String,
    /// True if the title was too long for the saved state.
    has_cut_title: bool,
    kind: ToolKind,
    arguments: Option<Value>,
    /// The files that the call is about.
    paths: Vec<String>,
    /// True if it is about others as well.
    has_more_paths: bool,
    /// True if the call writes a file that does not exist.
    creates_file: bool,
    output: String,
    /// True if the event of the call was returned.
    is_shown: bool,
}

/// The facts about an agent that the reading of its calls needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallContext<'a> {
    pub(super) tools: &'a ToolNames,
    pub(super) command_in_title: bool,
}

/// An update of a call. The first one opens it.
#[derive(Debug)]
pub(super) struct CallUpdate<'a> {
    pub(super) update: &'a ToolCallUpdate,
    pub(super) is_first: bool,
}

impl CallList {
    /// Applies an update and returns the events that it leads to.
    pub(super) fn apply(&mut self, change: &CallUpdate<'_>, directory: &str) -> Vec<TurnEvent> {
        let update = change.update;
        let status = update.fields.status.unwrap_or_default();
        let Some(call) = self.update_call(update, directory) else { return Vec::new() };
        // The arguments of the first update are often incomplete: some agents stream them.
        let has_arguments = !change.is_first && has_content(update.fields.raw_input.as_ref());
        let mut events = Vec::new();
        if has_arguments || status != ToolCallStatus::Pending || call.has_large_arguments() {
            events.extend(call.show());
            call.release_arguments();
        }
        let is_finished = matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed);
        if is_finished {
            events.push(TurnEvent::ToolResult {
                id: call.id.clone(),
                text: call.result_text(&update.fields),
                failed: status == ToolCallStatus::Failed,
            });
            self.finish(&update.tool_call_id.0);
        }
        events
    }

    /// Returns the call of a permission request, with everything that is known of it. A call that
    /// has ended is a new one with the same id.
    pub(super) fn open_for_permission(
        &mut self,
        update: &ToolCallUpdate,
        directory: &str,
    ) -> Option<&mut OpenCall> {
        let id: &str = &update.tool_call_id.0;
        self.finished.retain(|finished| finished != id);
        self.update_call(update, directory)
    }

    fn update_call(&mut self, update: &ToolCallUpdate, directory: &str) -> Option<&mut OpenCall> {
        let id: &str = &update.tool_call_id.0;
        if id.len() > ID_MAX || self.finished.iter().any(|finished| finished == id) {
            return None;
        }
        let position = self.open.iter().position(|call| call.id == id);
        let position = position.unwrap_or_else(|| {
            if self.open.len() == CALLS_MAX {
                self.open.remove(0);
            }
            self.open.push(OpenCall { id: id.to_owned(), ..OpenCall::default() });
            self.open.len() - 1
        });
        let call = self.open.get_mut(position)?;
        call.update(&update.fields, directory);
        call.update_from_meta(update.meta.as_ref());
        Some(call)
    }

    fn finish(&mut self, id: &str) {
        self.open.retain(|call| call.id != id);
        if self.finished.len() == CALLS_MAX {
            self.finished.remove(0);
        }
        self.finished.push(id.to_owned());
    }
}

impl OpenCall {
    /// Returns the event of the call, the first time.
    pub(super) fn show(&mut self) -> Option<TurnEvent> {
        if self.is_shown {
            return None;
        }
        self.is_shown = true;
        let id = self.id.clone();
        Some(TurnEvent::ToolCall { id, name: self.name(), arguments: self.arguments() })
    }

    /// Removes arguments that are too large for the saved state. Their event has them.
    pub(super) fn release_arguments(&mut self) {
        if self.has_large_arguments() {
            self.arguments = None;
        }
    }

    fn has_large_arguments(&self) -> bool {
        self.arguments.as_ref().is_some_and(|value| value.to_string().len() > TEXT_MAX)
    }

    /// Returns the agent's own name of the tool. Without one it is the kind of the call, or its
    /// title.
    pub(super) fn name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let kind = json!(self.kind);
        match (kind.as_str(), self.title.as_str()) {
            (Some(kind), _) if self.kind != ToolKind::Other => kind.to_owned(),
            (_, "") => "tool".to_owned(),
            (_, title) => truncate_line(title, TITLE_MAX),
        }
    }

    /// Returns the arguments. A call without arguments is described by its title and its files.
    pub(super) fn arguments(&self) -> Value {
        match &self.arguments {
            Some(arguments) if has_content(Some(arguments)) => arguments.clone(),
            _ if self.paths.is_empty() => json!({ "title": self.title }),
            _ => json!({ "title": self.title, "files": self.paths }),
        }
    }

    /// Returns the call in the terms of permission rules. It has no subject if that is uncertain,
    /// so that a rule for certain files or commands does not allow it.
    pub(super) fn requested_call(&self, context: &CallContext<'_>) -> RequestedCall {
        let name = self.name();
        let arguments = self.arguments.as_ref().unwrap_or(&Value::Null);
        if let Some(call) = context.tools.translate_known(&name, arguments) {
            return call;
        }
        let file = |tool: &str| RequestedCall {
            tool: tool.to_owned(),
            subject: self.only_path(),
            kind: SubjectKind::File,
        };
        match self.kind {
            ToolKind::Execute => RequestedCall {
                tool: "run_process".to_owned(),
                subject: self.command(context),
                kind: SubjectKind::Shell,
            },
            ToolKind::Read => file("read_file"),
            ToolKind::Search => file("search_files"),
            ToolKind::Edit if self.creates_file => file("write_file"),
            ToolKind::Edit => file("edit_file"),
            ToolKind::Delete | ToolKind::Move => file(&name),
            _ => RequestedCall { tool: name, subject: None, kind: SubjectKind::Text },
        }
    }

    fn command(&self, context: &CallContext<'_>) -> Option<String> {
        let arguments = self.arguments.as_ref();
        match arguments.and_then(|arguments| arguments.get("command")) {
            Some(Value::String(command)) => Some(command.clone()),
            // A list of words is not a command line of a shell.
            Some(_) => None,
            None if self.has_cut_title => None,
            None => context.command_in_title.then(|| self.title.clone()),
        }
    }

    fn only_path(&self) -> Option<String> {
        match self.paths.as_slice() {
            [path] if !self.has_more_paths => Some(path.clone()),
            _ => None,
        }
    }

    fn update(&mut self, fields: &ToolCallUpdateFields, directory: &str) {
        if let Some(name) = fields.name.as_ref().filter(|name| !name.is_empty()) {
            self.name = Some(head_bytes(name, ID_MAX).to_owned());
        }
        if let Some(title) = fields.title.as_ref().filter(|title| !title.is_empty()) {
            self.title = head_bytes(title, TEXT_MAX).to_owned();
            self.has_cut_title = title.len() > TEXT_MAX;
        }
        if let Some(kind) = fields.kind {
            self.kind = kind;
        }
        if let Some(arguments) = &fields.raw_input {
            self.arguments = Some(arguments.clone());
            // They replace the earlier ones, and so do their files.
            self.paths.clear();
            self.has_more_paths = false;
            for key in ["file_path", "filePath", "path", "abs_path", "notebook_path"] {
                self.add_path(arguments.get(key).and_then(Value::as_str), directory);
            }
        }
        for location in fields.locations.iter().flatten() {
            self.add_path(location.path.to_str(), directory);
        }
        let content = fields.content.as_deref().unwrap_or_default();
        for part in content {
            if let ToolCallContent::Diff(diff) = part {
                self.add_path(diff.path.to_str(), directory);
                self.creates_file = diff.old_text.is_none();
            }
        }
        // Before a call runs, its content describes it.
        let has_run = fields.status.is_some_and(|status| status != ToolCallStatus::Pending);
        let text = content_text(content);
        if has_run && !text.is_empty() {
            self.output = tail_bytes(&text, TEXT_MAX).to_owned();
        }
    }

    /// Reads the name of a tool from the metadata of Qwen Code and Claude Code, and the output of a
    /// command from that of Codex.
    fn update_from_meta(&mut self, meta: Option<&Meta>) {
        let Some(meta) = meta else { return };
        let name = meta.get("toolName").or_else(|| meta.get("claudeCode")?.get("toolName"));
        if let Some(name) = name.and_then(Value::as_str)
            && self.name.is_none()
        {
            self.name = Some(head_bytes(name, ID_MAX).to_owned());
        }
        let delta = meta.get("terminal_output_delta").and_then(|delta| delta.get("data"));
        if let Some(delta) = delta.and_then(Value::as_str) {
            self.output.push_str(delta);
            self.output = tail_bytes(&self.output, TEXT_MAX).to_owned();
        }
    }

    fn add_path(&mut self, path: Option<&str>, directory: &str) {
        let Some(path) = path.filter(|path| !path.is_empty()) else { return };
        let path = Path::new(directory).join(path).to_string_lossy().into_owned();
        match self.paths.contains(&path) {
            true => {}
            false if self.paths.len() == PATHS_MAX || path.len() > PATH_LENGTH_MAX => {
                self.has_more_paths = true;
            }
            false => self.paths.push(path),
        }
    }

    /// Returns the result of a call that ended: the raw output if it is a text, as the content is
    /// formatted for people.
    fn result_text(&self, fields: &ToolCallUpdateFields) -> String {
        if let Some(Value::String(text)) = &fields.raw_output {
            return text.clone();
        }
        let content = content_text(fields.content.as_deref().unwrap_or_default());
        match (content.is_empty(), self.output.is_empty(), &fields.raw_output) {
            (false, _, _) => content,
            (true, false, _) => self.output.clone(),
            (true, true, Some(output)) if !output.is_null() => output.to_string(),
            _ => String::new(),
        }
    }
}

fn has_content(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(_) => true,
    }
}

fn content_text(content: &[ToolCallContent]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        ToolCallContent::Content(content) => block_text(&content.content),
        ToolCallContent::Diff(diff) => Some(format!("changed {}", diff.path.display())),
        _ => None,
    });
    texts.collect::<Vec<String>>().join("\n")
}

/// Returns the text of a content block. A linked resource is its address.
pub(super) fn block_text(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::Text(text) => Some(text.text.clone()),
        ContentBlock::ResourceLink(link) => Some(link.uri.clone()),
        _ => None,
    }
}
