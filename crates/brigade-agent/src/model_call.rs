//! One call of the model: what is asked, and listening to the answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade_llm::conversation::ToolArguments;
use brigade_llm::{
    ChatMessage, ContentBlock, ModelError, ModelErrorKind, ModelReply, ModelRequest, ReplyPart,
    TokenUsage, ToolCall,
};
use brigade_model::json::{Json, PAYLOAD_MAX};
use brigade_model::limits::Usage;
use brigade_model::refusal::Refusal;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use crate::agent::{Agent, truncate_start};
use crate::host::{AgentProgress, CostEstimate, Host};
use crate::telemetry::{self, FailOnDrop};
use crate::transcript::{Transcript, estimate_tokens, message_bytes};

const REPLY_CUT_OFF: &str = "the reply ended before it was whole";

/// A reply shorter than this is of no use.
const OUTPUT_TOKENS_MIN: u32 = 256;
/// How often whoever looks is told of new words.
const TEXT_PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// What is over sooner than this, nobody is told of: who looks could not read it.
pub(crate) const PROGRESS_DELAY: Duration = Duration::from_millis(100);

/// How a call came out, and what of its cost is in no reply, as far as is known.
enum ModelCallResult {
    /// Tries before this one that were cut off are paid for too.
    Reply {
        reply: ModelReply,
        lost_cost: Usage,
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
pub(crate) struct ChargedReply {
    pub(crate) reply: ModelReply,
    pub(crate) spent: Usage,
}

impl Agent {
    /// What the next call costs at the most, and at the least.
    pub(crate) fn estimate_cost(&self, transcript: &Transcript) -> CostEstimate {
        let with = |output| self.cost_with_output(transcript, output);
        CostEstimate {
            max: with(self.max_output),
            min: with(self.max_output.min(OUTPUT_TOKENS_MIN)),
        }
    }

    /// What a call costs whose reply has so many tokens.
    fn cost_with_output(&self, transcript: &Transcript, output: u32) -> Usage {
        let input = transcript.tokens().saturating_add(self.system_prompt.len() as u64 / 3);
        (self.cost)(&TokenUsage { input, output: output.into(), ..TokenUsage::default() })
    }

    /// The longest reply that what was granted pays for.
    fn affordable_output(&self, transcript: &Transcript, granted: Usage) -> u32 {
        let paid = |output: &u32| {
            let cost = self.cost_with_output(transcript, *output);
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
    pub(crate) fn build_request(
        &self,
        transcript: &Transcript,
        messages: Vec<ChatMessage>,
        granted: Usage,
    ) -> ModelRequest {
        ModelRequest {
            agent: self.name.clone(),
            model: self.model_name.clone(),
            system: self.system_prompt.clone(),
            messages,
            tools: self.tools.specs(),
            max_output: self.affordable_output(transcript, granted),
            temperature: self.temperature,
            effort: self.effort,
        }
    }

    /// What the model replies; `None` when a message came that is to be heard first. What was set
    /// aside is settled then, and after an error; a reply is recorded with what it cost.
    pub(crate) async fn call_model(
        &self,
        host: &dyn Host,
        progress: AgentProgress,
        request: Arc<ModelRequest>,
    ) -> Result<Result<Option<ChargedReply>, ModelError>, Refusal> {
        let span = telemetry::chat_span(self, &request);
        let cut_off = FailOnDrop::new(&span);
        let asked = self.stream_reply(host, progress, request).instrument(span.clone()).await;
        cut_off.disarm();
        let (heard, spent) = match asked {
            ModelCallResult::Reply { reply, lost_cost: lost } => {
                let spent = (self.cost)(&reply.usage).plus(lost);
                telemetry::record_reply(&span, &reply, spent);
                host.report_reply(&reply.usage, spent);
                return Ok(Ok(Some(ChargedReply { reply, spent })));
            }
            ModelCallResult::Interrupted { spent } => (Ok(None), spent),
            ModelCallResult::Failed { error, spent } => (Err(error), spent),
        };
        telemetry::record_no_reply(&span, heard.as_ref().err());
        drop(span);
        host.charge(spent).await?;
        Ok(heard)
    }

    async fn stream_reply(
        &self,
        host: &dyn Host,
        mut progress: AgentProgress,
        request: Arc<ModelRequest>,
    ) -> ModelCallResult {
        let bytes: u64 = request.messages.iter().map(message_bytes).sum();
        let input = estimate_tokens(bytes + request.system.len() as u64);
        let mut known = TokenUsage { input, ..TokenUsage::default() };
        let mut streamed = 0;
        // What tries cost that were cut off, and how much had come with them.
        let (mut lost, mut lost_bytes) = (TokenUsage::default(), 0);
        let mut parts = self.model.call(request);
        let mut interrupted = host.wait_for_interrupt();
        let (mut words, mut said) = (String::new(), Instant::now());
        let beat = Duration::from(self.stop_policy.progress_interval);
        let mut tell_after = beat;
        let mut slow = pin!(sleep(PROGRESS_DELAY));
        let mut is_told = false;
        // Said of a message that has been heard of in the meantime.
        if interrupted.as_mut().now_or_never().is_some() {
            return ModelCallResult::Interrupted { spent: Usage::NONE };
        }
        loop {
            known.output = estimate_tokens(streamed);
            host.report_spending((self.cost)(&known));
            let part = tokio::select! {
                biased;
                () = &mut interrupted => {
                    return ModelCallResult::Interrupted { spent: (self.cost)(&known) };
                }
                part = parts.next() => part,
                () = &mut slow, if !is_told => {
                    is_told = true;
                    host.report_progress(progress.clone());
                    continue;
                }
            };
            let cut = || ModelError::new(ModelErrorKind::Connection, REPLY_CUT_OFF);
            match part.unwrap_or_else(|| Err(cut())) {
                Ok(ReplyPart::Finished(reply)) => {
                    return ModelCallResult::Reply { reply: *reply, lost_cost: (self.cost)(&lost) };
                }
                Ok(ReplyPart::Text(text)) => {
                    streamed += text.len() as u64;
                    words.push_str(&text);
                    tell_after = TEXT_PROGRESS_INTERVAL;
                }
                Ok(ReplyPart::Restarted { .. }) => {
                    self.count_retry();
                    (lost, lost_bytes) = (known, streamed);
                    known.input += input;
                    words.clear();
                }
                Ok(ReplyPart::Reasoning(text)) => streamed += text.len() as u64,
                Ok(ReplyPart::Call { name }) => streamed += name.len() as u64,
                Ok(ReplyPart::Queued) => {}
                Err(error) => {
                    // Who is turned away pays nothing; who is cut off pays for what has come.
                    let spent = if streamed > lost_bytes { known } else { lost };
                    return ModelCallResult::Failed { error, spent: (self.cost)(&spent) };
                }
            }
            // A model that thinks or waits for its turn is at it; one that says nothing is not known to be.
            if said.elapsed() >= tell_after {
                (said, tell_after) = (Instant::now(), beat);
                if !words.is_empty() {
                    progress.last_text = truncate_start(&words);
                }
                host.report_progress(progress.clone());
            }
        }
    }

    /// A reply that is too large for the journal loses the arguments of its calls, which are then
    /// refused, and the middle of its text. With it, how it is written down.
    pub(crate) fn fit_to_journal(
        &self,
        mut reply: ModelReply,
    ) -> Result<(ModelReply, Json), Refusal> {
        const REPLY_BYTES_MAX: usize = PAYLOAD_MAX / 8 * 7;
        if let Some(written) =
            Json::of(&reply).ok().filter(|text| text.as_str().len() <= REPLY_BYTES_MAX)
        {
            return Ok((reply, written));
        }
        for content in &mut reply.message.content {
            if let ContentBlock::Call(ToolCall { arguments, .. }) = content
                && serde_json::to_string(arguments).is_ok_and(|text| text.len() > 64 * 1024)
            {
                let problem = "the arguments are far too long".into();
                *arguments = ToolArguments::Malformed { problem };
            }
        }
        let pieces = reply.message.content.len().max(1);
        for content in &mut reply.message.content {
            if content_size(content) > REPLY_BYTES_MAX / pieces {
                truncate_content(content, REPLY_BYTES_MAX / pieces / 2);
            }
        }
        let written = Json::of(&reply)?;
        Ok((reply, written))
    }
}

fn content_size(content: &ContentBlock) -> usize {
    serde_json::to_string(content).map_or(usize::MAX, |text| text.len())
}

fn truncate_content(content: &mut ContentBlock, room: usize) {
    match content {
        ContentBlock::Text(text) => {
            let head = &text[..text.floor_char_boundary(room / 2)];
            *text = format!("{head}\n[cut: the rest of {} bytes was too long]", text.len()).into();
        }
        // What only the provider can read is worth nothing in part.
        ContentBlock::Reasoning(reasoning) => {
            reasoning.text = "".into();
            reasoning.opaque = serde_json::Value::Null;
        }
        ContentBlock::Call(call) => {
            let problem = "the call is far too long".into();
            call.arguments = ToolArguments::Malformed { problem };
            call.opaque = serde_json::Value::Null;
        }
    }
}
