//! Recovers a task in each state after its process is gone.

use std::sync::Arc;

use super::budget::charge_reservation;
use super::scope::no_such_task;
use super::spawn::start_or_queue;
use super::stop::{finish, outcome_of, unasked_end, unconfirmed_outcome};
use super::{CommandReply, Decision, Draft};
use crate::command::{EndReport, HostAbsence, RecoverCommand, RecoveryFinding, WorkResult};
use crate::event::Event;
use crate::ids::{Millis, Owner, Time};
use crate::outcome::{EndConfirmation, Failure};
use crate::refusal::Refusal;
use crate::task::{AwayState, QueueReason, TaskRow, TaskState};
use crate::task_tree::{TaskTree, TaskView};
use crate::work::{InboxMode, RecoveryPolicy};

/// The number and spacing of further attempts.
#[derive(Clone, Copy)]
struct RetryPolicy {
    max_attempts: u16,
    backoff: Millis,
}

/// The policy for work that never started.
const NEVER_STARTED_RETRY: RetryPolicy = RetryPolicy { max_attempts: 5, backoff: Millis(500) };

pub(super) fn recover(
    tree: &TaskTree,
    recover: &RecoverCommand,
    now: Time,
) -> Result<Decision, Refusal> {
    let no = recover.no;
    let task = tree.view(no).ok_or_else(|| no_such_task(tree, no))?;
    let row = task.row;
    let mut drafts: Vec<Draft> = Vec::new();
    let policy = row.spec.work.policy();
    let is_adoptable = policy.recovery == RecoveryPolicy::Adopt;
    if row.is_performed()
        && (!is_adoptable || matches!(recover.finding, RecoveryFinding::NotFound { .. }))
    {
        drafts.extend(charge_reservation(no, row));
    }
    let was_pushed = match &recover.finding {
        RecoveryFinding::Crash | RecoveryFinding::Shutdown => !is_adoptable,
        RecoveryFinding::Adopted
        | RecoveryFinding::NotFound { .. }
        | RecoveryFinding::HostPresent
        | RecoveryFinding::HostAway(_) => true,
        RecoveryFinding::NeverStarted => false,
    };
    if row.is_performed() && policy.inbox_mode == InboxMode::Push && was_pushed {
        let unread = tree.inbox(Owner::Task(no));
        drafts.extend(unread.map(|message| {
            Event::MessageDeliveryUnknown { to: Owner::Task(no), message: message.no }.into()
        }));
    }
    drafts.extend(match &recover.finding {
        RecoveryFinding::Adopted if row.away().is_some() || row.is_unattended() => {
            vec![Event::Returned { no }.into()]
        }
        RecoveryFinding::HostPresent if awaits_adoption(row) => {
            vec![Event::Unattended { no }.into()]
        }
        RecoveryFinding::Adopted | RecoveryFinding::HostPresent => Vec::new(),
        RecoveryFinding::HostAway(absence) if row.host().is_some() => {
            await_host(tree, task, absence, now)
        }
        RecoveryFinding::HostAway(_) => Vec::new(),
        finding => continue_without_performer(tree, task, finding, now),
    });
    Ok(Decision { drafts, reply: CommandReply::Done })
}

/// Returns true for a process whose host is to adopt it, and is not known to be there.
fn awaits_adoption(row: &TaskRow) -> bool {
    let runs = row.away().is_some() || row.is_performed();
    runs && row.host().is_some() && !row.is_unattended()
}

/// Decides how a task continues whose performer is gone.
fn continue_without_performer(
    tree: &TaskTree,
    task: TaskView<'_>,
    finding: &RecoveryFinding,
    now: Time,
) -> Vec<Draft> {
    let TaskView { no, row } = task;
    match (&row.state, finding, row.spec.work.policy().recovery) {
        (
            TaskState::Running | TaskState::Away(_) | TaskState::Stopping(_),
            RecoveryFinding::NotFound { by, evidence },
            _,
        ) => {
            let lost = Failure::Lost { by: by.clone(), evidence: evidence.clone() };
            fail_run(tree, task, lost, now)
        }
        (TaskState::Running | TaskState::Away(_), RecoveryFinding::NeverStarted, _) => {
            retry_after_crash(tree, task, NEVER_STARTED_RETRY, now)
        }
        (TaskState::Stopping(_), RecoveryFinding::NeverStarted, _) => {
            finish(tree, no, outcome_of(tree, row, &WorkResult::Aborted.into()), now)
        }
        // Work that can outlive the runtime stays as it is until its performer has looked.
        (
            TaskState::Running | TaskState::Stopping(_) | TaskState::Away(_),
            _,
            RecoveryPolicy::Adopt,
        ) => Vec::new(),
        (TaskState::Stopping(_), _, _) => {
            let end = EndReport { result: WorkResult::Aborted, confirmation: unasked_end(row) };
            finish(tree, no, outcome_of(tree, row, &end), now)
        }
        (TaskState::Running, RecoveryFinding::Shutdown, RecoveryPolicy::Resume { .. }) => {
            vec![Event::Queued { no, reason: QueueReason::Backoff { until: now } }.into()]
        }
        (TaskState::Running, _, RecoveryPolicy::Resume { max_attempts, backoff }) => {
            retry_after_crash(tree, task, RetryPolicy { max_attempts, backoff }, now)
        }
        (
            TaskState::Running | TaskState::Waiting | TaskState::Queued(_),
            finding,
            RecoveryPolicy::Lost,
        ) => fail_run(tree, task, lost_failure(finding), now),
        (TaskState::Queued(queued), _, _) => match queued.reason {
            QueueReason::NoPerformer { .. } => vec![start_or_queue(tree, no, row).into()],
            QueueReason::RunningLimit(_)
            | QueueReason::RuntimeLimit
            | QueueReason::Backoff { .. } => Vec::new(),
        },
        (TaskState::Ended(ended), _, _) if ended.lingering => {
            vec![Event::SlotReturned { no }.into()]
        }
        (
            TaskState::Waiting
            | TaskState::Away(_)
            | TaskState::Closing { .. }
            | TaskState::Ended(_),
            _,
            _,
        ) => Vec::new(),
    }
}

/// Lets a process wait for its host. A requested stop is carried out when the host returns.
fn await_host(tree: &TaskTree, task: TaskView<'_>, absence: &HostAbsence, now: Time) -> Vec<Draft> {
    let TaskView { no, row } = task;
    match &row.state {
        TaskState::Running => {
            let away = AwayState {
                node: absence.node.clone(),
                since: absence.last_seen.map_or(now, |last_seen| last_seen.min(now)),
                until: now.after(absence.grace),
            };
            vec![Event::Away { no, away: Box::new(away) }.into()]
        }
        TaskState::Stopping(stopping) => {
            finish(tree, no, unconfirmed_outcome(&stopping.cause), now)
        }
        _ => Vec::new(),
    }
}

/// Ends a run whose host has not returned within the grace.
pub(super) fn end_with_host(tree: &TaskTree, task: TaskView<'_>, now: Time) -> Vec<Draft> {
    let Some(away) = task.row.away() else { return Vec::new() };
    let evidence = format!("{away}, and its grace is over");
    let failure =
        Failure::Lost { by: "the owner of the session".into(), evidence: evidence.into() };
    let result = WorkResult::Failed { failure, partial: None };
    let end = EndReport { result, confirmation: EndConfirmation::Unconfirmed };
    finish(tree, task.no, outcome_of(tree, task.row, &end), now)
}

/// Starts the next attempt at once after the first crash, then later after each further one. After
/// too many crashes without progress, the run fails.
fn retry_after_crash(
    tree: &TaskTree,
    task: TaskView<'_>,
    retry: RetryPolicy,
    now: Time,
) -> Vec<Draft> {
    let TaskView { no, row } = task;
    let crashes = row.crashes.saturating_add(1);
    if crashes > retry.max_attempts {
        return fail_run(tree, task, Failure::CrashLoop { crashes }, now);
    }
    let doublings = u32::from(crashes.saturating_sub(2)).min(16);
    let pause = if crashes < 2 { 0 } else { retry.backoff.0.saturating_mul(1 << doublings) };
    vec![Event::Recovered { no, crashes, until: now.after(Millis(pause)) }.into()]
}

/// Ends the run as failed, or as cancelled if an ancestor is being stopped.
fn fail_run(tree: &TaskTree, task: TaskView<'_>, failure: Failure, now: Time) -> Vec<Draft> {
    let result = WorkResult::Failed { failure, partial: None };
    let end = EndReport { result, confirmation: unasked_end(task.row) };
    finish(tree, task.no, outcome_of(tree, task.row, &end), now)
}

fn lost_failure(finding: &RecoveryFinding) -> Failure {
    let evidence: Arc<str> = match finding {
        RecoveryFinding::Shutdown => {
            "the runtime shut down, and this work ends with its process".into()
        }
        _ => "its process is gone, and this work ends with it".into(),
    };
    Failure::Lost { by: "recovery".into(), evidence }
}
