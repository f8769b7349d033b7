//! Delivers a message to a task, once.

use a2a::{A2AError, error_code};
use brigade_model::approval::CallDigest;
use brigade_model::json::Json;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_protocol::http::{TaskId, VerdictKind};
use brigade_protocol::requests::{AnswerRequest, ApproveRequest, SendRequest};

use super::agent_call::AgentCall;
use super::incoming_message::{ApprovalAnswer, IncomingMessage};
use super::message_record::{MessageEffect, MessageRecords, RecordedEffect};
use super::protocol_error::error_of;
use super::task_status::{TaskFacts, context_of};
use crate::http::path_target::target_of;
use crate::request_context::RequestContext;

impl AgentCall {
    /// Delivers a message: answers a question, decides an approval, or sends it to the inbox.
    pub(crate) async fn deliver(
        &self,
        id: TaskId,
        message: &IncomingMessage,
    ) -> Result<(), A2AError> {
        let found = self.find(&id.to_string()).await?;
        let context = context_of(&found.session, &found.row);
        if message.context.as_ref().is_some_and(|other| other.as_str() != context) {
            return Err(A2AError::invalid_params("the task is of another `contextId`"));
        }
        let runtime = &self.state.daemon.runtime;
        let records = MessageRecords { runtime, token: &self.caller.token.id };
        let approval = message.approval_answer()?;
        let recorded = match records.find(message).await? {
            Some(recorded) => recorded,
            None if !found.row.is_alive() => return Err(ended_task(id)),
            None => {
                let effect = choose_effect(id, &self.facts(&found), approval.as_ref())?;
                records.put(message, effect).await?
            }
        };
        if recorded.is_done {
            return Ok(());
        }
        let RecordedEffect { effect, stored, .. } = recorded;
        match self.carry_out(id, message, &effect).await {
            Ok(()) => {
                records.mark_done(message, effect).await.map_err(|refusal| error_of(&refusal))
            }
            Err(refusal) => {
                if let Some(version) = stored.filter(|_| is_without_effect(&refusal)) {
                    // The record expires if it cannot be removed.
                    let _removed = records.remove(message, version).await;
                }
                Err(refused_delivery(id, &effect, &refusal))
            }
        }
    }

    /// Carries out the effect of a message.
    async fn carry_out(
        &self,
        id: TaskId,
        message: &IncomingMessage,
        effect: &MessageEffect,
    ) -> Result<(), Refusal> {
        let context = self.context(None)?;
        let target = target_of(id.no);
        match *effect {
            MessageEffect::Inbox => {
                let mut send = SendRequest::new(target, Json::of(&message.text)?);
                send.key = Some(format!("a2a/{}", message.id));
                send.alive_only = true;
                context.call(send).await.map(drop)
            }
            MessageEffect::Answer { call } => {
                let answer = message.answer().map_err(|error| Refusal::invalid(error.message))?;
                context.call(AnswerRequest { target, answer, question: Some(call) }).await
            }
            MessageEffect::Approval { task, .. } => {
                let answer = message.approval_answer();
                let answer = answer.map_err(|error| Refusal::invalid(error.message))?;
                let wrong = || Refusal::invalid("the message decides no approval");
                let answer = answer.ok_or_else(wrong)?;
                decide(&context, &answer, target_of(task.no)).await
            }
        }
    }
}

async fn decide(
    context: &RequestContext,
    answer: &ApprovalAnswer,
    target: brigade_protocol::TaskTarget,
) -> Result<(), Refusal> {
    let body = answer.verdict();
    let digest = body.digest.as_deref().map(str::parse::<CallDigest>).transpose()?;
    if digest.is_none() && body.verdict != VerdictKind::Deny {
        let text = "pass the `digest` of the approval, so that exactly the call that was shown is \
                    allowed";
        return Err(Refusal::invalid(text));
    }
    let verdict = body.parse()?;
    let call = Some(answer.call);
    context.call(ApproveRequest { target, call, digest, verdict }).await.map(drop)
}

fn choose_effect(
    id: TaskId,
    facts: &TaskFacts,
    approval: Option<&ApprovalAnswer>,
) -> Result<MessageEffect, A2AError> {
    if let Some(approval) = approval {
        let task = approval.task.unwrap_or(id);
        let call = approval.call;
        return match facts.has_approval(task, call) {
            true => Ok(MessageEffect::Approval { task, call }),
            false => Err(A2AError::invalid_params("no such approval is pending")),
        };
    }
    Ok(match facts.first_question() {
        Some(call) => MessageEffect::Answer { call },
        None => MessageEffect::Inbox,
    })
}

/// Returns true if the refused command has certainly changed nothing.
fn is_without_effect(refusal: &Refusal) -> bool {
    !matches!(refusal.kind, RefusalKind::Unknown | RefusalKind::Internal)
}

/// Returns the error of a message that had no effect. An answer comes too late if another one, or an
/// earlier delivery of the same message, was first.
fn refused_delivery(id: TaskId, effect: &MessageEffect, refusal: &Refusal) -> A2AError {
    let is_late = matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Conflict);
    let text = match effect {
        _ if refusal.kind == RefusalKind::Ended => return ended_task(id),
        MessageEffect::Answer { .. } if is_late => {
            "the question was answered before; the history of the task has the answer"
        }
        MessageEffect::Approval { .. } if is_late => "the approval was decided before",
        _ => return error_of(refusal),
    };
    A2AError::new(error_code::UNSUPPORTED_OPERATION, text)
}

/// Returns the error of a message to a task that has ended. The protocol starts no task again.
fn ended_task(id: TaskId) -> A2AError {
    let text = format!(
        "the task {id} has ended; send a message without `taskId` and with the same `contextId`"
    );
    A2AError::unsupported_operation(text)
}
