//! What a refusal is in this protocol: one table.

use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode};
use serde_json::json;

/// The code where there is no tool to speak for itself, and what a model can do about it.
fn entry(kind: RefusalKind) -> (ErrorCode, &'static str) {
    match kind {
        RefusalKind::NotFound => (
            ErrorCode::INVALID_PARAMS,
            "list_tasks shows what there is; state \"all\" also what is over",
        ),
        RefusalKind::Forbidden => {
            (ErrorCode::INVALID_PARAMS, "only tasks of this workspace can be used from here")
        }
        RefusalKind::Invalid => (ErrorCode::INVALID_PARAMS, "correct the argument and call again"),
        RefusalKind::Conflict => {
            (ErrorCode::INVALID_REQUEST, "use another name or key, or look at the task that has it")
        }
        RefusalKind::Limit => {
            (ErrorCode::INVALID_REQUEST, "wait for running tasks to end, or stop one")
        }
        RefusalKind::Ended => {
            (ErrorCode::INVALID_REQUEST, "wait_tasks returns its result, read_output its output")
        }
        RefusalKind::Unavailable => (
            ErrorCode::INTERNAL_ERROR,
            "nothing was changed; call again, or have `brigade doctor` run",
        ),
        RefusalKind::Unknown => {
            (ErrorCode::INTERNAL_ERROR, "it may have happened: look before you repeat it")
        }
        RefusalKind::Internal => (
            ErrorCode::INTERNAL_ERROR,
            "this is a defect of Brigade; `brigade doctor` may say more",
        ),
    }
}

/// A refusal as the answer of a tool, which the model reads.
pub(super) fn as_result(refusal: &Refusal) -> CallToolResult {
    let (_, hint) = entry(refusal.kind);
    let text = format!("{refusal}\n{hint}");
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let (kind, message) = (refusal.kind, &refusal.message);
    result.structured_content =
        Some(json!({ "error": { "kind": kind, "message": message, "hint": hint } }));
    result
}

/// A refusal as an error of the protocol, which the program reads.
pub(super) fn as_error(refusal: &Refusal) -> ErrorData {
    let (code, hint) = entry(refusal.kind);
    let data = json!({ "kind": refusal.kind, "hint": hint });
    ErrorData::new(code, refusal.to_string(), Some(data))
}
