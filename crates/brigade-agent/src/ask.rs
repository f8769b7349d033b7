//! One call of the model: what is asked, and listening to the answer.

use std::sync::Arc;
use std::time::Duration;

use brigade_llm::conversation::Arguments;
use brigade_llm::{Content, ErrorKind, ModelError, Part, Reply, Request, TokenUsage, ToolCall};
use brigade_model::json::PAYLOAD_MAX;
use brigade_model::limits::Usage;
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use crate::agent::Agent;
use crate::host::{Cost, Host};
use crate::transcript::Transcript;

/// A reply shorter than this is of no use.
const OUTPUT_LEAST: u32 = 256;
/// How often whoever looks is told of new words.
const BETWEEN_WORDS: Duration = Duration::from_secs(1);
/// How many of the last words are shown.
const WORDS_SHOWN: usize = 400;

pub(crate) enum Heard {
    Reply(Reply),
    /// A message came that is to be heard first.
    Interrupted {
        /// Whether the model may have been asked already.
        asked: bool,
    },
}

impl Agent {
    /// What the next call costs at the most, and at the least.
    pub(crate) fn expected_cost(&self, transcript: &Transcript) -> Cost {
        let input = transcript.tokens().saturating_add(self.system.len() as u64 / 3);
        let with = |output| (self.cost)(&TokenUsage { input, output, ..TokenUsage::default() });
        let output = self.max_output;
        Cost { most: with(output.into()), least: with(output.min(OUTPUT_LEAST).into()) }
    }

    /// The reply is kept as short as what was granted.
    pub(crate) fn request(&self, transcript: &Transcript, granted: Usage) -> Arc<Request> {
        let input = self.expected_cost(transcript).most.tokens - u64::from(self.max_output);
        let left = granted.tokens.saturating_sub(input);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        Arc::new(Request {
            asker: self.name.clone(),
            model: self.model_name.clone(),
            system: self.system.clone(),
            messages: transcript.messages(),
            tools: self.tools.specs(),
            max_output: self.max_output.min(left.max(1)),
            temperature: self.temperature,
            effort: self.effort,
        })
    }

    pub(crate) async fn ask(
        &self,
        host: &dyn Host,
        transcript: &Transcript,
        request: Arc<Request>,
    ) -> Result<Heard, ModelError> {
        let mut parts = self.model.call(request);
        let mut interrupted = host.interrupted();
        let mut progress = self.progress(transcript, "thinking");
        progress.step += 1;
        host.progress(progress.clone());
        let (mut words, mut said) = (String::new(), Instant::now());
        // Said of a message that has been heard of in the meantime.
        if interrupted.as_mut().now_or_never().is_some() {
            return Ok(Heard::Interrupted { asked: false });
        }
        loop {
            let part = tokio::select! {
                biased;
                () = &mut interrupted => return Ok(Heard::Interrupted { asked: true }),
                part = parts.next() => part,
            };
            match part {
                Some(Ok(Part::Finished(reply))) => return Ok(Heard::Reply(*reply)),
                Some(Ok(Part::Text(text))) => words.push_str(&text),
                Some(Ok(Part::Restarted { .. })) => words.clear(),
                Some(Ok(Part::Reasoning(_) | Part::Call { .. })) => {}
                Some(Err(error)) => return Err(error),
                None => {
                    let cut = "the reply ended before it was whole";
                    return Err(ModelError::new(ErrorKind::Connection, cut));
                }
            }
            if !words.is_empty() && said.elapsed() >= BETWEEN_WORDS {
                said = Instant::now();
                let from = words.ceil_char_boundary(words.len().saturating_sub(WORDS_SHOWN));
                progress.words = words[from..].to_owned();
                host.progress(progress.clone());
            }
        }
    }

    /// A reply that is too large for the journal loses the arguments of its calls, which are then
    /// refused, and the middle of its text.
    pub(crate) fn within_bounds(&self, mut reply: Reply) -> Reply {
        const ROOM: usize = PAYLOAD_MAX / 8 * 7;
        let size =
            |reply: &Reply| serde_json::to_string(reply).map_or(usize::MAX, |text| text.len());
        if size(&reply) <= ROOM {
            return reply;
        }
        for content in &mut reply.message.content {
            if let Content::Call(ToolCall { arguments, .. }) = content
                && serde_json::to_string(arguments).is_ok_and(|text| text.len() > 64 * 1024)
            {
                let problem = "the arguments are far too long".into();
                *arguments = Arguments::Malformed { problem };
            }
        }
        let pieces = reply.message.content.len().max(1);
        for content in &mut reply.message.content {
            if size_of_content(content) > ROOM / pieces {
                shorten(content, ROOM / pieces / 2);
            }
        }
        reply
    }
}

fn size_of_content(content: &Content) -> usize {
    serde_json::to_string(content).map_or(usize::MAX, |text| text.len())
}

fn shorten(content: &mut Content, room: usize) {
    match content {
        Content::Text(text) => {
            let head = &text[..text.floor_char_boundary(room / 2)];
            *text = format!("{head}\n[cut: the rest of {} bytes was too long]", text.len()).into();
        }
        // What only the provider can read is worth nothing in part.
        Content::Reasoning(reasoning) => {
            reasoning.text = "".into();
            reasoning.opaque = serde_json::Value::Null;
        }
        Content::Call(call) => {
            let problem = "the call is far too long".into();
            call.arguments = Arguments::Malformed { problem };
            call.opaque = serde_json::Value::Null;
        }
    }
}
