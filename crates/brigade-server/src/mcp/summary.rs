//! Tasks as a model reads of them, from what the daemon says.

use std::time::{SystemTime, UNIX_EPOCH};

use brigade_agent::AgentProgress;
use brigade_delegation::{
    AgentSummary, ApprovalSummary, OpenQuestion, TaskNote, TaskSummary, UsageSummary, UserApproval,
};

use super::tool_call::McpCallContext;
use crate::requests::{InboxItem, PendingApprovalItem};
use crate::task_info::{ConversationState, TaskInfo};

/// Returns what a model reads of a task, under the address that it has here.
pub(super) fn summarize_task(call: &McpCallContext, info: &TaskInfo) -> TaskSummary {
    TaskSummary {
        address: call.address(info),
        name: info.name.clone(),
        state: info.state.clone(),
        detail: info.detail.clone(),
        is_alive: info.alive,
        exit_code: info.exit_code,
        signal: info.signal,
        elapsed_ms: info.ended_at.unwrap_or_else(now_millis).saturating_sub(info.spawned_at),
        description: info.description.clone(),
        agent: info.is_agent().then(|| summarize_agent(info)),
        returned_before: info.collected_before,
        other_conversation: is_of_other_conversation(info),
    }
}

/// Whether it was started in another conversation, which has not lapsed.
pub(super) fn is_of_other_conversation(info: &TaskInfo) -> bool {
    info.conversation.as_ref().is_some_and(|one| one.state == ConversationState::Other)
}

/// The calls of sub-agents that wait for the user, and what the user has to run.
pub(super) fn to_user_approvals(
    call: &McpCallContext,
    pending: &[PendingApprovalItem],
) -> Vec<UserApproval> {
    let approvals = pending.iter().map(|one| {
        let PendingApprovalItem { session, address, approval, .. } = one;
        let shown = match *session == call.options.session {
            true => address.clone(),
            false => format!("{session}/{address}"),
        };
        UserApproval {
            address: address.clone(),
            name: one.name.clone(),
            call: approval.call,
            text: approval.text.clone(),
            user_command: format!("brigade approve {shown} {}", approval.call),
        }
    });
    approvals.collect()
}

fn summarize_agent(info: &TaskInfo) -> AgentSummary {
    let progress =
        info.progress.as_ref().and_then(|progress| progress.decode::<AgentProgress>().ok());
    let at = progress.unwrap_or_default();
    let questions = info.questions.iter().map(|question| OpenQuestion {
        number: question.call,
        text: question.text.clone(),
        client_call: question.client_call.as_ref().and_then(|client| client.decode().ok()),
    });
    let approvals = info.approvals.iter();
    let approvals = approvals.map(|one| ApprovalSummary { call: one.call, text: one.text.clone() });
    AgentSummary {
        step: at.step,
        activity: at.activity,
        last_text: Some(at.last_text),
        stalled_ms: info.stalled.then(|| now_millis().saturating_sub(info.last_activity_at)),
        usage: UsageSummary {
            tokens: info.usage.tokens,
            micro_dollars: info.usage.money.0,
            own_tokens: info.own_usage.tokens,
            unknown_tokens: info.unknown_usage.tokens,
        },
        questions: questions.collect(),
        approvals: approvals.collect(),
    }
}

/// Returns what tasks said to this client: data, whoever it comes from.
pub(super) fn to_task_notes(notes: Vec<InboxItem>) -> Vec<TaskNote> {
    let notes = notes.into_iter();
    notes
        .map(|InboxItem { number, from, name, text, .. }| TaskNote { number, from, name, text })
        .collect()
}

fn now_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "an age is shown; nothing is decided by it")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
