//! A task that has ended, with its result.

use brigade_model::json::Json;
use brigade_model::result_text::render_result;
use brigade_model::truncate::truncate_with_hint;
use serde_json::{Value, json};

use crate::agent_task_summary::TEXT_BYTES_MAX;
use crate::delegation_reply::DelegationReply;
use crate::output_tail::OutputTail;
use crate::task_summary::TaskSummary;

/// The maximum number of bytes that all results of one reply have together.
const RESULTS_BYTES_MAX: usize = 30_000;
/// The bytes that each result may have, however many there are.
const RESULT_BYTES_MIN: usize = 400;

/// A task that has ended, with its result for a reply.
#[derive(Clone, Debug)]
pub struct EndedTask {
    pub summary: TaskSummary,
    pub result: EndedResult,
}

#[derive(Clone, Debug)]
pub enum EndedResult {
    /// The end of a process's output.
    Output(OutputTail),
    /// The result of an agent or a job, if it has one.
    Value(Option<Json>),
    /// Output that could not be read.
    Unreadable,
}

/// Returns the maximum number of bytes of each result in a reply with `count` results.
pub fn bytes_per_result(count: usize) -> usize {
    (RESULTS_BYTES_MAX / count.max(1)).clamp(RESULT_BYTES_MIN, TEXT_BYTES_MAX)
}

impl EndedTask {
    /// Renders the state and the result, which has at most `max_bytes`. A failed task has a result
    /// too, and is not an error of the tool.
    pub fn render(&self, max_bytes: usize) -> DelegationReply {
        let Self { summary, result } = self;
        let mut reply = DelegationReply::new(format!("{}.", summary.headline()));
        let mut fields = summary.fields();
        match result {
            EndedResult::Output(tail) => {
                let mut tail = tail.clone();
                tail.truncate(max_bytes);
                let text = tail.text();
                reply.add_body(if text.is_empty() { "(no output)" } else { text });
                reply.add_guidance(tail.guidance(&summary.address));
                tail.add_to(&mut fields);
            }
            EndedResult::Value(Some(result)) => {
                let read_on = format!("read_output, task {:?}", summary.address);
                let text =
                    truncate_with_hint(&render_result(result), max_bytes, "The result", &read_on);
                reply.add_body(&text);
                let value = decode_if_short(result, max_bytes).unwrap_or(json!(text));
                fields.insert("result".into(), value);
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

fn decode_if_short(result: &Json, max_bytes: usize) -> Option<Value> {
    (result.as_str().len() <= max_bytes).then(|| result.decode().ok()).flatten()
}
