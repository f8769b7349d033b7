//! What becomes of each state when the process that kept it alive is gone.

use std::sync::Arc;

use super::budget::unsettled;
use super::scope::no_such_task;
use super::spawn::start_or_queue;
use super::stop::{finish, outcome_of};
use super::{Decision, Draft, Reply};
use crate::command::{EndedHow, Gone, Recover};
use crate::event::Event;
use crate::ids::{Millis, Owner, TaskNo, Time};
use crate::outcome::Failure;
use crate::refusal::Refusal;
use crate::task::{QueuedWhy, State, TaskRow};
use crate::tree::Tree;
use crate::work::{InboxMode, Recovery};

/// How often work that never began is begun again, and how much later each time.
const NEVER_BEGAN: (u16, Millis) = (5, Millis(500));

pub(super) fn recover(tree: &Tree, recover: &Recover, now: Time) -> Result<Decision, Refusal> {
    let no = recover.no;
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    let mut drafts: Vec<Draft> = Vec::new();
    let conduct = row.spec.work.conduct();
    let looked_for = conduct.recovery == Recovery::Adopt;
    if row.is_performed() && (!looked_for || matches!(recover.why, Gone::NotFound { .. })) {
        drafts.extend(unsettled(no, row));
    }
    let handed_over = match &recover.why {
        Gone::Crash | Gone::Shutdown => !looked_for,
        Gone::Adopted | Gone::NotFound { .. } => true,
        Gone::NeverBegan => false,
    };
    if row.is_performed() && conduct.inbox == InboxMode::Push && handed_over {
        let unread = tree.inbox(Owner::Task(no));
        drafts.extend(unread.map(|message| {
            Event::MessageUnknown { to: Owner::Task(no), message: message.no }.into()
        }));
    }
    if recover.why == Gone::Adopted {
        return Ok(Decision { drafts, reply: Reply::Done });
    }
    drafts.extend(match (&row.state, &recover.why, conduct.recovery) {
        (State::Running | State::Stopping(_), Gone::NotFound { by, evidence }, _) => {
            let lost = Failure::Lost { by: by.clone(), evidence: evidence.clone() };
            failed(tree, (no, row), lost, now)
        }
        (State::Running, Gone::NeverBegan, _) => crashed(tree, (no, row), NEVER_BEGAN, now),
        (State::Stopping(_), Gone::NeverBegan, _) => {
            finish(tree, no, outcome_of(tree, row, &EndedHow::Aborted.into()), now)
        }
        // Work that can outlive us stays as it is until its performer has looked.
        (State::Running | State::Stopping(_), _, Recovery::Adopt) => Vec::new(),
        (State::Stopping(_), _, _) => {
            finish(tree, no, outcome_of(tree, row, &EndedHow::Aborted.into()), now)
        }
        (State::Running, Gone::Shutdown, Recovery::Resume { .. }) => {
            vec![Event::Queued { no, why: QueuedWhy::Backoff { until: now } }.into()]
        }
        (State::Running, _, Recovery::Resume { max, backoff }) => {
            crashed(tree, (no, row), (max, backoff), now)
        }
        (State::Running | State::Waiting | State::Queued(_), why, Recovery::Lost) => {
            failed(tree, (no, row), lost(why), now)
        }
        (State::Queued(queued), _, _) => match queued.why {
            QueuedWhy::NoPerformer { .. } => vec![start_or_queue(tree, no, row).into()],
            QueuedWhy::Full(_) | QueuedWhy::Backoff { .. } => Vec::new(),
        },
        (State::Ended(ended), _, _) if ended.lingering => vec![Event::SlotReturned { no }.into()],
        (State::Waiting | State::Closing { .. } | State::Ended(_), _, _) => Vec::new(),
    });
    Ok(Decision { drafts, reply: Reply::Done })
}

/// The next attempt follows at once, then each later than the one before; without progress in
/// between there is an end to it.
fn crashed(
    tree: &Tree,
    (no, row): (TaskNo, &TaskRow),
    (max, backoff): (u16, Millis),
    now: Time,
) -> Vec<Draft> {
    let crashes = row.crashes.saturating_add(1);
    if crashes > max {
        return failed(tree, (no, row), Failure::CrashLoop { crashes }, now);
    }
    let doublings = u32::from(crashes.saturating_sub(2)).min(16);
    let pause = if crashes < 2 { 0 } else { backoff.0.saturating_mul(1 << doublings) };
    vec![Event::Recovered { no, crashes, until: now.after(Millis(pause)) }.into()]
}

/// The run ends as failed, or as cancelled where a stop has been ordered above it.
fn failed(tree: &Tree, (no, row): (TaskNo, &TaskRow), failure: Failure, now: Time) -> Vec<Draft> {
    let end = EndedHow::Failed { failure, partial: None }.into();
    finish(tree, no, outcome_of(tree, row, &end), now)
}

fn lost(why: &Gone) -> Failure {
    let evidence: Arc<str> = match why {
        Gone::Shutdown => "the runtime shut down, and this work ends with its process".into(),
        _ => "its process is gone, and this work ends with it".into(),
    };
    Failure::Lost { by: "recovery".into(), evidence }
}
