//! `wait_tasks` for clients: waits for tasks and collects at most a page of results.

use std::time::{Duration, Instant};

use brigade_delegation::wait_tasks::RESULTS_MAX;
use brigade_delegation::{TaskSummary, WaitEnd, WaitTasks, WaitTasksReply};
use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;

use super::run_process::read_ended_task;
use super::summary::{is_of_other_conversation, summarize_task, to_task_notes, to_user_approvals};
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use brigade_protocol::RequestClient;
use brigade_protocol::requests::WaitReply;
use brigade_protocol::task_info::TaskInfo;

impl ClientDelegationTool for WaitTasks {
    async fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> Result<McpToolReply, Refusal> {
        let wait = self.wait(call.audience())?.unwrap_or(Duration::MAX);
        let names = self.task_names()?;
        let mode = self.mode();
        if self.awaits_readiness()? {
            let waited = call.wait_until_ready(names, mode, wait).await?;
            let mut reply = build_reply(call, &waited, wait).await;
            if !waited.timed_out {
                reply.end = WaitEnd::Ready;
            }
            return Ok(McpToolReply::Reply(reply.render()));
        }
        let NamedWait { reply: waited, not_waited_for } = match names {
            [] => NamedWait::complete(wait_for_own(call, mode, wait).await?),
            names => wait_for_named(call, names, mode, wait).await?,
        };
        let mut reply = build_reply(call, &waited, wait).await;
        reply.not_waited_for = not_waited_for;
        if names.is_empty() {
            let described = describe_others(call, &waited, &mut reply).await;
            // Only this reply has the results that the wait has collected.
            if waited.ended.is_empty() {
                described?;
            }
        }
        Ok(McpToolReply::Reply(reply.render()))
    }
}

/// Adds the tasks whose results the reply does not have. A wait without names covers all own tasks,
/// and so does the list of running ones.
async fn describe_others<C: RequestClient>(
    call: &McpCallContext<C>,
    waited: &WaitReply,
    reply: &mut WaitTasksReply,
) -> Result<(), Refusal> {
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
    Ok(())
}

/// The reply to a wait, and the named tasks that did not fit into it.
struct NamedWait {
    reply: WaitReply,
    not_waited_for: Vec<String>,
}

impl NamedWait {
    fn complete(reply: WaitReply) -> Self {
        Self { reply, not_waited_for: Vec::new() }
    }
}

/// Returns the tasks that a wait must name: alive ones, and those of other conversations.
async fn other_tasks<C: RequestClient>(
    call: &McpCallContext<C>,
) -> Result<Vec<TaskSummary>, Refusal> {
    let mut tasks = call.list_tasks().await?;
    tasks.retain(|info| !call.is_own(info) && (info.alive || is_of_other_conversation(info)));
    Ok(tasks.iter().map(|info| summarize_task(call, info)).collect())
}

/// Waits for the tasks of this conversation. Results that exceed one reply stay for the next call.
async fn wait_for_own<C: RequestClient>(
    call: &McpCallContext<C>,
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

/// Waits for tasks by name. Tasks that exceed one reply are for the next call.
async fn wait_for_named<C: RequestClient>(
    call: &McpCallContext<C>,
    names: &[String],
    mode: WaitMode,
    wait: Duration,
) -> Result<NamedWait, Refusal> {
    if names.len() <= RESULTS_MAX {
        return Ok(NamedWait::complete(call.wait_for_tasks(names, mode, wait).await?));
    }
    let (page, others) = names.split_at(RESULTS_MAX);
    if mode == WaitMode::All {
        let reply = call.wait_for_tasks(page, mode, wait).await?;
        return Ok(NamedWait { reply, not_waited_for: others.to_vec() });
    }
    let started_at = Instant::now();
    // Results that are ready are collected in pages.
    for page in names.chunks(RESULTS_MAX) {
        let reply = call.wait_for_tasks(page, mode, Duration::ZERO).await?;
        if !reply.timed_out {
            let others = names.iter().filter(|name| !page.contains(name));
            return Ok(NamedWait { reply, not_waited_for: others.cloned().collect() });
        }
    }
    let remaining = wait.saturating_sub(started_at.elapsed());
    Ok(NamedWait::complete(call.wait_for_tasks(names, mode, remaining).await?))
}

async fn build_reply<C: RequestClient>(
    call: &McpCallContext<C>,
    waited: &WaitReply,
    wait: Duration,
) -> WaitTasksReply {
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
        ready: waited.ready.iter().map(|info| summarize_task(call, info)).collect(),
        others: Vec::new(),
        approvals: to_user_approvals(call, &waited.pending_approvals),
        notes: to_task_notes(call.take_notes().await),
    }
}

fn has_open_question(waited: &WaitReply) -> bool {
    waited.still_running.iter().any(|info| !info.questions.is_empty())
}
