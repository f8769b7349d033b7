//! Compaction: a summary replaces the beginning of a conversation that is too long.

use std::sync::Arc;

use brigade_llm::{ChatMessage, ModelReply};
use brigade_model::call::CallCompletion;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use brigade_model::truncate::head_bytes;

use crate::agent::{Agent, LoopError, NewEntry};
use crate::host::Host;
use crate::model_call::{CallPurpose, ChargedReply, ModelCallResult};
use crate::transcript::{CompactionSummary, Transcript};
use brigade_model::entry_label::EntryLabel;

const SUMMARY_PROMPT: &str = "[The conversation is about to become too long. Write a summary for yourself that \
    contains all that you need to continue without it: the task and the decisions, completed and open \
    work, facts, file names, numbers, the addresses of tasks and the purpose of each, open questions. \
    Reply with the summary and nothing else; call no tool.]";

/// The most bytes of a summary.
const SUMMARY_MAX: usize = 64 * 1024;

impl Agent {
    /// Returns the index from which a compaction would keep the conversation. The kept end fills about
    /// a fifth of the context window. Returns `None` if too little precedes it for a summary.
    pub(crate) fn compaction_index(&self, transcript: &Transcript) -> Option<u32> {
        transcript.find_compaction_index(self.context_window / 5 * 3)
    }

    /// Returns true if the conversation fills more than four fifths of the context window.
    pub(crate) fn needs_compaction(&self, transcript: &Transcript) -> bool {
        transcript.tokens() > self.context_window / 5 * 4
    }

    /// Lets the model summarize the conversation before `kept_from`. Nothing is overwritten: the
    /// summary is a further journal entry.
    pub(crate) async fn compact(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        kept_from: u32,
    ) -> Result<(), LoopError> {
        let Some(granted) = self.begin_step(host, transcript).await? else { return Ok(()) };
        // This request must fit into the window too, so long results are truncated.
        let mut messages = transcript.messages_before(kept_from, self.context_window / 5 * 9);
        messages.push(ChatMessage::user(SUMMARY_PROMPT));
        let mut request = self.build_request(transcript, messages, granted);
        // Plugins that redact requests do so here too.
        self.run_before_model_hooks(host, transcript, &mut request).await?;
        let progress = self.progress(transcript, "summarizing");
        let purpose = CallPurpose::Summary;
        let called = self.call_model(host, purpose, progress, Arc::new(request)).await?;
        let charged: ChargedReply = match called {
            ModelCallResult::Reply(charged) => charged,
            ModelCallResult::Interrupted => return Ok(()),
            ModelCallResult::Failed(error) => {
                return Err(compaction_failure(&error.to_string()));
            }
        };
        let Some(text) = summary_text(&charged.reply) else {
            host.charge(charged.spent).await?;
            return Err(compaction_failure("the model gave no summary"));
        };
        let summary = CompactionSummary { text: text.into(), kept_from };
        let summary = Json::of(&summary)?;
        let entry = NewEntry { label: EntryLabel::Summary, value: summary.clone() };
        let index = self.run_after_model_hooks(host, transcript, &charged, entry).await?;
        self.flush_journal(host, transcript).await?;
        let completion = Arc::new(CallCompletion::Value(summary));
        Ok(transcript.apply_entry(index, &EntryLabel::Summary, &completion)?)
    }
}

fn summary_text(reply: &ModelReply) -> Option<String> {
    let text = reply.message.text();
    let summary = head_bytes(&text, SUMMARY_MAX);
    (!summary.trim().is_empty()).then(|| summary.to_owned())
}

fn compaction_failure(reason: &str) -> LoopError {
    Failure::error(format!("the conversation cannot be summarized: {reason}")).into()
}
