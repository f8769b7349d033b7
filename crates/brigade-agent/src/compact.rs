//! Compaction: what a long conversation came to takes the place of its beginning.

use std::sync::Arc;

use brigade_llm::{Message, Reply};
use brigade_model::call::Answer;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;

use crate::agent::{Agent, Ended};
use crate::ask::Paid;
use crate::host::Host;
use crate::transcript::{Summary, Transcript, label};

const ASK: &str = "[The conversation is about to become too long. Write down, for yourself, all that \
    you need to go on without it: the task and what was decided, what is done and what is left, facts, \
    file names, numbers, the addresses of tasks and what each is for, questions that are open. Reply \
    with that summary and nothing else; call no tool.]";

/// The most bytes of a summary.
const SUMMARY_MAX: usize = 64 * 1024;

impl Agent {
    /// From where on the conversation would be kept as it is, if it was made shorter now: about a
    /// fifth of the window. `None` when there is nothing before that worth a summary.
    pub(crate) fn cut(&self, transcript: &Transcript) -> Option<u32> {
        transcript.cut_before(self.window / 5 * 3)
    }

    /// Whether the conversation fills so much of the window that it should be made shorter.
    pub(crate) fn is_long(&self, transcript: &Transcript) -> bool {
        transcript.tokens() > self.window / 5 * 4
    }

    /// Has the model sum up what is before the cut. Nothing is overwritten: the summary is an entry
    /// as well.
    pub(crate) async fn compact(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        kept_from: u32,
    ) -> Result<(), Ended> {
        let Some(granted) = self.proceed(host, transcript).await? else { return Ok(()) };
        // What is sent must fit, whatever has been said: that is why it is summed up.
        let mut messages = transcript.messages_before(kept_from, self.window / 5 * 9);
        messages.push(Message::user(ASK));
        let mut request = self.request(transcript, messages, granted);
        // Plugins that hold something back do so here too.
        self.consult_before(host, transcript, &mut request).await?;
        let progress = self.progress(transcript, "summing up");
        let Paid { reply, spent } = match self.listen(host, progress, Arc::new(request)).await? {
            Ok(Some(paid)) => paid,
            Ok(None) => return Ok(()),
            Err(error) => return Err(cannot(&error.to_string())),
        };
        let Some(text) = summary_of(&reply) else {
            host.charge(spent).await?;
            return Err(cannot("the model gave no summary"));
        };
        let summary = Summary { text: text.into(), kept_from };
        let summary = Json::of(&summary)?;
        let written = (label::SUMMARY, summary.clone());
        let index = self.consult_after(host, transcript, (&reply, spent), written).await?;
        self.write_owed(host, transcript).await?;
        let answer = Arc::new(Answer::Value(summary));
        Ok(transcript.enter(index, label::SUMMARY, &answer)?)
    }
}

fn summary_of(reply: &Reply) -> Option<String> {
    let mut text = reply.message.text();
    text.truncate(text.floor_char_boundary(SUMMARY_MAX));
    (!text.trim().is_empty()).then_some(text)
}

fn cannot(why: &str) -> Ended {
    Failure::Error(format!("the conversation cannot be summed up: {why}").into()).into()
}
