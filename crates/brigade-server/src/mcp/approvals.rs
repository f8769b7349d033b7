//! Calls that wait for leave, as forms for whoever sits at the client. No tool gives leave: a model
//! that drives this client is not the one to ask.

use brigade_model::approval::Verdict;
use brigade_model::plain_text::PlainText;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema, InputRequest, InputResponses, PrimitiveSchemaDefinition, StringSchema,
};
use serde_json::Value;

use super::tool::Call;
use crate::desk::Target;
use crate::info::TaskInfo;
use crate::requests::{Approvals, Approve, PendingInfo};

/// The longest call that a form shows whole, and lets be allowed.
const FORM_LINES: usize = 40;
const FORM_BYTES: usize = 4_000;

/// The fields of the form. Clients show them by the order of their names, and the verdict comes first.
const VERDICT: &str = "decision";
const REASON: &str = "reason";
const ONCE: &str = "once";
const ALWAYS: &str = "always";
const DENY: &str = "deny";

/// What waits in a task of this client and in all below it.
pub(super) async fn pending(call: &Call, info: &TaskInfo) -> Result<Vec<PendingInfo>, Refusal> {
    if !info.living || !info.address.starts_with("agent:") {
        return Ok(Vec::new());
    }
    let session = Some(info.session.clone());
    let all = call.line.ask(|| Approvals { session: session.clone() }).await?;
    let number = info.address.rsplit(':').next().unwrap_or_default();
    Ok(all.pending.into_iter().filter(|one| one.top == number).collect())
}

/// Calls have numbers of their own in each task. The digest binds the answer to what the form shows.
pub(super) fn key(pending: &PendingInfo) -> String {
    let (address, call) = (pending.address.replace(':', "-"), pending.approval.call);
    match &pending.approval.digest {
        Some(digest) => format!("approval-{address}-{call}-{digest}"),
        None => format!("approval-{address}-{call}"),
    }
}

/// All of a call, if a form has room for it.
fn whole(pending: &PendingInfo) -> Option<String> {
    let card = pending.approval.card()?;
    let text = card.to_string();
    (card.lines().len() <= FORM_LINES && text.len() <= FORM_BYTES).then_some(text)
}

/// A form with the choices, and room for a reason. A call that it cannot show whole can only be denied
/// in it.
pub(super) fn form(pending: &PendingInfo) -> InputRequest {
    let choices = match whole(pending) {
        Some(_) => [ONCE, ALWAYS, DENY].map(str::to_owned).to_vec(),
        None => vec![DENY.to_owned()],
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
    let fields = [(VERDICT.to_owned(), verdict), (REASON.to_owned(), reason)];
    let schema = ElicitationSchema::new(fields.into());
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: asks(pending),
        requested_schema: schema.with_required(vec![VERDICT.to_owned()]),
    };
    InputRequest::Elicitation(ElicitRequest::new(form))
}

/// `Baker asks for leave: bake`, the call behind our marks, and the rule that asks.
pub(super) fn asks(pending: &PendingInfo) -> String {
    let PendingInfo { address, name, approval, .. } = pending;
    let who = PlainText::line(name.as_ref().unwrap_or(address));
    let why = PlainText::line(&format!("{} asks about {}", approval.by, approval.rule));
    let call = match whole(pending) {
        Some(call) => call,
        None => {
            let call = match approval.card() {
                Some(card) => card.elided(FORM_LINES / 2).to_string(),
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
pub(super) async fn update(
    call: &Call,
    info: &TaskInfo,
    responses: &InputResponses,
) -> Result<(), Refusal> {
    for pending in pending(call, info).await? {
        let Some(response) = responses.get(&key(&pending)) else { continue };
        let Some(verdict) = verdict(response)? else { continue };
        let digest = pending.approval.digest;
        if whole(&pending).is_none() && !matches!(verdict, Verdict::Deny { .. }) {
            return Err(Refusal::invalid(format!(
                "the form does not show the whole call, which can only be denied in it; `brigade \
                 approve {} {} --show` shows it",
                pending.address, pending.approval.call
            )));
        }
        let target = Target { session: pending.session.clone(), task: pending.address.clone() };
        let number = Some(pending.approval.call);
        let approve = || {
            let (target, verdict) = (target.clone(), verdict.clone());
            Approve { target, call: number, digest, verdict }
        };
        match call.line.ask(approve).await {
            Err(refusal)
                if matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Conflict) => {}
            said => said?,
        }
    }
    Ok(())
}

/// What was said; nothing, by a form that was put aside: the call goes on waiting.
fn verdict(response: &Value) -> Result<Option<Verdict>, Refusal> {
    let result: ElicitResult = serde_json::from_value(response.clone()).map_err(|error| {
        Refusal::invalid(format!(
            "that does not answer a form: {error}; action is missing or wrong"
        ))
    })?;
    let content = result.content.unwrap_or_default();
    let reason = content.get(REASON).and_then(Value::as_str).unwrap_or_default();
    match (result.action, content.get(VERDICT).and_then(Value::as_str)) {
        (ElicitationAction::Accept, Some(ONCE)) => Ok(Some(Verdict::AllowOnce)),
        (ElicitationAction::Accept, Some(ALWAYS)) => Ok(Some(Verdict::AllowAlways { rule: None })),
        (ElicitationAction::Accept, Some(DENY)) | (ElicitationAction::Decline, _) => {
            Ok(Some(Verdict::Deny { reason: reason.into() }))
        }
        (ElicitationAction::Accept, other) => Err(Refusal::invalid(format!(
            "the field `{VERDICT}` is {}; it is one of {ONCE}, {ALWAYS} and {DENY}",
            other.map_or_else(|| "missing".to_owned(), |other| format!("{other:?}"))
        ))),
        _ => Ok(None),
    }
}
