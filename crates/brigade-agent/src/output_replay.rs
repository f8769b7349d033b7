//! Reads the output of an agent back from its journal.

use brigade_llm::conversation::ToolArguments;
use brigade_llm::{ContentBlock, ModelReply, ToolCall, ToolResult};
use brigade_model::call::{CallCompletion, JournalEntry};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::RunNo;

use crate::host::AgentOutput;
use crate::step_calls::ResultEntry;

/// Returns the stored output of one run, in the order of its commits. Each text is one piece.
pub fn replay_output(mut journal: Vec<JournalEntry>, run: RunNo) -> Vec<AgentOutput> {
    journal.sort_by_key(|entry| entry.order);
    let mut replay = OutputReplay { wanted: run, run: RunNo(1), step: 0, outputs: Vec::new() };
    for entry in &journal {
        replay.read_entry(entry);
    }
    replay.outputs
}

struct OutputReplay {
    wanted: RunNo,
    run: RunNo,
    step: u32,
    outputs: Vec<AgentOutput>,
}

impl OutputReplay {
    /// Reads one entry. Entries that are no output, or cannot be read, are left out.
    fn read_entry(&mut self, entry: &JournalEntry) {
        let CallCompletion::Value(value) = &*entry.completion else { return };
        if entry.label == EntryLabel::RunStarted {
            if let Ok(run) = value.decode() {
                self.run = run;
                self.step = 0;
            }
            return;
        }
        if self.run != self.wanted {
            return;
        }
        match entry.label {
            EntryLabel::ModelReply => {
                if let Ok(reply) = value.decode() {
                    self.read_reply(reply);
                }
            }
            EntryLabel::ToolResult => self.outputs.extend(value.decode().ok().map(result_output)),
            EntryLabel::ToolResultAndState => {
                let stored = value.decode::<ResultEntry>().ok();
                self.outputs.extend(stored.map(|entry| result_output(entry.result)));
            }
            _ => {}
        }
    }

    fn read_reply(&mut self, reply: ModelReply) {
        self.step += 1;
        self.outputs.push(AgentOutput::Step { step: self.step });
        let contents = reply.message.content.iter().map(|content| match content {
            ContentBlock::Text(text) => AgentOutput::Text(text.clone()),
            ContentBlock::Reasoning(reasoning) => AgentOutput::Reasoning(reasoning.text.clone()),
            ContentBlock::Call(call) => call_output(call),
        });
        self.outputs.extend(contents);
    }
}

/// Returns a tool call as observers see it.
pub(crate) fn call_output(call: &ToolCall) -> AgentOutput {
    let arguments = match &call.arguments {
        ToolArguments::Json(arguments) => arguments.to_string(),
        ToolArguments::Malformed { .. } => String::new(),
    };
    AgentOutput::ToolCall { id: call.id.clone(), name: call.name.clone(), arguments }
}

/// Returns the result of a tool call as observers see it.
pub(crate) fn result_output(result: ToolResult) -> AgentOutput {
    let ToolResult { id, name, text, failed } = result;
    AgentOutput::ToolResult { id, name, text, failed }
}
