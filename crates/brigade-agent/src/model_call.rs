//! One model call: estimates its cost, builds the request, reads the streamed reply.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade_llm::conversation::ToolArguments;
use brigade_llm::{
    ChatMessage, ContentBlock, ModelError, ModelErrorKind, ModelReply, ModelRequest, ReplyPart,
    TokenUsage, ToolCall,
};
use brigade_model::json::{Json, PAYLOAD_MAX};
use brigade_model::limits::{CostEstimate, Usage};
use brigade_model::refusal::Refusal;
use brigade_model::truncate::{head_json_bytes, tail_bytes, truncate_with_hint};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use crate::agent::{Agent, LAST_TEXT_SHOWN};
use crate::host::{AgentOutput, AgentProgress, Host};
use crate::telemetry::{self, FailOnDrop};
use crate::transcript::{Transcript, estimate_tokens, message_bytes};

const REPLY_CUT_OFF: &str = "the reply ended before it was complete";

/// The shortest reply that is useful.
const OUTPUT_TOKENS_MIN: u32 = 256;
/// The interval of progress reports with new text.
const TEXT_PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The time before the first progress report. Shorter activities are not reported.
pub(crate) const PROGRESS_DELAY: Duration = Duration::from_millis(100);

/// The purpose of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPurpose {
    /// A step of the agent. Observers see the text as it is produced.
    Step,
    /// A summary of the conversation.
    Summary,
}

/// The result of a model call. The cost of a call without a reply is charged already.
pub(crate) enum ModelCallResult {
    Reply(ChargedReply),
    /// A message interrupted the call.
    Interrupted,
    Failed(ModelError),
}

/// The end of a reply's stream, with the estimated cost that is in no reply.
enum StreamResult {
    /// The whole reply, and the cost of earlier tries that were cut off.
    Reply {
        reply: ModelReply,
        lost_cost: Usage,
    },
    Interrupted {
        spent: Usage,
    },
    Failed {
        error: ModelError,
        spent: Usage,
    },
}

/// A reply of the model and its whole cost, including retries.
pub(crate) struct ChargedReply {
    pub(crate) reply: ModelReply,
    pub(crate) spent: Usage,
}

impl Agent {
    /// Estimates the highest and the lowest useful cost of the next call.
    pub(crate) fn estimate_cost(&self, transcript: &Transcript) -> CostEstimate {
        let cost = |output| self.cost_with_output(transcript, output);
        CostEstimate {
            max: cost(self.max_output),
            min: cost(self.max_output.min(OUTPUT_TOKENS_MIN)),
        }
    }

    /// Estimates the cost of a call whose reply has so many tokens.
    fn cost_with_output(&self, transcript: &Transcript, output: u32) -> Usage {
        let input = transcript.tokens().saturating_add(self.system_prompt.len() as u64 / 3);
        (self.cost)(&TokenUsage { input, output: output.into(), ..TokenUsage::default() })
    }

    /// Returns the longest reply, in tokens, that the granted budget covers.
    fn affordable_output(&self, transcript: &Transcript, granted: Usage) -> u32 {
        let is_covered = |output: u32| {
            let cost = self.cost_with_output(transcript, output);
            cost.tokens <= granted.tokens && cost.money <= granted.money
        };
        if is_covered(self.max_output) {
            return self.max_output;
        }
        // The cost grows with the output, so bisection finds the limit.
        let mut covered = 1;
        let mut too_much = self.max_output;
        while covered + 1 < too_much {
            let middle = covered.midpoint(too_much);
            if is_covered(middle) {
                covered = middle;
            } else {
                too_much = middle;
            }
        }
        covered
    }

    /// Builds a request. The granted budget bounds the length of the reply.
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

    /// Calls the model. Without a reply, the cost is charged here, which releases the reservation. The
    /// cost of a reply is charged with its record. A host without a lease refuses the call.
    pub(crate) async fn call_model(
        &self,
        host: &dyn Host,
        purpose: CallPurpose,
        progress: AgentProgress,
        request: Arc<ModelRequest>,
    ) -> Result<ModelCallResult, Refusal> {
        host.check_lease()?;
        let span = telemetry::chat_span(self, &request);
        let guard = FailOnDrop::new(&span);
        let streamed = self.stream_reply(host, purpose, progress, request);
        let streamed = streamed.instrument(span.clone()).await;
        guard.disarm();
        let (result, spent) = match streamed {
            StreamResult::Reply { reply, lost_cost } => {
                let spent = (self.cost)(&reply.usage).plus(lost_cost);
                telemetry::record_reply(&span, &reply, spent);
                host.report_reply(&reply.usage, spent);
                return Ok(ModelCallResult::Reply(ChargedReply { reply, spent }));
            }
            StreamResult::Interrupted { spent } => {
                telemetry::record_no_reply(&span, None);
                (ModelCallResult::Interrupted, spent)
            }
            StreamResult::Failed { error, spent } => {
                telemetry::record_no_reply(&span, Some(&error));
                (ModelCallResult::Failed(error), spent)
            }
        };
        drop(span);
        host.charge(spent).await?;
        Ok(result)
    }

    async fn stream_reply(
        &self,
        host: &dyn Host,
        purpose: CallPurpose,
        mut progress: AgentProgress,
        request: Arc<ModelRequest>,
    ) -> StreamResult {
        let report_output = |output| {
            if purpose == CallPurpose::Step {
                host.report_output(output);
            }
        };
        let bytes: u64 = request.messages.iter().map(message_bytes).sum();
        let input = estimate_tokens(bytes + request.system.len() as u64);
        let mut known = TokenUsage { input, ..TokenUsage::default() };
        let mut streamed = 0;
        // The usage of tries that were cut off, and the bytes that were streamed with them.
        let mut lost = TokenUsage::default();
        let mut lost_bytes = 0;
        let mut parts = self.model.call(request);
        let mut interrupted = host.wait_for_interrupt();
        let mut text_so_far = String::new();
        let mut reported_at = Instant::now();
        let interval = Duration::from(self.stop_policy.progress_interval);
        let mut report_after = interval;
        let mut slow = pin!(sleep(PROGRESS_DELAY));
        let mut is_reported = false;
        // The interrupt may be older than this call: its message may have been read already.
        if interrupted.as_mut().now_or_never().is_some() {
            return StreamResult::Interrupted { spent: Usage::NONE };
        }
        loop {
            known.output = estimate_tokens(streamed);
            host.report_spending((self.cost)(&known));
            let part = tokio::select! {
                biased;
                () = &mut interrupted => {
                    return StreamResult::Interrupted { spent: (self.cost)(&known) };
                }
                part = parts.next() => part,
                () = &mut slow, if !is_reported => {
                    is_reported = true;
                    host.report_progress(progress.clone());
                    continue;
                }
            };
            let cut_off = || ModelError::new(ModelErrorKind::Connection, REPLY_CUT_OFF);
            match part.unwrap_or_else(|| Err(cut_off())) {
                Ok(ReplyPart::Finished(reply)) => {
                    return StreamResult::Reply { reply: *reply, lost_cost: (self.cost)(&lost) };
                }
                Ok(ReplyPart::Text(text)) => {
                    streamed += text.len() as u64;
                    text_so_far.push_str(&text);
                    report_output(AgentOutput::Text(text.into()));
                    report_after = TEXT_PROGRESS_INTERVAL;
                }
                Ok(ReplyPart::Restarted { .. }) => {
                    self.count_retry();
                    report_output(AgentOutput::Restarted);
                    lost = known;
                    lost_bytes = streamed;
                    known.input += input;
                    text_so_far.clear();
                }
                Ok(ReplyPart::Reasoning(text)) => {
                    streamed += text.len() as u64;
                    report_output(AgentOutput::Reasoning(text.into()));
                }
                Ok(ReplyPart::Call { name }) => streamed += name.len() as u64,
                Ok(ReplyPart::Queued) => {}
                Err(error) => {
                    // A rejected request costs nothing. A reply that was cut off costs its streamed part.
                    let spent = if streamed > lost_bytes { known } else { lost };
                    return StreamResult::Failed { error, spent: (self.cost)(&spent) };
                }
            }
            // Every part counts as progress, also reasoning and queueing. Silence does not.
            if reported_at.elapsed() >= report_after {
                reported_at = Instant::now();
                report_after = interval;
                if !text_so_far.is_empty() {
                    progress.last_text = tail_bytes(&text_so_far, LAST_TEXT_SHOWN).to_owned();
                }
                host.report_progress(progress.clone());
            }
        }
    }
}

/// Fits a reply to the largest journal entry, and returns it with its JSON. A reply that is too large
/// loses long arguments, whose calls are then refused, and the end of long texts.
pub fn fit_to_journal(mut reply: ModelReply) -> Result<(ModelReply, Json), Refusal> {
    const REPLY_BYTES_MAX: usize = PAYLOAD_MAX / 8 * 7;
    if let Some(json) = Json::of(&reply).ok().filter(|json| json.as_str().len() <= REPLY_BYTES_MAX)
    {
        return Ok((reply, json));
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
    let json = Json::of(&reply)?;
    Ok((reply, json))
}

fn content_size(content: &ContentBlock) -> usize {
    serde_json::to_string(content).map_or(usize::MAX, |text| text.len())
}

fn truncate_content(content: &mut ContentBlock, bytes: usize) {
    match content {
        ContentBlock::Text(text) => {
            let shown = head_json_bytes(text, bytes).len();
            *text = truncate_with_hint(text, shown, "The text", "").into();
        }
        // Opaque data of the provider is useless in part.
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
