//! What the clock brings about, one timer at a time.

use super::budget::{charge_reservation, deadlines};
use super::message::check_inbox_limit;
use super::spawn::start_or_queue;
use super::stop::{FORCED_STOP_TIMEOUT, fail_task, unconfirmed_outcome};
use super::{CommandReply, Decision, Draft, complete_call};
use crate::event::Event;
use crate::ids::{MessageNo, Millis, Owner, TaskNo, Time};
use crate::json::Json;
use crate::message::{Message, MessagePurpose, MessageSender};
use crate::outcome::Failure;
use crate::stall::{StallWatch, render_duration};
use crate::task::{StopPhase, TaskRow, TaskState};
use crate::task_tree::{TaskTimer, TaskTree};
use crate::work::InboxMode;

/// How soon to look again at a run that cannot end yet because something below it has not.
const RECHECK_DELAY: Millis = Millis(200);

/// The first timer that is due. The turn comes back for the others.
pub(super) fn tick(tree: &TaskTree, now: Time) -> Decision {
    let due = tree.due_timer(now).and_then(|(no, timer)| Some((no, timer, tree.get(no)?)));
    let drafts = match due {
        Some((no, timer, row)) => fire_timer(tree, (no, row), timer, now),
        None => Vec::new(),
    };
    Decision { drafts, reply: CommandReply::Done }
}

fn fire_timer(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    timer: TaskTimer,
    now: Time,
) -> Vec<Draft> {
    match timer {
        TaskTimer::Call(index) => match row.parked_call(index) {
            Some(call) => complete_call(tree, no, call),
            None => Vec::new(),
        },
        TaskTimer::Stop => {
            let event = escalate_stop(tree, no, row, now);
            let ends = matches!(event, Event::Ended { .. });
            let settled = if ends { charge_reservation(no, row) } else { None };
            settled.into_iter().chain([event.into()]).collect()
        }
        TaskTimer::Limit => {
            let due = deadlines(tree, no, now).filter(|deadline| deadline.at <= now);
            let after = due.min_by_key(|deadline| deadline.at).map(|deadline| deadline.limit);
            let after = after.unwrap_or_default();
            fail_task(tree, no, Failure::Timeout { after }, now)
                .into_iter()
                .map(Draft::from)
                .collect()
        }
        TaskTimer::Stall => handle_stall(tree, (no, row), now),
        TaskTimer::Backoff => vec![start_or_queue(tree, no, row).into()],
    }
}

/// A silence that is too long is told; then the task is spoken to, as often as its policy says, and
/// then it is ended.
fn handle_stall(tree: &TaskTree, (no, row): (TaskNo, &TaskRow), now: Time) -> Vec<Draft> {
    let Some(watch) = row.stall_watch() else { return Vec::new() };
    // Work that is handed its messages would take a nudge for input.
    let hears = row.spec.work.policy().inbox_mode == InboxMode::Pull;
    let nudged = hears && row.nudges().count < watch.nudges;
    let mut drafts = vec![Event::Stalled { no, nudged }.into()];
    if nudged {
        let room = check_inbox_limit(tree, Owner::Task(no)).is_ok();
        let message = room.then(|| nudge_message(tree, (no, row), watch, now));
        drafts.extend(message.map(|message| Event::MessageSent(message.into()).into()));
    } else if watch.then_stop {
        let failure = Failure::Stalled { quiet: now.since(row.last_activity_at) };
        drafts.extend(fail_task(tree, no, failure, now).map(Draft::from));
    }
    drafts
}

fn nudge_message(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    watch: StallWatch,
    now: Time,
) -> Message {
    let quiet = render_duration(now.since(row.last_activity_at));
    let next = match (row.nudges().count + 1 < watch.nudges, watch.then_stop) {
        (false, true) => format!(
            " If nothing happens for another {}, you are ended as stalled.",
            render_duration(watch.after)
        ),
        _ => String::new(),
    };
    let words = format!(
        "Nothing has happened here for {quiet}. What you were waiting for was broken off. Go on with \
         your task; if something stands in your way, say what it is and end your turn.{next}"
    );
    Message {
        no: MessageNo(tree.row().last_message.0 + 1),
        to: Owner::Task(no),
        from: MessageSender::Runtime,
        body: Json::of(&words).unwrap_or_else(|_| Json::null()),
        sent_at: now,
        purpose: MessagePurpose::Note,
        interrupt: true,
        reply_to: None,
        closes_input: false,
    }
}

fn escalate_stop(tree: &TaskTree, no: TaskNo, row: &TaskRow, now: Time) -> Event {
    let forced = matches!(&row.state, TaskState::Stopping(s) if s.phase == StopPhase::Forced);
    match unconfirmed_outcome(row).filter(|_| forced) {
        None => Event::StopForced { no, deadline: now.after(FORCED_STOP_TIMEOUT) },
        Some(_) if tree.alive_descendants(no) > 0 => {
            Event::StopForced { no, deadline: now.after(RECHECK_DELAY) }
        }
        Some(outcome) => {
            Event::Ended { no, run: row.run, outcome: outcome.into(), lingering: true }
        }
    }
}
