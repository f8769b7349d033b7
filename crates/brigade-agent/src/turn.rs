//! The calls of one message: permitted or refused, carried out side by side, answered.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brigade_llm::conversation::Arguments;
use brigade_llm::{ToolCall, ToolResult};
use brigade_model::call::Answer;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use tokio::time::sleep;

use crate::agent::{Agent, Ended};
use crate::ask::WORTH_TELLING;
use crate::host::{Host, Record};
use crate::leave::Leave;
use crate::tool::{Call, Effect, Outcome, Tool, ToolError};
use crate::transcript::{Transcript, label};

/// The most that a model is told of one call: the beginning and the end of more than that.
pub(crate) const RESULT_MAX: usize = 64 * 1024;

/// How many calls of one message run side by side.
const AT_ONCE: usize = 64;

/// What became of a call.
enum Done {
    Result {
        result: ToolResult,
        owed: Option<Record>,
    },
    Parked {
        effect: Option<Arc<Answer>>,
    },
    /// It asks for leave.
    Asked,
}

impl Agent {
    /// Carries out what is due: all at once, but for tools that want to be alone.
    pub(crate) async fn carry_out(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Ended> {
        let due = transcript.due();
        let names: Vec<&str> = due.iter().map(|(call, _)| &*call.name).collect();
        let names = names.join(", ");
        let alone =
            |call: &ToolCall| self.tools.get(&call.name).is_some_and(|tool| tool.hints().alone);
        let (apart, together): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(call, _)| alone(call));
        let left = AtomicUsize::new(together.len() + apart.len());
        let carry_out = |(said, call)| self.carry_out_one((host, &left), said, call);
        let calls = together.into_iter().map(carry_out);
        let apart = apart.into_iter().map(carry_out);
        let together = stream::iter(calls).buffer_unordered(AT_ONCE);
        let mut done = together.chain(stream::iter(apart).buffered(1));
        let mut slow = pin!(sleep(WORTH_TELLING));
        let mut is_told = false;
        loop {
            let (call, done) = tokio::select! {
                biased;
                done = done.next() => match done {
                    Some(done) => done?,
                    None => break,
                },
                () = &mut slow, if !is_told => {
                    is_told = true;
                    host.progress(self.progress(transcript, &*names));
                    continue;
                }
            };
            match done {
                Done::Asked => transcript.parked(call.place.approval(), None),
                Done::Parked { effect } => transcript.parked(call.place.parked(), effect),
                Done::Result { result, owed } => {
                    transcript.answered(call.place.result(), result);
                    transcript.owed.extend(owed);
                }
            }
        }
        if !is_told && transcript.open() > 0 {
            host.progress(self.progress(transcript, names));
        }
        Ok(())
    }

    /// Carries out one call as far as it goes now, and writes down what came of it: the last one of
    /// a message only with what is said next, unless it could not be carried out again.
    async fn carry_out_one(
        &self,
        (host, left): (&dyn Host, &AtomicUsize),
        said: ToolCall,
        call: Call,
    ) -> Result<(Call, Done), Refusal> {
        let outcome = match self.permitted(&said, &call) {
            Ok((tool, Leave::Given)) => self.perform(host, tool, &call).await?,
            Ok((_, Leave::Asked(asked))) => match host.park(call.place.approval(), asked).await {
                Ok(()) => {
                    left.fetch_sub(1, Ordering::Relaxed);
                    return Ok((call, Done::Asked));
                }
                Err(refusal) => Err(refusal.into()),
            },
            Err(error) => Err(error),
        };
        let told = match outcome {
            Ok(Outcome::Text(text)) => Ok(text),
            // Its slot has the first answer, which a second would contradict.
            Ok(Outcome::Park { .. }) if call.told.is_some() => {
                Err(ToolError::new("the tool wants to wait a second time, which no call can"))
            }
            Ok(Outcome::Park { asked, effect }) => {
                match host.park(call.place.parked(), asked).await {
                    Ok(()) => {
                        left.fetch_sub(1, Ordering::Relaxed);
                        return Ok((call, Done::Parked { effect }));
                    }
                    Err(refusal) => Err(refusal.into()),
                }
            }
            Err(error) => Err(error),
        };
        let failed = told.is_err();
        let text = told.unwrap_or_else(|ToolError(text)| text);
        let text = shortened(&text, RESULT_MAX).into();
        let result = ToolResult { id: said.id, name: said.name, text, failed };
        let answer = Arc::new(Answer::Value(Json::of(&result)?));
        let index = call.place.result();
        let record = Record { index, label: label::RESULT, answer, spent: None };
        let is_last = left.fetch_sub(1, Ordering::Relaxed) == 1;
        let tool = self.tools.get(&result.name);
        let must_not_repeat = tool.is_some_and(|tool| tool.hints().effect == Effect::Once);
        if is_last && !must_not_repeat {
            return Ok((call, Done::Result { result, owed: Some(record) }));
        }
        host.record(record).await?;
        Ok((call, Done::Result { result, owed: None }))
    }

    /// The tool that is meant, if the agent has it and may use it like this.
    fn permitted(
        &self,
        said: &ToolCall,
        call: &Call,
    ) -> Result<(&Arc<dyn Tool>, Leave), ToolError> {
        let Some(tool) = self.tools.get(&said.name) else {
            let names = self.tools.names().collect::<Vec<_>>().join(", ");
            let name: String = said.name.chars().take(100).collect();
            return Err(ToolError::new(format!("there is no tool {name:?}; you have: {names}")));
        };
        if let Arguments::Malformed { problem } = &said.arguments {
            return Err(ToolError::new(format!("the arguments are malformed: {problem}")));
        }
        if !matches!(call.arguments, Value::Object(_)) {
            return Err(ToolError::new("the arguments must be a JSON object"));
        }
        // What has begun was permitted, and what it did is told in any case.
        let begun = call.effect.is_some() || call.told.is_some();
        let leave = if begun { Leave::Given } else { self.leave(tool, said, call)? };
        Ok((tool, leave))
    }

    async fn perform(
        &self,
        host: &dyn Host,
        tool: &Arc<dyn Tool>,
        call: &Call,
    ) -> Result<Result<Outcome, ToolError>, Refusal> {
        // What was told came of a call that had begun, and had got as far as waiting for it.
        if tool.hints().effect == Effect::Once && call.told.is_none() {
            if call.effect.is_some() {
                return Ok(Err(ToolError::new(
                    "the call was interrupted, and its effect is unknown: it may have happened, in \
                     whole or in part. Look before you try again.",
                )));
            }
            let (index, answer) = (call.place.effect(), Arc::new(Answer::Value(Json::null())));
            host.record(Record { index, label: label::BEGUN, answer, spent: None }).await?;
        }
        let performed = AssertUnwindSafe(async { tool.call(call.clone()).await });
        Ok(performed.catch_unwind().await.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Err(ToolError::new(format!("the tool panicked: {}", text.unwrap_or("no message"))))
        }))
    }
}

/// The beginning and the end of a text that is too long, with what is left out between them.
pub(crate) fn shortened(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(bytes / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - bytes / 2)..];
    let cut = text.len() - head.len() - tail.len();
    format!("{head}\n[cut: {cut} of {} bytes are left out here]\n{tail}", text.len())
}
