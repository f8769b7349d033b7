//! Tasks as a model reads of them, from what the daemon says.

use std::time::{SystemTime, UNIX_EPOCH};

use brigade_agent::Progress;
use brigade_delegation::{
    AgentSummary, OpenQuestion, PendingApproval, TaskNote, TaskSummary, UsageSummary, UserApproval,
};

use super::tool::Call;
use crate::info::{ConversationState, TaskInfo};
use crate::requests::{Note, PendingInfo};

/// Returns what a model reads of a task, under the address that it has here.
pub(super) fn summary(call: &Call, info: &TaskInfo) -> TaskSummary {
    TaskSummary {
        address: call.address(info),
        name: info.name.clone(),
        state: info.state.clone(),
        detail: info.detail.clone(),
        is_alive: info.living,
        exit_code: info.exit_code,
        signal: info.signal,
        elapsed_ms: info.ended.unwrap_or_else(now).saturating_sub(info.spawned),
        description: info.what.clone(),
        agent: info.is_agent().then(|| agent(info)),
        returned_before: info.collected_before,
        other_conversation: is_of_another(info),
    }
}

/// Whether it was started in another conversation, which has not lapsed.
pub(super) fn is_of_another(info: &TaskInfo) -> bool {
    info.conversation.as_ref().is_some_and(|one| one.state == ConversationState::Other)
}

/// The calls of sub-agents that wait for the user, and what the user has to run.
pub(super) fn user_approvals(call: &Call, pending: &[PendingInfo]) -> Vec<UserApproval> {
    let approvals = pending.iter().map(|one| {
        let PendingInfo { session, address, approval, .. } = one;
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

fn agent(info: &TaskInfo) -> AgentSummary {
    let progress = info.progress.as_ref().and_then(|progress| progress.decode::<Progress>().ok());
    let at = progress.unwrap_or_default();
    let questions = info.questions.iter().map(|question| OpenQuestion {
        number: question.call,
        text: question.text.clone(),
        client_tool: question.client.as_ref().and_then(|client| client.decode().ok()),
    });
    let approvals = info.approvals.iter();
    let approvals = approvals.map(|one| PendingApproval { call: one.call, text: one.text.clone() });
    AgentSummary {
        step: at.step,
        doing: at.doing,
        last_words: Some(at.words),
        stalled_ms: info.stalled.then(|| now().saturating_sub(info.moved)),
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
pub(super) fn notes(notes: Vec<Note>) -> Vec<TaskNote> {
    let notes = notes.into_iter();
    notes
        .map(|Note { number, from, name, text, .. }| TaskNote { number, from, name, text })
        .collect()
}

fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "an age is shown; nothing is decided by it")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
