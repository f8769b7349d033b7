//! Maps refusals to errors of the protocol, in one table.

use brigade_delegation::DelegationReply;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode};
use serde_json::json;

/// The code of a protocol error, and a hint for the model.
struct ErrorEntry {
    code: ErrorCode,
    hint: &'static str,
}

fn error_entry(kind: RefusalKind) -> ErrorEntry {
    match kind {
        RefusalKind::NotFound => ErrorEntry {
            code: ErrorCode::INVALID_PARAMS,
            hint: "Call list_tasks to see the tasks; state \"all\" also shows those that have ended.",
        },
        RefusalKind::Forbidden => ErrorEntry {
            code: ErrorCode::INVALID_PARAMS,
            hint: "Only tasks of this workspace can be used from here.",
        },
        RefusalKind::Invalid => {
            ErrorEntry { code: ErrorCode::INVALID_PARAMS, hint: "Correct the call and try again." }
        }
        RefusalKind::Conflict => ErrorEntry {
            code: ErrorCode::INVALID_REQUEST,
            hint: "Use another name or key, or look at the task that has it.",
        },
        RefusalKind::Limit => ErrorEntry {
            code: ErrorCode::INVALID_REQUEST,
            hint: "Wait for running tasks to end, or stop one.",
        },
        RefusalKind::Ended => ErrorEntry {
            code: ErrorCode::INVALID_REQUEST,
            hint: "Call wait_tasks for its result, or read_output for its output.",
        },
        RefusalKind::Unavailable => ErrorEntry {
            code: ErrorCode::INTERNAL_ERROR,
            hint: "Nothing was changed. Try again, or ask the user to run `brigade doctor`.",
        },
        RefusalKind::Unknown => ErrorEntry {
            code: ErrorCode::INTERNAL_ERROR,
            hint: "It may have happened: look before you repeat it.",
        },
        RefusalKind::Internal => ErrorEntry {
            code: ErrorCode::INTERNAL_ERROR,
            hint: "This is a defect of Brigade. `brigade doctor` may say more.",
        },
    }
}

/// Returns a refusal as a tool result, which the model reads.
pub(super) fn refusal_result(refusal: &Refusal) -> CallToolResult {
    let hint = error_entry(refusal.kind).hint;
    let mut reply = DelegationReply::new(refusal.to_string());
    reply.add_guidance([hint.to_owned()]);
    let error = json!({ "kind": refusal.kind, "message": refusal.message, "hint": hint });
    reply.set_field("error", error);
    let mut result = CallToolResult::error(vec![ContentBlock::text(reply.text())]);
    result.structured_content = Some(reply.structured_content());
    result
}

/// Returns a refusal as a protocol error, which the client program reads.
pub(super) fn refusal_error(refusal: &Refusal) -> ErrorData {
    let ErrorEntry { code, hint } = error_entry(refusal.kind);
    let data = json!({ "kind": refusal.kind, "hint": hint });
    ErrorData::new(code, refusal.to_string(), Some(data))
}
