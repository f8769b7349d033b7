//! Calls that wait for leave, as forms for whoever sits at the client. No tool gives leave: a model
//! that drives this client is not the one to ask.

use brigade_model::approval::ApprovalVerdict;
use brigade_model::plain_text::PlainText;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema, InputRequest, InputResponses, PrimitiveSchemaDefinition, StringSchema,
};
use serde_json::Value;

use super::tool_call::McpCallContext;
use crate::request_context::TaskTarget;
use crate::requests::{ApproveRequest, ListApprovalsRequest, PendingApprovalItem};
use crate::task_info::TaskInfo;

/// The longest call that a form shows whole, and lets be allowed.
const FORM_LINES_MAX: usize = 40;
const FORM_BYTES_MAX: usize = 4_000;

/// The fields of the form. Clients show them by the order of their names, and the verdict comes first.
const DECISION_FIELD: &str = "decision";
const REASON_FIELD: &str = "reason";
const DECISION_ONCE: &str = "once";
const DECISION_ALWAYS: &str = "always";
const DECISION_DENY: &str = "deny";

/// What waits in a task of this client and in all below it.
pub(super) async fn pending_approvals(
    call: &McpCallContext,
    info: &TaskInfo,
) -> Result<Vec<PendingApprovalItem>, Refusal> {
    if !info.alive || !info.address.starts_with("agent:") {
        return Ok(Vec::new());
    }
    let session = Some(info.session.clone());
    let all = call.daemon.call(|| ListApprovalsRequest { session: session.clone() }).await?;
    let number = info.address.rsplit(':').next().unwrap_or_default();
    Ok(all.pending.into_iter().filter(|one| one.top_task == number).collect())
}

/// Calls have numbers of their own in each task. The digest binds the answer to what the form shows.
pub(super) fn form_key(pending: &PendingApprovalItem) -> String {
    let (address, call) = (pending.address.replace(':', "-"), pending.approval.call);
    match &pending.approval.digest {
        Some(digest) => format!("approval-{address}-{call}-{digest}"),
        None => format!("approval-{address}-{call}"),
    }
}

/// All of a call, if a form has room for it.
fn render_whole_call(pending: &PendingApprovalItem) -> Option<String> {
    let card = pending.approval.card()?;
    let text = card.to_string();
    (card.lines().len() <= FORM_LINES_MAX && text.len() <= FORM_BYTES_MAX).then_some(text)
}

/// A form with the choices, and room for a reason. A call that it cannot show whole can only be denied
/// in it.
pub(super) fn build_form(pending: &PendingApprovalItem) -> InputRequest {
    let choices = match render_whole_call(pending) {
        Some(_) => [DECISION_ONCE, DECISION_ALWAYS, DECISION_DENY].map(str::to_owned).to_vec(),
        None => vec![DECISION_DENY.to_owned()],
    };
    // Values without titles of their own: clients of older versions know no others.
    let verdict = EnumSchema::builder(choices)
        .title("Decision")
        .description("Allow this call once, allow such calls always, or deny it.");
    let verdict = PrimitiveSchemaDefinition::Enum(verdict.build());
    let reason = StringSchema::new()
        .title("Reason")
        .description("Optional: why you deny it. The agent reads this.");
    let reason = PrimitiveSchemaDefinition::String(reason);
    let fields = [(DECISION_FIELD.to_owned(), verdict), (REASON_FIELD.to_owned(), reason)];
    let schema = ElicitationSchema::new(fields.into());
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: render_form_message(pending),
        requested_schema: schema.with_required(vec![DECISION_FIELD.to_owned()]),
    };
    InputRequest::Elicitation(ElicitRequest::new(form))
}

/// `Baker asks for leave: bake`, the call behind our marks, and the rule that asks.
pub(super) fn render_form_message(pending: &PendingApprovalItem) -> String {
    let PendingApprovalItem { address, name, approval, .. } = pending;
    let who = PlainText::line(name.as_ref().unwrap_or(address));
    let why = PlainText::line(&format!("{} asks about {}", approval.rule_source, approval.rule));
    let call = match render_whole_call(pending) {
        Some(call) => call,
        None => {
            let call = match approval.card() {
                Some(card) => card.truncate_middle(FORM_LINES_MAX / 2).to_string(),
                None => PlainText::line(&approval.text).into_string(),
            };
            format!(
                "{call}\nThis is not all of it, so it can only be denied here. `brigade approve \
                 {address} {} --show` shows it whole, and how to allow it.",
                approval.call
            )
        }
    };
    format!("{who} asks for leave: {call}\n({why})")
}

/// Takes what the client says. What waits no longer is passed over.
pub(super) async fn apply_responses(
    call: &McpCallContext,
    info: &TaskInfo,
    responses: &InputResponses,
) -> Result<(), Refusal> {
    for pending in pending_approvals(call, info).await? {
        let Some(response) = responses.get(&form_key(&pending)) else { continue };
        let Some(verdict) = parse_verdict(response)? else { continue };
        let digest = pending.approval.digest;
        if render_whole_call(&pending).is_none() && !matches!(verdict, ApprovalVerdict::Deny { .. })
        {
            return Err(Refusal::invalid(format!(
                "the form does not show the whole call, which can only be denied in it; `brigade \
                 approve {} {} --show` shows it",
                pending.address, pending.approval.call
            )));
        }
        let target = TaskTarget { session: pending.session.clone(), task: pending.address.clone() };
        let number = Some(pending.approval.call);
        let approve = || {
            let (target, verdict) = (target.clone(), verdict.clone());
            ApproveRequest { target, call: number, digest, verdict }
        };
        match call.daemon.call(approve).await {
            Err(refusal)
                if matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Conflict) => {}
            said => said?,
        }
    }
    Ok(())
}

/// What was said; nothing, by a form that was put aside: the call goes on waiting.
fn parse_verdict(response: &Value) -> Result<Option<ApprovalVerdict>, Refusal> {
    let result: ElicitResult = serde_json::from_value(response.clone()).map_err(|error| {
        Refusal::invalid(format!(
            "that does not answer a form: {error}; action is missing or wrong"
        ))
    })?;
    let content = result.content.unwrap_or_default();
    let reason = content.get(REASON_FIELD).and_then(Value::as_str).unwrap_or_default();
    match (result.action, content.get(DECISION_FIELD).and_then(Value::as_str)) {
        (ElicitationAction::Accept, Some(DECISION_ONCE)) => Ok(Some(ApprovalVerdict::AllowOnce)),
        (ElicitationAction::Accept, Some(DECISION_ALWAYS)) => {
            Ok(Some(ApprovalVerdict::AllowAlways { rule: None }))
        }
        (ElicitationAction::Accept, Some(DECISION_DENY)) | (ElicitationAction::Decline, _) => {
            Ok(Some(ApprovalVerdict::Deny { reason: reason.into() }))
        }
        (ElicitationAction::Accept, other) => Err(Refusal::invalid(format!(
            "the field `{DECISION_FIELD}` is {}; it is one of {DECISION_ONCE}, {DECISION_ALWAYS} and {DECISION_DENY}",
            other.map_or_else(|| "missing".to_owned(), |other| format!("{other:?}"))
        ))),
        _ => Ok(None),
    }
}
