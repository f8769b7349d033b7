//! The answers to permission requests.
//!
//! An option is chosen by its kind. An option that allows later calls as well is never chosen:
//! Brigade's rules would not see those calls.

use agent_client_protocol_schema::v1::{
    PermissionOption as AcpOption, PermissionOptionKind as AcpOptionKind, RequestId,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adapter::PermissionDecision;
use crate::turn_events::{PermissionOption, PermissionOptionKind};

use super::messages::{ID_MAX, render_result};

/// A request that waits for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenPermission {
    request: RequestId,
    answers: PermissionAnswers,
}

/// The options that Brigade answers with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PermissionAnswers {
    /// The option that allows this call only.
    allow: Option<String>,
    reject: Option<String>,
}

impl PermissionAnswers {
    pub(super) fn choose(options: &[AcpOption]) -> Self {
        let find = |kind: AcpOptionKind| {
            let mut found = options.iter().filter(|option| option.kind == kind);
            let found = found.find(|option| option.option_id.0.len() <= ID_MAX);
            found.map(|option| option.option_id.to_string())
        };
        let reject = find(AcpOptionKind::RejectOnce);
        let reject = reject.or_else(|| find(AcpOptionKind::RejectAlways));
        Self { allow: find(AcpOptionKind::AllowOnce), reject }
    }

    /// Checks that a call can be allowed without allowing others.
    pub(super) fn can_allow(&self) -> bool {
        self.allow.is_some()
    }
}

impl OpenPermission {
    pub(super) fn new(request: RequestId, answers: PermissionAnswers) -> Self {
        Self { request, answers }
    }

    /// Returns the id by which the request is known outside of the conversation. A number and a
    /// text with the same digits differ.
    pub(super) fn key(&self) -> String {
        request_key(&self.request)
    }

    /// Returns the line of the answer. Without an option that rejects, the answer is that the
    /// question was cancelled.
    pub(super) fn render_answer(&self, decision: PermissionDecision<'_>) -> Vec<u8> {
        let option = match decision {
            PermissionDecision::Allow { .. } => &self.answers.allow,
            PermissionDecision::Deny { .. } => &self.answers.reject,
        };
        let outcome = match option {
            Some(id) => {
                RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id.clone()))
            }
            None => RequestPermissionOutcome::Cancelled,
        };
        render_result(&self.request, RequestPermissionResponse::new(outcome))
    }
}

/// Reads a request. Options of a kind that this version does not know are omitted.
pub(super) fn read_permission_request(params: &Value) -> Option<RequestPermissionRequest> {
    let mut params = params.clone();
    let options = params.get_mut("options").and_then(Value::as_array_mut)?;
    options.retain(|option| AcpOption::deserialize(option).is_ok());
    RequestPermissionRequest::deserialize(params).ok()
}

pub(super) fn request_key(id: &RequestId) -> String {
    match id {
        RequestId::Str(text) => format!("\"{text}\""),
        other => other.to_string(),
    }
}

/// Returns the options for the event. Kinds that Brigade does not know are omitted.
pub(super) fn translate_options(options: &[AcpOption]) -> Vec<PermissionOption> {
    let translate = |option: &AcpOption| {
        let kind = match option.kind {
            AcpOptionKind::AllowOnce => PermissionOptionKind::AllowOnce,
            AcpOptionKind::AllowAlways => PermissionOptionKind::AllowAlways,
            AcpOptionKind::RejectOnce => PermissionOptionKind::RejectOnce,
            AcpOptionKind::RejectAlways => PermissionOptionKind::RejectAlways,
            _ => return None,
        };
        let id = option.option_id.to_string();
        Some(PermissionOption { id, name: option.name.clone(), kind })
    };
    options.iter().filter_map(translate).collect()
}
