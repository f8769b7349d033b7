//! What a refusal is in this protocol: one table.

use brigade_delegation::DelegationReply;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode};
use serde_json::json;

/// The code where there is no tool to speak for itself, and what a model can do about it.
fn error_code_and_hint(kind: RefusalKind) -> (ErrorCode, &'static str) {
    match kind {
        RefusalKind::NotFound => (
            ErrorCode::INVALID_PARAMS,
            "Call list_tasks to see the tasks; state \"all\" also shows those that have ended.",
        ),
        RefusalKind::Forbidden => {
            (ErrorCode::INVALID_PARAMS, "Only tasks of this workspace can be used from here.")
        }
        RefusalKind::Invalid => (ErrorCode::INVALID_PARAMS, "Correct the call and try again."),
        RefusalKind::Conflict => (
            ErrorCode::INVALID_REQUEST,
            "Use another name or key, or look at the task that has it.",
        ),
        RefusalKind::Limit => {
            (ErrorCode::INVALID_REQUEST, "Wait for running tasks to end, or stop one.")
        }
        RefusalKind::Ended => (
            ErrorCode::INVALID_REQUEST,
            "Call wait_tasks for its result, or read_output for its output.",
        ),
        RefusalKind::Unavailable => (
            ErrorCode::INTERNAL_ERROR,
            "Nothing was changed. Try again, or ask the user to run `brigade doctor`.",
        ),
        RefusalKind::Unknown => {
            (ErrorCode::INTERNAL_ERROR, "It may have happened: look before you repeat it.")
        }
        RefusalKind::Internal => (
            ErrorCode::INTERNAL_ERROR,
            "This is a defect of Brigade. `brigade doctor` may say more.",
        ),
    }
}

/// A refusal as the answer of a tool, which the model reads.
pub(super) fn refusal_result(refusal: &Refusal) -> CallToolResult {
    let (_, hint) = error_code_and_hint(refusal.kind);
    let mut reply = DelegationReply::new(refusal.to_string());
    reply.add_guidance([hint.to_owned()]);
    let (kind, message) = (refusal.kind, &refusal.message);
    reply.set_field("error", json!({ "kind": kind, "message": message, "hint": hint }));
    let mut result = CallToolResult::error(vec![ContentBlock::text(reply.text())]);
    result.structured_content = Some(reply.structured_content());
    result
}

/// A refusal as an error of the protocol, which the program reads.
pub(super) fn refusal_error(refusal: &Refusal) -> ErrorData {
    let (code, hint) = error_code_and_hint(refusal.kind);
    let data = json!({ "kind": refusal.kind, "hint": hint });
    ErrorData::new(code, refusal.to_string(), Some(data))
}
