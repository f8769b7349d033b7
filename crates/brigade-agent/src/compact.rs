//! Compaction: what a long conversation came to takes the place of its beginning.

use std::sync::Arc;

use brigade_llm::{Message, Part, Request};
use brigade_model::call::Answer;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use futures_util::StreamExt;

use crate::agent::{Agent, Ended};
use crate::host::{Host, Proceed, Record};
use crate::transcript::{Summary, Transcript, label};

const ASK: &str = "[The conversation is about to become too long. Write down, for yourself, all that \
    you need to go on without it: the task and what was decided, what is done and what is left, facts, \
    file names, numbers, the addresses of tasks and what each is for, questions that are open. Reply \
    with that summary and nothing else; call no tool.]";

/// The most bytes of a summary.
const SUMMARY_MAX: usize = 64 * 1024;

impl Agent {
    /// Has the model sum up the older part. Nothing is overwritten: the summary is an entry as well.
    pub(crate) async fn compact(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Ended> {
        let Some(kept_from) = transcript.cut_before(self.window / 5 * 3) else {
            let full = "the conversation does not fit into the model's window, and there is nothing \
                        left in it to sum up";
            return Err(Failure::Error(full.into()).into());
        };
        let index = transcript.next_index();
        match host.proceed(index, self.expected_cost(transcript)).await? {
            Proceed::News(news) => return Ok(transcript.enter(index, label::NEWS, &news)?),
            Proceed::Exhausted(limit) => return Err(Failure::Budget { limit }.into()),
            Proceed::Granted(_) => {}
        }
        host.progress(self.progress(transcript, "summing up"));
        let mut messages = transcript.messages_before(kept_from);
        messages.push(Message::user(ASK));
        let request = Request {
            asker: self.name.clone(),
            model: self.model_name.clone(),
            system: self.system.clone(),
            messages,
            tools: self.tools.specs(),
            max_output: self.max_output,
            temperature: self.temperature,
            effort: self.effort,
        };
        let mut parts = self.model.call(Arc::new(request));
        let reply = loop {
            match parts.next().await {
                Some(Ok(Part::Finished(reply))) => break reply,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(cannot(&error.to_string())),
                None => return Err(cannot("the reply ended before it was whole")),
            }
        };
        let mut text = reply.message.text();
        text.truncate(text.floor_char_boundary(SUMMARY_MAX));
        if text.trim().is_empty() {
            return Err(cannot("the model gave no summary"));
        }
        let summary = Summary { text: text.into(), kept_from };
        let spent = Some((self.cost)(&reply.usage));
        let answer = Answer::Value(Json::of(&summary)?);
        let record = Record { index, label: label::SUMMARY, answer, spent };
        self.record(host, transcript, record).await
    }
}

fn cannot(why: &str) -> Ended {
    Failure::Error(format!("the conversation cannot be summed up: {why}").into()).into()
}
