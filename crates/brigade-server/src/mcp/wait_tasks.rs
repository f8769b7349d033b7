//! Waits for tasks and takes their results, at most a page of them.

use std::time::{Duration, Instant};

use brigade_delegation::wait_tasks::RESULTS_MAX;
use brigade_delegation::{TaskSummary, WaitEnd, WaitTasks, WaitTasksReply};
use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;

use super::run_process::read_ended_task;
use super::summary::{is_of_other_conversation, summarize_task, to_task_notes, to_user_approvals};
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use crate::requests::WaitReply;
use crate::task_info::TaskInfo;

impl ClientDelegationTool for WaitTasks {
    async fn run(self, call: &McpCallContext) -> Result<McpToolReply, Refusal> {
        let wait = self.wait(call.audience())?.unwrap_or(Duration::MAX);
        let (names, mode) = (self.task_names()?, self.mode());
        let (waited, not_waited_for) = match names {
            [] => (wait_for_own(call, mode, wait).await?, Vec::new()),
            names => wait_for_named(call, names, mode, wait).await?,
        };
        let mut reply = build_reply(call, &waited, wait).await;
        reply.not_waited_for = not_waited_for;
        if names.is_empty() {
            // A wait without names covers everything: so does the list of what still runs.
            let own = call.own_tasks().await?;
            let running = own.iter().filter(|info| info.alive);
            reply.still_running = running.map(|info| summarize_task(call, info)).collect();
            reply.more_ready_count = own.iter().filter(|info| !info.alive).count();
            if reply.end == WaitEnd::NothingToWaitFor && !reply.still_running.is_empty() {
                reply.end = WaitEnd::InputRequired;
            }
            if own.is_empty() && waited.ended.is_empty() {
                reply.others = other_tasks(call).await?;
            }
        }
        Ok(McpToolReply::Reply(reply.render()))
    }
}

/// The tasks that can be waited for by name alone: living ones, and results of other conversations.
async fn other_tasks(call: &McpCallContext) -> Result<Vec<TaskSummary>, Refusal> {
    let mut tasks = call.list_tasks(false).await?;
    tasks.retain(|info| !call.is_own(info) && (info.alive || is_of_other_conversation(info)));
    Ok(tasks.iter().map(|info| summarize_task(call, info)).collect())
}

/// Waits for what this conversation started. Results that one reply does not have stay for the next.
async fn wait_for_own(
    call: &McpCallContext,
    mode: WaitMode,
    wait: Duration,
) -> Result<WaitReply, Refusal> {
    let own = call.own_tasks().await?;
    let page = |infos: Vec<&TaskInfo>| -> Vec<String> {
        infos.into_iter().take(RESULTS_MAX).map(|info| call.address(info)).collect()
    };
    let ready: Vec<&TaskInfo> = own.iter().filter(|info| !info.alive).collect();
    let names = match mode {
        _ if ready.len() > RESULTS_MAX => page(ready),
        WaitMode::All if own.len() > RESULTS_MAX => page(own.iter().collect()),
        _ => Vec::new(),
    };
    call.wait_for_tasks(&names, mode, wait).await
}

/// Waits for tasks by name; returns also those that are left for the next call.
async fn wait_for_named(
    call: &McpCallContext,
    names: &[String],
    mode: WaitMode,
    wait: Duration,
) -> Result<(WaitReply, Vec<String>), Refusal> {
    if names.len() <= RESULTS_MAX {
        return Ok((call.wait_for_tasks(names, mode, wait).await?, Vec::new()));
    }
    let (page, others) = names.split_at(RESULTS_MAX);
    if mode == WaitMode::All {
        return Ok((call.wait_for_tasks(page, mode, wait).await?, others.to_vec()));
    }
    let began = Instant::now();
    // What has ended already is taken page by page.
    for page in names.chunks(RESULTS_MAX) {
        let waited = call.wait_for_tasks(page, mode, Duration::ZERO).await?;
        if !waited.timed_out {
            let others = names.iter().filter(|name| !page.contains(name));
            return Ok((waited, others.cloned().collect()));
        }
    }
    Ok((call.wait_for_tasks(names, mode, wait.saturating_sub(began.elapsed())).await?, Vec::new()))
}

async fn build_reply(call: &McpCallContext, waited: &WaitReply, wait: Duration) -> WaitTasksReply {
    let mut ended = Vec::with_capacity(waited.ended.len());
    for info in &waited.ended {
        ended.push(read_ended_task(call, info).await);
    }
    let end = if waited.timed_out {
        WaitEnd::TimedOut(wait)
    } else if !ended.is_empty() {
        WaitEnd::Ended
    } else if !waited.pending_approvals.is_empty() && !has_open_question(waited) {
        WaitEnd::ApprovalRequired
    } else if waited.still_running.is_empty() && waited.pending_approvals.is_empty() {
        WaitEnd::NothingToWaitFor
    } else {
        WaitEnd::InputRequired
    };
    WaitTasksReply {
        end,
        ended,
        more_ready_count: 0,
        not_waited_for: Vec::new(),
        still_running: waited.still_running.iter().map(|info| summarize_task(call, info)).collect(),
        others: Vec::new(),
        approvals: to_user_approvals(call, &waited.pending_approvals),
        notes: to_task_notes(call.read_notes(true).await),
    }
}

fn has_open_question(waited: &WaitReply) -> bool {
    waited.still_running.iter().any(|info| !info.questions.is_empty())
}
