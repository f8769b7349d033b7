//! What becomes of each state when the process that kept it alive is gone.

use std::sync::Arc;

use super::budget::charge_reservation;
use super::scope::no_such_task;
use super::spawn::start_or_queue;
use super::stop::{finish, outcome_of};
use super::{CommandReply, Decision, Draft};
use crate::command::{RecoverCommand, RecoveryFinding, WorkResult};
use crate::event::Event;
use crate::ids::{Millis, Owner, TaskNo, Time};
use crate::outcome::Failure;
use crate::refusal::Refusal;
use crate::task::{QueueReason, TaskRow, TaskState};
use crate::task_tree::TaskTree;
use crate::work::{InboxMode, RecoveryPolicy};

/// How often work that never began is begun again, and how much later each time.
const NEVER_STARTED_RETRY: (u16, Millis) = (5, Millis(500));

pub(super) fn recover(
    tree: &TaskTree,
    recover: &RecoverCommand,
    now: Time,
) -> Result<Decision, Refusal> {
    let no = recover.no;
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    let mut drafts: Vec<Draft> = Vec::new();
    let conduct = row.spec.work.policy();
    let looked_for = conduct.recovery == RecoveryPolicy::Adopt;
    if row.is_performed()
        && (!looked_for || matches!(recover.finding, RecoveryFinding::NotFound { .. }))
    {
        drafts.extend(charge_reservation(no, row));
    }
    let handed_over = match &recover.finding {
        RecoveryFinding::Crash | RecoveryFinding::Shutdown => !looked_for,
        RecoveryFinding::Adopted | RecoveryFinding::NotFound { .. } => true,
        RecoveryFinding::NeverStarted => false,
    };
    if row.is_performed() && conduct.inbox_mode == InboxMode::Push && handed_over {
        let unread = tree.inbox(Owner::Task(no));
        drafts.extend(unread.map(|message| {
            Event::MessageDeliveryUnknown { to: Owner::Task(no), message: message.no }.into()
        }));
    }
    if recover.finding == RecoveryFinding::Adopted {
        return Ok(Decision { drafts, reply: CommandReply::Done });
    }
    drafts.extend(match (&row.state, &recover.finding, conduct.recovery) {
        (
            TaskState::Running | TaskState::Stopping(_),
            RecoveryFinding::NotFound { by, evidence },
            _,
        ) => {
            let lost = Failure::Lost { by: by.clone(), evidence: evidence.clone() };
            fail_run(tree, (no, row), lost, now)
        }
        (TaskState::Running, RecoveryFinding::NeverStarted, _) => {
            retry_after_crash(tree, (no, row), NEVER_STARTED_RETRY, now)
        }
        (TaskState::Stopping(_), RecoveryFinding::NeverStarted, _) => {
            finish(tree, no, outcome_of(tree, row, &WorkResult::Aborted.into()), now)
        }
        // Work that can outlive us stays as it is until its performer has looked.
        (TaskState::Running | TaskState::Stopping(_), _, RecoveryPolicy::Adopt) => Vec::new(),
        (TaskState::Stopping(_), _, _) => {
            finish(tree, no, outcome_of(tree, row, &WorkResult::Aborted.into()), now)
        }
        (TaskState::Running, RecoveryFinding::Shutdown, RecoveryPolicy::Resume { .. }) => {
            vec![Event::Queued { no, reason: QueueReason::Backoff { until: now } }.into()]
        }
        (TaskState::Running, _, RecoveryPolicy::Resume { max_attempts: max, backoff }) => {
            retry_after_crash(tree, (no, row), (max, backoff), now)
        }
        (
            TaskState::Running | TaskState::Waiting | TaskState::Queued(_),
            why,
            RecoveryPolicy::Lost,
        ) => fail_run(tree, (no, row), lost_failure(why), now),
        (TaskState::Queued(queued), _, _) => match queued.reason {
            QueueReason::NoPerformer { .. } => vec![start_or_queue(tree, no, row).into()],
            QueueReason::RunningLimit(_) | QueueReason::Backoff { .. } => Vec::new(),
        },
        (TaskState::Ended(ended), _, _) if ended.lingering => {
            vec![Event::SlotReturned { no }.into()]
        }
        (TaskState::Waiting | TaskState::Closing { .. } | TaskState::Ended(_), _, _) => Vec::new(),
    });
    Ok(Decision { drafts, reply: CommandReply::Done })
}

/// The next attempt follows at once, then each later than the one before; without progress in
/// between there is an end to it.
fn retry_after_crash(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    (max, backoff): (u16, Millis),
    now: Time,
) -> Vec<Draft> {
    let crashes = row.crashes.saturating_add(1);
    if crashes > max {
        return fail_run(tree, (no, row), Failure::CrashLoop { crashes }, now);
    }
    let doublings = u32::from(crashes.saturating_sub(2)).min(16);
    let pause = if crashes < 2 { 0 } else { backoff.0.saturating_mul(1 << doublings) };
    vec![Event::Recovered { no, crashes, until: now.after(Millis(pause)) }.into()]
}

/// The run ends as failed, or as cancelled where a stop has been ordered above it.
fn fail_run(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    failure: Failure,
    now: Time,
) -> Vec<Draft> {
    let end = WorkResult::Failed { failure, partial: None }.into();
    finish(tree, no, outcome_of(tree, row, &end), now)
}

fn lost_failure(why: &RecoveryFinding) -> Failure {
    let evidence: Arc<str> = match why {
        RecoveryFinding::Shutdown => {
            "the runtime shut down, and this work ends with its process".into()
        }
        _ => "its process is gone, and this work ends with it".into(),
    };
    Failure::Lost { by: "recovery".into(), evidence }
}
