//! Fires timers, one at a time.

use super::budget::{charge_reservation, deadlines};
use super::message::check_inbox_limit;
use super::recover::end_with_host;
use super::spawn::start_or_queue;
use super::stop::{FORCED_STOP_TIMEOUT, fail_task, unconfirmed_outcome};
use super::{CommandReply, Decision, Draft, complete_call};
use crate::event::Event;
use crate::ids::{MessageNo, Millis, Owner, Time};
use crate::json::Json;
use crate::message::{Message, MessagePurpose, MessageSender};
use crate::outcome::Failure;
use crate::stall::{StallWatch, render_duration};
use crate::task::{StopPhase, TaskState};
use crate::task_tree::{TaskTimer, TaskTree, TaskView};
use crate::work::InboxMode;

/// The delay until a run that cannot end yet, because of a descendant, is checked again.
const RECHECK_DELAY: Millis = Millis(200);

/// Fires the first timer that is due. The transition repeats this for the others.
pub(super) fn tick(tree: &TaskTree, now: Time) -> Decision {
    let due = tree.due_timer(now).and_then(|(no, timer)| Some((tree.view(no)?, timer)));
    let drafts = match due {
        Some((task, timer)) => fire_timer(tree, task, timer, now),
        None => Vec::new(),
    };
    Decision { drafts, reply: CommandReply::Done }
}

fn fire_timer(tree: &TaskTree, task: TaskView<'_>, timer: TaskTimer, now: Time) -> Vec<Draft> {
    let TaskView { no, row } = task;
    match timer {
        TaskTimer::Call(index) => match row.parked_call(index) {
            Some(call) => complete_call(tree, no, call),
            None => Vec::new(),
        },
        TaskTimer::Stop => {
            let event = escalate_stop(tree, task, now);
            let ends = matches!(event, Event::Ended { .. });
            let charged = if ends { charge_reservation(no, row) } else { None };
            charged.into_iter().chain([event.into()]).collect()
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
        TaskTimer::Stall => handle_stall(tree, task, now),
        TaskTimer::Backoff => vec![start_or_queue(tree, no, row).into()],
        TaskTimer::HostGrace => end_with_host(tree, task, now),
    }
}

/// Reports a silence that is too long. Then the task is nudged as often as its policy says, and
/// after that it is ended.
fn handle_stall(tree: &TaskTree, task: TaskView<'_>, now: Time) -> Vec<Draft> {
    let TaskView { no, row } = task;
    let Some(watch) = row.stall_watch() else { return Vec::new() };
    // Work with a pushed inbox would take a nudge for input.
    let can_be_nudged = row.spec.work.policy().inbox_mode == InboxMode::Pull;
    let nudged = can_be_nudged && row.nudges().count < watch.nudges;
    let mut drafts = vec![Event::Stalled { no, nudged }.into()];
    if nudged {
        let has_capacity = check_inbox_limit(tree, Owner::Task(no)).is_ok();
        let message = has_capacity.then(|| nudge_message(tree, task, watch, now));
        drafts.extend(message.map(|message| Event::MessageSent(message.into()).into()));
    } else if watch.then_stop {
        let failure = Failure::Stalled { quiet: now.since(row.last_activity_at) };
        drafts.extend(fail_task(tree, no, failure, now).map(Draft::from));
    }
    drafts
}

fn nudge_message(tree: &TaskTree, task: TaskView<'_>, watch: StallWatch, now: Time) -> Message {
    let TaskView { no, row } = task;
    let quiet = render_duration(now.since(row.last_activity_at));
    let next = match (row.nudges().count + 1 < watch.nudges, watch.then_stop) {
        (false, true) => format!(
            " If you show no activity for another {}, your run ends as stalled.",
            render_duration(watch.after)
        ),
        _ => String::new(),
    };
    let text = format!(
        "Nothing has happened here for {quiet}. The call that you were waiting for was interrupted. \
         Continue with your task. If you cannot, say what blocks you and finish.{next}"
    );
    Message {
        no: MessageNo(tree.row().last_message.0 + 1),
        to: Owner::Task(no),
        from: MessageSender::Runtime,
        body: Json::of(&text).unwrap_or_else(|_| Json::null()),
        sent_at: now,
        purpose: MessagePurpose::Note,
        interrupt: true,
        reply_to: None,
        closes_input: false,
        name: None,
        key: None,
    }
}

fn escalate_stop(tree: &TaskTree, task: TaskView<'_>, now: Time) -> Event {
    let TaskView { no, row } = task;
    let forced = match &row.state {
        TaskState::Stopping(stopping) if stopping.phase == StopPhase::Forced => Some(stopping),
        _ => None,
    };
    match forced.map(|stopping| unconfirmed_outcome(&stopping.cause)) {
        None => Event::StopForced { no, deadline: now.after(FORCED_STOP_TIMEOUT) },
        Some(_) if tree.alive_descendants(no) > 0 => {
            Event::StopForced { no, deadline: now.after(RECHECK_DELAY) }
        }
        Some(outcome) => {
            Event::Ended { no, run: row.run, outcome: outcome.into(), lingering: true }
        }
    }
}
