//! Pending approvals as forms for the user of the client. No tool approves a call, since the model
//! of the client must not.

use brigade_model::approval::ApprovalVerdict;
use brigade_model::plain_text::PlainText;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, EnumSchema,
    InputRequest, InputResponses, PrimitiveSchemaDefinition, StringSchema,
};
use serde_json::Value;

use super::protocol_tasks::parse_elicit_result;
use super::tool_call::McpCallContext;
use brigade_protocol::RequestClient;
use brigade_protocol::TaskTarget;
use brigade_protocol::requests::{ApproveRequest, ListApprovalsRequest, PendingApprovalItem};
use brigade_protocol::task_info::TaskInfo;

/// The maximum size of a call that a form shows whole, and can allow.
const FORM_LINES_MAX: usize = 40;
const FORM_BYTES_MAX: usize = 4_000;

/// The fields of the form. Clients show them in the order of their names, so that the decision is
/// first.
const DECISION_FIELD: &str = "decision";
const REASON_FIELD: &str = "reason";
const DECISION_ONCE: &str = "once";
const DECISION_ALWAYS: &str = "always";
const DECISION_DENY: &str = "deny";

/// Returns the pending approvals of a task of this client and of its descendants.
pub(super) async fn pending_approvals<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> Result<Vec<PendingApprovalItem>, Refusal> {
    if !info.alive || !info.address.starts_with("agent:") {
        return Ok(Vec::new());
    }
    let session = Some(info.session.clone());
    let all =
        call.request_client.call(|| ListApprovalsRequest { session: session.clone() }).await?;
    let number = info.address.rsplit(':').next().unwrap_or_default();
    Ok(all.pending.into_iter().filter(|one| one.top_task == number).collect())
}

/// Returns the key of a form. Each task numbers its own calls, so that the key has the address. The
/// digest binds the response to the shown call.
pub(super) fn form_key(pending: &PendingApprovalItem) -> String {
    let address = pending.address.replace(':', "-");
    let call = pending.approval.call;
    match &pending.approval.digest {
        Some(digest) => format!("approval-{address}-{call}-{digest}"),
        None => format!("approval-{address}-{call}"),
    }
}

/// Renders the whole call, if it fits into a form.
fn render_whole_call(pending: &PendingApprovalItem) -> Option<String> {
    let card = pending.approval.card()?;
    let text = card.to_string();
    (card.lines().len() <= FORM_LINES_MAX && text.len() <= FORM_BYTES_MAX).then_some(text)
}

/// Builds a form with the choices and a reason. A call that does not fit can only be denied.
pub(super) fn build_form(pending: &PendingApprovalItem) -> InputRequest {
    let choices = match render_whole_call(pending) {
        Some(_) => [DECISION_ONCE, DECISION_ALWAYS, DECISION_DENY].map(str::to_owned).to_vec(),
        None => vec![DECISION_DENY.to_owned()],
    };
    // Older clients do not know choices with titles.
    let decision = EnumSchema::builder(choices)
        .title("Decision")
        .description("Allow this call once, allow such calls always, or deny it.");
    let decision = PrimitiveSchemaDefinition::Enum(decision.build());
    let reason = StringSchema::new()
        .title("Reason")
        .description("Optional: why you deny it. The agent reads this.");
    let reason = PrimitiveSchemaDefinition::String(reason);
    let fields = [(DECISION_FIELD.to_owned(), decision), (REASON_FIELD.to_owned(), reason)];
    let schema = ElicitationSchema::new(fields.into());
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: render_form_message(pending),
        requested_schema: schema.with_required(vec![DECISION_FIELD.to_owned()]),
    };
    InputRequest::Elicitation(ElicitRequest::new(form))
}

/// Renders `Baker asks for approval: bake`, with the call and the rule that requires the approval.
pub(super) fn render_form_message(pending: &PendingApprovalItem) -> String {
    let PendingApprovalItem { address, name, approval, .. } = pending;
    let label = PlainText::line(name.as_ref().unwrap_or(address));
    let rule = PlainText::line(&format!("{} asks about {}", approval.rule_source, approval.rule));
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
    format!("{label} asks for approval: {call}\n({rule})")
}

/// Applies the responses of the client. Ignores forms that are no longer open.
pub(super) async fn apply_responses<C: RequestClient>(
    call: &McpCallContext<C>,
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
        let approve = || ApproveRequest {
            target: target.clone(),
            call: number,
            digest,
            verdict: verdict.clone(),
        };
        match call.request_client.call(approve).await {
            Err(refusal)
                if matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Conflict) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Returns the verdict; `None` for a dismissed form, whose call stays pending.
fn parse_verdict(response: &Value) -> Result<Option<ApprovalVerdict>, Refusal> {
    let result = parse_elicit_result(response)?;
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
            "the field `{DECISION_FIELD}` is {}; give {DECISION_ONCE}, {DECISION_ALWAYS} or \
             {DECISION_DENY}",
            other.map_or_else(|| "missing".to_owned(), |other| format!("{other:?}"))
        ))),
        _ => Ok(None),
    }
}
