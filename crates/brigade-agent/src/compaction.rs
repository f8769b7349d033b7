//! Compaction: what a long conversation came to takes the place of its beginning.

use std::sync::Arc;

use brigade_llm::{ChatMessage, ModelReply};
use brigade_model::call::CallCompletion;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;

use crate::agent::{Agent, LoopError};
use crate::host::Host;
use crate::model_call::ChargedReply;
use crate::transcript::{CompactionSummary, Transcript, label};

const SUMMARY_PROMPT: &str = "[The conversation is about to become too long. Write down, for yourself, all that \
    you need to go on without it: the task and what was decided, what is done and what is left, facts, \
    file names, numbers, the addresses of tasks and what each is for, questions that are open. Reply \
    with that summary and nothing else; call no tool.]";

/// The most bytes of a summary.
const SUMMARY_MAX: usize = 64 * 1024;

impl Agent {
    /// From where on the conversation would be kept as it is, if it was made shorter now: about a
    /// fifth of the window. `None` when there is nothing before that worth a summary.
    pub(crate) fn compaction_index(&self, transcript: &Transcript) -> Option<u32> {
        transcript.find_compaction_index(self.context_window / 5 * 3)
    }

    /// Whether the conversation fills so much of the window that it should be made shorter.
    pub(crate) fn needs_compaction(&self, transcript: &Transcript) -> bool {
        transcript.tokens() > self.context_window / 5 * 4
    }

    /// Has the model sum up what is before the cut. Nothing is overwritten: the summary is an entry
    /// as well.
    pub(crate) async fn compact(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        kept_from: u32,
    ) -> Result<(), LoopError> {
        let Some(granted) = self.begin_step(host, transcript).await? else { return Ok(()) };
        // What is sent must fit, whatever has been said: that is why it is summed up.
        let mut messages = transcript.messages_before(kept_from, self.context_window / 5 * 9);
        messages.push(ChatMessage::user(SUMMARY_PROMPT));
        let mut request = self.build_request(transcript, messages, granted);
        // Plugins that hold something back do so here too.
        self.run_before_model_hooks(host, transcript, &mut request).await?;
        let progress = self.progress(transcript, "summing up");
        let ChargedReply { reply, spent } =
            match self.call_model(host, progress, Arc::new(request)).await? {
                Ok(Some(paid)) => paid,
                Ok(None) => return Ok(()),
                Err(error) => return Err(compaction_failure(&error.to_string())),
            };
        let Some(text) = summary_text(&reply) else {
            host.charge(spent).await?;
            return Err(compaction_failure("the model gave no summary"));
        };
        let summary = CompactionSummary { text: text.into(), kept_from };
        let summary = Json::of(&summary)?;
        let written = (label::SUMMARY, summary.clone());
        let index = self.run_after_model_hooks(host, transcript, (&reply, spent), written).await?;
        self.flush_journal(host, transcript).await?;
        let answer = Arc::new(CallCompletion::Value(summary));
        Ok(transcript.apply_entry(index, label::SUMMARY, &answer)?)
    }
}

fn summary_text(reply: &ModelReply) -> Option<String> {
    let mut text = reply.message.text();
    text.truncate(text.floor_char_boundary(SUMMARY_MAX));
    (!text.trim().is_empty()).then_some(text)
}

fn compaction_failure(why: &str) -> LoopError {
    Failure::Error(format!("the conversation cannot be summed up: {why}").into()).into()
}
