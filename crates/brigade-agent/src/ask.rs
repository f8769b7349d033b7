//! One call of the model: what is asked, and listening to the answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade_llm::conversation::Arguments;
use brigade_llm::{
    Content, ErrorKind, Message, ModelError, Part, Reply, Request, TokenUsage, ToolCall,
};
use brigade_model::json::{Json, PAYLOAD_MAX};
use brigade_model::limits::Usage;
use brigade_model::refusal::Refusal;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use crate::agent::{Agent, ending};
use crate::host::{Cost, Host, Progress};
use crate::telemetry::{self, UnlessOver};
use crate::transcript::{Transcript, bytes_of, tokens_of};

const CUT: &str = "the reply ended before it was whole";

/// A reply shorter than this is of no use.
const OUTPUT_LEAST: u32 = 256;
/// How often whoever looks is told of new words.
const BETWEEN_WORDS: Duration = Duration::from_secs(1);
/// What is over sooner than this, nobody is told of: who looks could not read it.
pub(crate) const WORTH_TELLING: Duration = Duration::from_millis(100);

/// How a call came out, and what of its cost is in no reply, as far as is known.
enum Heard {
    /// Tries before this one that were cut off are paid for too.
    Reply {
        reply: Reply,
        lost: Usage,
    },
    /// A message came that is to be heard first.
    Interrupted {
        spent: Usage,
    },
    Failed {
        error: ModelError,
        spent: Usage,
    },
}

/// What a model said, and what that cost with all that it took.
pub(crate) struct Paid {
    pub(crate) reply: Reply,
    pub(crate) spent: Usage,
}

impl Agent {
    /// What the next call costs at the most, and at the least.
    pub(crate) fn expected_cost(&self, transcript: &Transcript) -> Cost {
        let with = |output| self.cost_with(transcript, output);
        Cost { most: with(self.max_output), least: with(self.max_output.min(OUTPUT_LEAST)) }
    }

    /// What a call costs whose reply has so many tokens.
    fn cost_with(&self, transcript: &Transcript, output: u32) -> Usage {
        let input = transcript.tokens().saturating_add(self.system.len() as u64 / 3);
        (self.cost)(&TokenUsage { input, output: output.into(), ..TokenUsage::default() })
    }

    /// The longest reply that what was granted pays for.
    fn longest_reply(&self, transcript: &Transcript, granted: Usage) -> u32 {
        let paid = |output: &u32| {
            let cost = self.cost_with(transcript, *output);
            cost.tokens <= granted.tokens && cost.money <= granted.money
        };
        if paid(&self.max_output) {
            return self.max_output;
        }
        // What is paid for lies below what is not: the border is found by halving.
        let (mut enough, mut too_much) = (1, self.max_output);
        while enough + 1 < too_much {
            let middle = enough.midpoint(too_much);
            if paid(&middle) {
                enough = middle;
            } else {
                too_much = middle;
            }
        }
        enough
    }

    /// These messages as a request. The reply is kept as short as what was granted.
    pub(crate) fn request(
        &self,
        transcript: &Transcript,
        messages: Vec<Message>,
        granted: Usage,
    ) -> Request {
        Request {
            asker: self.name.clone(),
            model: self.model_name.clone(),
            system: self.system.clone(),
            messages,
            tools: self.tools.specs(),
            max_output: self.longest_reply(transcript, granted),
            temperature: self.temperature,
            effort: self.effort,
        }
    }

    /// What the model replies; `None` when a message came that is to be heard first. What was set
    /// aside is settled then, and after an error; a reply is recorded with what it cost.
    pub(crate) async fn listen(
        &self,
        host: &dyn Host,
        progress: Progress,
        request: Arc<Request>,
    ) -> Result<Result<Option<Paid>, ModelError>, Refusal> {
        let span = telemetry::chat(self, &request);
        let cut_off = UnlessOver::of(&span);
        let asked = self.ask(host, progress, request).instrument(span.clone()).await;
        cut_off.over();
        let (heard, spent) = match asked {
            Heard::Reply { reply, lost } => {
                let spent = (self.cost)(&reply.usage).plus(lost);
                telemetry::replied(&span, &reply, spent);
                host.replied(&reply.usage, spent);
                return Ok(Ok(Some(Paid { reply, spent })));
            }
            Heard::Interrupted { spent } => (Ok(None), spent),
            Heard::Failed { error, spent } => (Err(error), spent),
        };
        telemetry::no_reply(&span, heard.as_ref().err());
        drop(span);
        host.charge(spent).await?;
        Ok(heard)
    }

    async fn ask(&self, host: &dyn Host, mut progress: Progress, request: Arc<Request>) -> Heard {
        let bytes: u64 = request.messages.iter().map(bytes_of).sum();
        let input = tokens_of(bytes + request.system.len() as u64);
        let mut known = TokenUsage { input, ..TokenUsage::default() };
        let mut streamed = 0;
        // What tries cost that were cut off, and how much had come with them.
        let (mut lost, mut lost_bytes) = (TokenUsage::default(), 0);
        let mut parts = self.model.call(request);
        let mut interrupted = host.interrupted();
        let (mut words, mut said) = (String::new(), Instant::now());
        let beat = Duration::from(self.policy.beat);
        let mut tell_after = beat;
        let mut slow = pin!(sleep(WORTH_TELLING));
        let mut is_told = false;
        // Said of a message that has been heard of in the meantime.
        if interrupted.as_mut().now_or_never().is_some() {
            return Heard::Interrupted { spent: Usage::NONE };
        }
        loop {
            known.output = tokens_of(streamed);
            host.spending((self.cost)(&known));
            let part = tokio::select! {
                biased;
                () = &mut interrupted => {
                    return Heard::Interrupted { spent: (self.cost)(&known) };
                }
                part = parts.next() => part,
                () = &mut slow, if !is_told => {
                    is_told = true;
                    host.progress(progress.clone());
                    continue;
                }
            };
            let cut = || ModelError::new(ErrorKind::Connection, CUT);
            match part.unwrap_or_else(|| Err(cut())) {
                Ok(Part::Finished(reply)) => {
                    return Heard::Reply { reply: *reply, lost: (self.cost)(&lost) };
                }
                Ok(Part::Text(text)) => {
                    streamed += text.len() as u64;
                    words.push_str(&text);
                    tell_after = BETWEEN_WORDS;
                }
                Ok(Part::Restarted { .. }) => {
                    self.count_retry();
                    (lost, lost_bytes) = (known, streamed);
                    known.input += input;
                    words.clear();
                }
                Ok(Part::Reasoning(text)) => streamed += text.len() as u64,
                Ok(Part::Call { name }) => streamed += name.len() as u64,
                Ok(Part::InLine) => {}
                Err(error) => {
                    // Who is turned away pays nothing; who is cut off pays for what has come.
                    let spent = if streamed > lost_bytes { known } else { lost };
                    return Heard::Failed { error, spent: (self.cost)(&spent) };
                }
            }
            // A model that thinks or waits for its turn is at it; one that says nothing is not known to be.
            if said.elapsed() >= tell_after {
                (said, tell_after) = (Instant::now(), beat);
                if !words.is_empty() {
                    progress.words = ending(&words);
                }
                host.progress(progress.clone());
            }
        }
    }

    /// A reply that is too large for the journal loses the arguments of its calls, which are then
    /// refused, and the middle of its text. With it, how it is written down.
    pub(crate) fn within_bounds(&self, mut reply: Reply) -> Result<(Reply, Json), Refusal> {
        const ROOM: usize = PAYLOAD_MAX / 8 * 7;
        if let Some(written) = Json::of(&reply).ok().filter(|text| text.as_str().len() <= ROOM) {
            return Ok((reply, written));
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
        let written = Json::of(&reply)?;
        Ok((reply, written))
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
