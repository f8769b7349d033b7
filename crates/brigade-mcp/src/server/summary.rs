//! Converts the daemon's replies into summaries for a model.

use std::time::{SystemTime, UNIX_EPOCH};

use brigade_agent::AgentProgress;
use brigade_delegation::{
    AgentTaskSummary, ApprovalSummary, OpenQuestion, TaskNote, TaskSummary, UsageSummary,
    UserApproval, WorktreeSummary,
};

use super::tool_call::McpCallContext;
use brigade_protocol::RequestClient;
use brigade_protocol::requests::{InboxItem, PendingApprovalItem};
use brigade_protocol::task_info::{AwayInfo, ConversationState, TaskInfo};

/// Returns the summary of a task, with the address by which this client can name it.
pub(super) fn summarize_task<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> TaskSummary {
    TaskSummary {
        address: call.address(info),
        name: info.name.clone(),
        state: info.state.clone(),
        detail: info
            .away
            .as_ref()
            .map(render_away)
            .or_else(|| info.detail.clone())
            .or_else(|| info.is_ready().then(|| "ready".to_owned())),
        is_alive: info.alive,
        exit_code: info.exit_code,
        signal: info.signal,
        elapsed_ms: info.ended_at.unwrap_or_else(now_millis).saturating_sub(info.spawned_at),
        description: info.description.clone(),
        agent: info.is_agent().then(|| summarize_agent(info)),
        worktree: info
            .worktree
            .as_ref()
            .filter(|one| one.kept != Some(false))
            .map(|one| WorktreeSummary { path: one.path.clone(), branch: one.branch.clone() }),
        returned_before: info.collected_before,
        other_conversation: is_of_other_conversation(info),
    }
}

/// Renders the absence of a process's host.
fn render_away(away: &AwayInfo) -> String {
    brigade_delegation::render_away(&away.node, now_millis().saturating_sub(away.since))
}

/// Returns true if another conversation started the task and has not lapsed.
pub(super) fn is_of_other_conversation(info: &TaskInfo) -> bool {
    info.conversation.as_ref().is_some_and(|one| one.state == ConversationState::Other)
}

/// Returns the pending approvals with the command line that the user must run for each.
pub(super) fn to_user_approvals<C: RequestClient>(
    call: &McpCallContext<C>,
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

fn summarize_agent(info: &TaskInfo) -> AgentTaskSummary {
    let progress =
        info.progress.as_ref().and_then(|progress| progress.decode::<AgentProgress>().ok());
    let progress = progress.unwrap_or_default();
    let questions = info.questions.iter().map(|question| OpenQuestion {
        number: question.call,
        text: question.text.clone(),
        client_call: question.client_call.as_ref().and_then(|call| call.decode().ok()),
    });
    let approvals = info.approvals.iter();
    let approvals = approvals.map(|one| ApprovalSummary { call: one.call, text: one.text.clone() });
    AgentTaskSummary {
        step: progress.step,
        activity: progress.activity,
        last_text: Some(progress.last_text),
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

/// Returns messages of tasks to this client, for a reply.
pub(super) fn to_task_notes(notes: Vec<InboxItem>) -> Vec<TaskNote> {
    let notes = notes.into_iter();
    notes
        .map(|InboxItem { number, from, name, message_name, text, .. }| TaskNote {
            number,
            from,
            name,
            message_name,
            text,
        })
        .collect()
}

fn now_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "only an age is shown")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
