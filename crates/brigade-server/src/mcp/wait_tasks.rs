//! Waits for tasks and takes their results, at most a page of them.

use std::time::{Duration, Instant};

use brigade_delegation::wait_tasks::RESULTS_MAX;
use brigade_delegation::{TaskSummary, WaitEnd, WaitReply, WaitTasks};
use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;

use super::run_process::ended_task;
use super::summary::{is_of_another, notes, summary, user_approvals};
use super::tool::{Answer, Call, Tool};
use crate::info::TaskInfo;
use crate::requests::Waited;

impl Tool for WaitTasks {
    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let wait = self.wait(call.audience())?.unwrap_or(Duration::MAX);
        let (names, mode) = (self.names()?, self.mode());
        let (waited, not_waited_for) = match names {
            [] => (wait_for_own(call, mode, wait).await?, Vec::new()),
            names => wait_for_named(call, names, mode, wait).await?,
        };
        let mut reply = reply(call, &waited, wait).await;
        reply.not_waited_for = not_waited_for;
        if names.is_empty() {
            // A wait without names covers everything: so does the list of what still runs.
            let own = call.own().await?;
            let running = own.iter().filter(|info| info.living);
            reply.still_running = running.map(|info| summary(call, info)).collect();
            reply.more_ready = own.iter().filter(|info| !info.living).count();
            if reply.end == WaitEnd::NothingToWaitFor && !reply.still_running.is_empty() {
                reply.end = WaitEnd::InputRequired;
            }
            if own.is_empty() && waited.ended.is_empty() {
                reply.others = others(call).await?;
            }
        }
        Ok(Answer::Said(reply.render()))
    }
}

/// The tasks that can be waited for by name alone: living ones, and results of other conversations.
async fn others(call: &Call) -> Result<Vec<TaskSummary>, Refusal> {
    let mut tasks = call.list(false).await?;
    tasks.retain(|info| !call.is_own(info) && (info.living || is_of_another(info)));
    Ok(tasks.iter().map(|info| summary(call, info)).collect())
}

/// Waits for what this conversation started. Results that one reply does not have stay for the next.
async fn wait_for_own(call: &Call, mode: WaitMode, wait: Duration) -> Result<Waited, Refusal> {
    let own = call.own().await?;
    let page = |infos: Vec<&TaskInfo>| -> Vec<String> {
        infos.into_iter().take(RESULTS_MAX).map(|info| call.address(info)).collect()
    };
    let ready: Vec<&TaskInfo> = own.iter().filter(|info| !info.living).collect();
    let names = match mode {
        _ if ready.len() > RESULTS_MAX => page(ready),
        WaitMode::All if own.len() > RESULTS_MAX => page(own.iter().collect()),
        _ => Vec::new(),
    };
    call.wait(&names, mode, wait).await
}

/// Waits for tasks by name; returns also those that are left for the next call.
async fn wait_for_named(
    call: &Call,
    names: &[String],
    mode: WaitMode,
    wait: Duration,
) -> Result<(Waited, Vec<String>), Refusal> {
    if names.len() <= RESULTS_MAX {
        return Ok((call.wait(names, mode, wait).await?, Vec::new()));
    }
    let (page, others) = names.split_at(RESULTS_MAX);
    if mode == WaitMode::All {
        return Ok((call.wait(page, mode, wait).await?, others.to_vec()));
    }
    let began = Instant::now();
    // What has ended already is taken page by page.
    for page in names.chunks(RESULTS_MAX) {
        let waited = call.wait(page, mode, Duration::ZERO).await?;
        if !waited.timed_out {
            let others = names.iter().filter(|name| !page.contains(name));
            return Ok((waited, others.cloned().collect()));
        }
    }
    Ok((call.wait(names, mode, wait.saturating_sub(began.elapsed())).await?, Vec::new()))
}

async fn reply(call: &Call, waited: &Waited, wait: Duration) -> WaitReply {
    let mut ended = Vec::with_capacity(waited.ended.len());
    for info in &waited.ended {
        ended.push(ended_task(call, info).await);
    }
    let end = if waited.timed_out {
        WaitEnd::TimedOut(wait)
    } else if !ended.is_empty() {
        WaitEnd::Ended
    } else if !waited.pending.is_empty() && !asks(waited) {
        WaitEnd::ApprovalRequired
    } else if waited.going_on.is_empty() && waited.pending.is_empty() {
        WaitEnd::NothingToWaitFor
    } else {
        WaitEnd::InputRequired
    };
    WaitReply {
        end,
        ended,
        more_ready: 0,
        not_waited_for: Vec::new(),
        still_running: waited.going_on.iter().map(|info| summary(call, info)).collect(),
        others: Vec::new(),
        approvals: user_approvals(call, &waited.pending),
        notes: notes(call.notes(true).await),
    }
}

fn asks(waited: &Waited) -> bool {
    waited.going_on.iter().any(|info| !info.questions.is_empty())
}
