//! What the clock brings about, one timer at a time.

use super::budget::{deadlines, unsettled};
use super::message::check_room;
use super::spawn::start_or_queue;
use super::stop::{FIRM_BOUND, fail, unconfirmed};
use super::{Decision, Draft, Reply, answer_to};
use crate::event::Event;
use crate::ids::{MessageNo, Millis, Owner, TaskNo, Time};
use crate::json::Json;
use crate::message::{Message, Purpose, Sender};
use crate::outcome::Failure;
use crate::stall::{Watch, spoken};
use crate::task::{State, StopStage, TaskRow};
use crate::tree::{Timer, Tree};
use crate::work::InboxMode;

/// How soon to look again at a run that cannot end yet because something below it has not.
const LOOK_AGAIN: Millis = Millis(200);

/// The first timer that is due. The turn comes back for the others.
pub(super) fn tick(tree: &Tree, now: Time) -> Decision {
    let due = tree.due(now).and_then(|(no, timer)| Some((no, timer, tree.get(no)?)));
    let drafts = match due {
        Some((no, timer, row)) => fire(tree, (no, row), timer, now),
        None => Vec::new(),
    };
    Decision { drafts, reply: Reply::Done }
}

fn fire(tree: &Tree, (no, row): (TaskNo, &TaskRow), timer: Timer, now: Time) -> Vec<Draft> {
    match timer {
        Timer::Call(index) => match row.open_call(index) {
            Some(call) => answer_to(tree, no, call),
            None => Vec::new(),
        },
        Timer::Stop => {
            let event = firmer(tree, no, row, now);
            let ends = matches!(event, Event::Ended { .. });
            let settled = if ends { unsettled(no, row) } else { None };
            settled.into_iter().chain([event.into()]).collect()
        }
        Timer::Limit => {
            let due = deadlines(tree, no, now).filter(|deadline| deadline.at <= now);
            let after = due.min_by_key(|deadline| deadline.at).map(|deadline| deadline.limit);
            let after = after.unwrap_or_default();
            fail(tree, no, Failure::Timeout { after }, now).into_iter().map(Draft::from).collect()
        }
        Timer::Stall => stalled(tree, (no, row), now),
        Timer::Backoff => vec![start_or_queue(tree, no, row).into()],
    }
}

/// A silence that is too long is told; then the task is spoken to, as often as its policy says, and
/// then it is ended.
fn stalled(tree: &Tree, (no, row): (TaskNo, &TaskRow), now: Time) -> Vec<Draft> {
    let Some(watch) = row.watch() else { return Vec::new() };
    // Work that is handed its messages would take a nudge for input.
    let hears = row.spec.work.conduct().inbox == InboxMode::Pull;
    let nudged = hears && row.nudged().times < watch.nudges;
    let mut drafts = vec![Event::Stalled { no, nudged }.into()];
    if nudged {
        let room = check_room(tree, Owner::Task(no)).is_ok();
        let message = room.then(|| nudge(tree, (no, row), watch, now));
        drafts.extend(message.map(|message| Event::MessageSent(message.into()).into()));
    } else if watch.then_stop {
        let failure = Failure::Stalled { quiet: now.since(row.moved) };
        drafts.extend(fail(tree, no, failure, now).map(Draft::from));
    }
    drafts
}

fn nudge(tree: &Tree, (no, row): (TaskNo, &TaskRow), watch: Watch, now: Time) -> Message {
    let quiet = spoken(now.since(row.moved));
    let next = match (row.nudged().times + 1 < watch.nudges, watch.then_stop) {
        (false, true) => format!(
            " If nothing happens for another {}, you are ended as stalled.",
            spoken(watch.after)
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
        from: Sender::Runtime,
        body: Json::of(&words).unwrap_or_else(|_| Json::null()),
        sent: now,
        purpose: Purpose::Note,
        interrupt: true,
        reply_to: None,
        last: false,
    }
}

fn firmer(tree: &Tree, no: TaskNo, row: &TaskRow, now: Time) -> Event {
    let forced = matches!(&row.state, State::Stopping(s) if s.stage == StopStage::Forced);
    match unconfirmed(row).filter(|_| forced) {
        None => Event::StopForced { no, deadline: now.after(FIRM_BOUND) },
        Some(_) if tree.living_below(no) > 0 => {
            Event::StopForced { no, deadline: now.after(LOOK_AGAIN) }
        }
        Some(outcome) => {
            Event::Ended { no, run: row.run, outcome: outcome.into(), lingering: true }
        }
    }
}
