//! A task that has ended, with its result.

use brigade_model::json::Json;
use brigade_model::result_text::{render_result, truncate_with_hint};
use serde_json::{Value, json};

use crate::agent_summary::TEXT_BYTES_MAX;
use crate::delegation_reply::DelegationReply;
use crate::output_tail::OutputTail;
use crate::task_summary::TaskSummary;

/// How much is shown of all results in one reply.
const RESULTS_BYTES_MAX: usize = 30_000;
/// The least that is shown of one among many.
const RESULT_BYTES_MIN: usize = 400;

/// A task that has ended, as far as its result is shown.
#[derive(Clone, Debug)]
pub struct EndedTask {
    pub summary: TaskSummary,
    pub result: EndedResult,
}

#[derive(Clone, Debug)]
pub enum EndedResult {
    /// The end of a command's output.
    Output(OutputTail),
    /// The result of an agent or a job, if it has one.
    Value(Option<Json>),
    /// Output that could not be read.
    Unreadable,
}

/// Returns how much each of so many results may show.
pub fn bytes_per_result(count: usize) -> usize {
    (RESULTS_BYTES_MAX / count.max(1)).clamp(RESULT_BYTES_MIN, TEXT_BYTES_MAX)
}

impl EndedTask {
    /// Its own failure is a result like any other.
    pub fn render(&self, share: usize) -> DelegationReply {
        let Self { summary, result } = self;
        let mut reply = DelegationReply::new(format!("{}.", summary.headline()));
        let mut fields = summary.fields();
        match result {
            EndedResult::Output(tail) => {
                let mut tail = tail.clone();
                tail.truncate(share);
                let text = tail.text();
                reply.add_body(if text.is_empty() { "(no output)" } else { text });
                reply.add_guidance(tail.guidance(&summary.address));
                tail.add_to(&mut fields);
            }
            EndedResult::Value(Some(result)) => {
                let read_on = format!("read_output, task {:?}", summary.address);
                let text =
                    truncate_with_hint(&render_result(result), share, "The result", &read_on);
                reply.add_body(&text);
                fields
                    .insert("result".into(), decode_if_short(result, share).unwrap_or(json!(text)));
            }
            EndedResult::Value(None) => {}
            EndedResult::Unreadable => reply.add_guidance([format!(
                "Its output could not be read; call read_output with task {:?}.",
                summary.address
            )]),
        }
        reply.add_fields(fields);
        reply
    }
}

fn decode_if_short(result: &Json, most: usize) -> Option<Value> {
    (result.as_str().len() <= most).then(|| result.decode().ok()).flatten()
}
