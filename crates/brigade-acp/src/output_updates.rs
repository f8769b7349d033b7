//! Output of the root agent as updates, each part once.
//!
//! After the loss of a daemon the output is read again from the start of the run, and a session
//! that is loaded replays its transcript first. The tracker knows the parts that the editor has.

use std::collections::{HashMap, HashSet};

use agent_client_protocol::v1::schema::{
    Content, ContentBlock, ContentChunk, SessionUpdate, TextContent, ToolCall, ToolCallContent,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use brigade_model::plain_text::PlainText;
use brigade_model::truncate::truncate_chars;
use brigade_protocol::requests::AgentOutputItem;
use serde_json::Value;

const TITLE_CHARS: usize = 200;

/// The output of the current run that the editor has.
#[derive(Debug, Default)]
pub(crate) struct OutputTracker {
    run: u32,
    /// The step that is being read.
    step: u32,
    /// The last step that the editor has.
    last_step: u32,
    text: StepText,
    reasoning: StepText,
    /// The ids of tool calls that the editor has.
    calls: HashSet<String>,
    /// The ids of tool calls whose results the editor has.
    results: HashSet<String>,
    /// The numbers of the calls of the step that is being read, by the ids of the model.
    numbers: HashMap<String, u32>,
    /// Text was sent since the last `take_has_text`.
    has_text: bool,
}

/// The text of the last step.
#[derive(Debug, Default)]
struct StepText {
    /// The text that the editor has.
    sent: String,
    /// The text that was read since the step began.
    read: String,
}

impl StepText {
    /// Adds a piece that was read. Returns the part that the editor does not have.
    fn push(&mut self, piece: &str) -> Option<String> {
        self.read.push_str(piece);
        if self.sent.starts_with(&self.read) {
            return None;
        }
        let missing = match self.read.strip_prefix(&self.sent) {
            Some(missing) => missing.to_owned(),
            // The call was made again, and its reply is another one.
            None => format!("\n\n{}", self.read),
        };
        self.sent.clone_from(&self.read);
        Some(missing)
    }
}

impl OutputTracker {
    /// Starts with a run, unless it is the current one.
    pub(crate) fn begin_run(&mut self, run: u32) {
        if self.run != run {
            *self = Self { run, has_text: self.has_text, ..Self::default() };
        }
    }

    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    /// Starts the next step of a transcript.
    pub(crate) fn begin_next_step(&mut self) {
        self.begin_step(self.last_step + 1);
    }

    /// Returns true if text was sent since the last call.
    pub(crate) fn take_has_text(&mut self) -> bool {
        std::mem::take(&mut self.has_text)
    }

    /// Returns the update of an output, if the editor does not have it.
    pub(crate) fn update(&mut self, item: AgentOutputItem) -> Option<SessionUpdate> {
        match item {
            AgentOutputItem::Step { step } => {
                self.begin_step(step);
                None
            }
            AgentOutputItem::Restarted => {
                self.text.read.clear();
                self.reasoning.read.clear();
                None
            }
            AgentOutputItem::Lagged => None,
            AgentOutputItem::Text(piece) => {
                let text = self.push_text(&piece)?;
                self.has_text = true;
                Some(SessionUpdate::AgentMessageChunk(self.chunk(text)))
            }
            AgentOutputItem::Reasoning(piece) => {
                let is_current = self.step == self.last_step;
                let text = is_current.then(|| self.reasoning.push(&piece)).flatten()?;
                Some(SessionUpdate::AgentThoughtChunk(self.chunk(text)))
            }
            AgentOutputItem::ToolCall { id, name, arguments } => {
                let number = self.numbers.len() as u32 + 1;
                self.numbers.insert(id, number);
                let arguments = serde_json::from_str(&arguments).ok();
                self.tool_call(number, &name, arguments)
            }
            AgentOutputItem::ToolResult { id, text, failed, .. } => {
                let number = self.numbers.get(&id).copied()?;
                self.tool_result(number, text, failed)
            }
        }
    }

    /// Returns the update of a tool call of the current step, if the editor does not have it.
    pub(crate) fn tool_call(
        &mut self,
        number: u32,
        name: &str,
        arguments: Option<Value>,
    ) -> Option<SessionUpdate> {
        let id = self.call_id(number);
        if !self.calls.insert(id.clone()) {
            return None;
        }
        let call = ToolCall::new(id, render_title(name, arguments.as_ref()))
            .kind(tool_kind(name))
            .status(ToolCallStatus::InProgress)
            .raw_input(arguments);
        Some(SessionUpdate::ToolCall(call))
    }

    /// Returns the update of a result of the current step, if the editor does not have it.
    pub(crate) fn tool_result(
        &mut self,
        number: u32,
        text: String,
        failed: bool,
    ) -> Option<SessionUpdate> {
        let id = self.call_id(number);
        if !self.results.insert(id.clone()) {
            return None;
        }
        let status = if failed { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
        let content = vec![text_content(text)];
        let fields = ToolCallUpdateFields::new().status(status).content(content);
        Some(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields)))
    }

    /// Returns the updates that end calls without a result, after the end of their run.
    pub(crate) fn fail_open_calls(&mut self) -> Vec<SessionUpdate> {
        let mut open: Vec<String> = self.calls.difference(&self.results).cloned().collect();
        open.sort();
        self.results.extend(open.iter().cloned());
        let fail = |id: String| {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Failed);
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields))
        };
        open.into_iter().map(fail).collect()
    }

    fn begin_step(&mut self, step: u32) {
        self.step = step;
        self.numbers.clear();
        self.text.read.clear();
        self.reasoning.read.clear();
        if step > self.last_step {
            self.last_step = step;
            self.text = StepText::default();
            self.reasoning = StepText::default();
        }
    }

    fn push_text(&mut self, piece: &str) -> Option<String> {
        let is_current = self.step == self.last_step;
        is_current.then(|| self.text.push(piece)).flatten()
    }

    fn chunk(&self, text: String) -> ContentChunk {
        let id = format!("{}.{}", self.run, self.step);
        new_chunk(text).message_id(agent_client_protocol::v1::schema::MessageId::new(id))
    }

    fn call_id(&self, number: u32) -> String {
        format!("call-{}.{}.{number}", self.run, self.step)
    }
}

/// Returns a chunk of text.
pub(crate) fn new_chunk(text: impl Into<String>) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// Returns text as the content of a tool call.
pub(crate) fn text_content(text: impl Into<String>) -> ToolCallContent {
    ToolCallContent::Content(Content::new(ContentBlock::Text(TextContent::new(text))))
}

/// Returns the kind of a tool, by which an editor selects an icon.
pub(crate) fn tool_kind(name: &str) -> ToolKind {
    match name {
        "read_file" | "list_files" | "read_output" | "list_tasks" => ToolKind::Read,
        "search_files" => ToolKind::Search,
        "write_file" | "edit_file" => ToolKind::Edit,
        "run_process" => ToolKind::Execute,
        _ => ToolKind::Other,
    }
}

/// Renders a tool call in one line: its name and its main argument.
pub(crate) fn render_title(name: &str, arguments: Option<&Value>) -> String {
    const MAIN_ARGUMENTS: [&str; 6] = ["command", "path", "pattern", "name", "task", "to"];
    let main = arguments.and_then(|arguments| {
        MAIN_ARGUMENTS.iter().find_map(|main| arguments.get(main).and_then(Value::as_str))
    });
    let title = match main {
        Some(main) => format!("{name}: {main}"),
        None => name.to_owned(),
    };
    truncate_chars(PlainText::line(&title).as_str(), TITLE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(piece: &str) -> AgentOutputItem {
        AgentOutputItem::Text(piece.to_owned())
    }

    fn sent(tracker: &mut OutputTracker, items: Vec<AgentOutputItem>) -> Vec<String> {
        let updates = items.into_iter().filter_map(|item| tracker.update(item));
        let render = |update: SessionUpdate| match update {
            SessionUpdate::AgentMessageChunk(chunk) => match chunk.content {
                ContentBlock::Text(text) => text.text,
                other => format!("{other:?}"),
            },
            SessionUpdate::ToolCall(call) => format!("call {}", call.tool_call_id.0),
            SessionUpdate::ToolCallUpdate(update) => format!("result {}", update.tool_call_id.0),
            other => format!("{other:?}"),
        };
        updates.map(render).collect()
    }

    fn step(step: u32) -> AgentOutputItem {
        AgentOutputItem::Step { step }
    }

    fn call() -> AgentOutputItem {
        AgentOutputItem::ToolCall { id: "x".into(), name: "look".into(), arguments: "{}".into() }
    }

    fn result() -> AgentOutputItem {
        AgentOutputItem::ToolResult {
            id: "x".into(),
            name: "look".into(),
            text: "ok".into(),
            failed: false,
        }
    }

    #[test]
    fn output_that_is_read_again_is_sent_once() {
        let mut tracker = OutputTracker::default();
        tracker.begin_run(1);
        let first = vec![step(1), text("Soup"), call(), result(), step(2), text("Bre")];
        let expect = ["Soup", "call call-1.1.1", "result call-1.1.1", "Bre"];
        assert_eq!(sent(&mut tracker, first), expect);
        let again = vec![step(1), text("Soup"), call(), result(), step(2), text("Bread"), call()];
        assert_eq!(sent(&mut tracker, again), ["ad", "call call-1.2.1"]);
        // Another run has the same steps, and ids of its own.
        tracker.begin_run(2);
        assert_eq!(
            sent(&mut tracker, vec![step(1), text("Soup"), call()]),
            ["Soup", "call call-2.1.1"]
        );
    }

    #[test]
    fn a_reply_that_starts_again_is_sent_if_it_differs() {
        let mut tracker = OutputTracker::default();
        tracker.begin_run(1);
        let items = vec![step(1), text("Soup"), AgentOutputItem::Restarted, text("So"), text("up")];
        assert_eq!(sent(&mut tracker, items), ["Soup"]);
        let items = vec![AgentOutputItem::Restarted, text("Salad"), text("!")];
        assert_eq!(sent(&mut tracker, items), ["\n\nSalad", "!"]);
    }
}
