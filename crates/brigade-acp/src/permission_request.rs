//! Pending approvals of the subtree as permission requests.

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_model::plain_text::PlainText;
use brigade_protocol::TaskInfo;
use brigade_protocol::task_info::ApprovalInfo;

use crate::output_updates::{render_title, text_content, tool_kind};

const ALLOW_ONCE: &str = "allow_once";
const ALLOW_ALWAYS: &str = "allow_always";
const REJECT_ONCE: &str = "reject_once";

/// A pending approval by its task and its call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApprovalKey {
    pub(crate) task: String,
    pub(crate) call: u32,
}

impl ApprovalKey {
    pub(crate) fn of(task: &TaskInfo, approval: &ApprovalInfo) -> Self {
        Self { task: task.address.clone(), call: approval.call }
    }
}

/// Builds the request for an approval. A call that is not here whole can only be rejected.
pub(crate) fn new_request(
    session: SessionId,
    task: &TaskInfo,
    approval: &ApprovalInfo,
) -> RequestPermissionRequest {
    let arguments = serde_json::from_str(&approval.arguments).ok();
    let asker = PlainText::line(&format!("{} asks", task.label())).into_string();
    let call = render_title(&approval.tool, arguments.as_ref());
    let fields = ToolCallUpdateFields::new()
        .title(format!("{asker}: {call}"))
        .kind(tool_kind(&approval.tool))
        .status(ToolCallStatus::Pending)
        .content(vec![text_content(render_call(task, approval))])
        .raw_input(arguments);
    let id = format!("approval-{}-{}", task.address, approval.call);
    let option = |id: &'static str, name: &str, kind| PermissionOption::new(id, name, kind);
    let mut options = Vec::new();
    if approval.digest.is_some() {
        options.push(option(ALLOW_ONCE, "Allow once", PermissionOptionKind::AllowOnce));
        let always = "Always allow this call in this workspace";
        options.push(option(ALLOW_ALWAYS, always, PermissionOptionKind::AllowAlways));
    }
    options.push(option(REJECT_ONCE, "Reject", PermissionOptionKind::RejectOnce));
    RequestPermissionRequest::new(session, ToolCallUpdate::new(id, fields), options)
}

/// Returns the verdict of a response. Only an option that was offered allows a call.
pub(crate) fn read_verdict(
    response: &RequestPermissionResponse,
    digest: Option<CallDigest>,
) -> ApprovalVerdict {
    let deny = |reason: &str| ApprovalVerdict::Deny { reason: reason.into() };
    match &response.outcome {
        RequestPermissionOutcome::Selected(selected) => match &*selected.option_id.0 {
            ALLOW_ONCE if digest.is_some() => ApprovalVerdict::AllowOnce,
            ALLOW_ALWAYS if digest.is_some() => ApprovalVerdict::AllowAlways { rule: None },
            REJECT_ONCE => deny(""),
            _ => deny("the editor chose an option that was not offered"),
        },
        _ => deny("the person in the editor dismissed the request"),
    }
}

/// Renders the whole call, with the rule that requires the approval.
fn render_call(task: &TaskInfo, approval: &ApprovalInfo) -> String {
    let rule = PlainText::line(&format!("{} asks about {}", approval.rule_source, approval.rule));
    match approval.card() {
        Some(card) => {
            let lines: Vec<String> = card.lines().iter().map(ToString::to_string).collect();
            let text = lines.join("\n");
            let fence = new_fence(&text);
            format!("{fence}\n{text}\n{fence}\n{rule}")
        }
        None => format!(
            "{}\nThe call is too long to be allowed here: `brigade approve {} {} --show`",
            PlainText::line(&approval.text),
            task.address,
            approval.call
        ),
    }
}

/// Returns a fence of Markdown that is longer than every row of backticks in a text.
fn new_fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    "`".repeat((longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::SelectedPermissionOutcome;
    use brigade_model::approval::ApprovalRequest;
    use brigade_model::ids::{CallIndex, TaskNo, Time};

    use super::*;

    fn approval() -> ApprovalInfo {
        approval_of("x")
    }

    fn approval_of(command: &str) -> ApprovalInfo {
        let arguments = serde_json::json!({ "command": command }).to_string();
        let request: ApprovalRequest = serde_json::from_value(serde_json::json!({
            "tool": "run_process", "arguments": { "text": arguments },
            "rule": "run_process", "rule_source": "the caller",
        }))
        .expect("a request");
        ApprovalInfo::of(TaskNo::FIRST, CallIndex(7), &request, Time(1))
    }

    fn select(option: &str) -> RequestPermissionResponse {
        let selected = SelectedPermissionOutcome::new(option.to_owned());
        RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected))
    }

    #[test]
    fn backticks_of_a_call_are_shown_as_they_are() {
        let task = serde_json::json!({
            "address": "agent:1", "kind": "agent", "session": "here", "description": "cook",
            "state": "waiting", "alive": true, "run": 1, "attempt": 1, "spawned_at": 0,
            "last_activity_at": 0,
        });
        let task: TaskInfo = serde_json::from_value(task).expect("a task");
        let fences = [("echo `date`", "```\n"), ("echo ``` ````; rm x", "`````\n")];
        for (command, fence) in fences {
            let shown = render_call(&task, &approval_of(command));
            assert!(shown.starts_with(fence), "{shown}");
            assert!(shown.contains(&format!("│ {command}\n{fence}")), "{shown}");
        }
    }

    #[test]
    fn only_an_offered_option_allows() {
        let digest = approval().digest;
        assert_eq!(read_verdict(&select(ALLOW_ONCE), digest), ApprovalVerdict::AllowOnce);
        let always = ApprovalVerdict::AllowAlways { rule: None };
        assert_eq!(read_verdict(&select(ALLOW_ALWAYS), digest), always);
        let dismissed = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
        let denied = [
            read_verdict(&select(REJECT_ONCE), digest),
            read_verdict(&select("yes"), digest),
            read_verdict(&select(ALLOW_ONCE), None),
            read_verdict(&select(ALLOW_ALWAYS), None),
            read_verdict(&dismissed, digest),
        ];
        for verdict in denied {
            assert!(matches!(verdict, ApprovalVerdict::Deny { .. }), "{verdict:?}");
        }
    }
}
