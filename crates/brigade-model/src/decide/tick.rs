//! What the clock brings about, one timer at a time.

use super::budget::unsettled;
use super::spawn::start_or_queue;
use super::stop::{FIRM_BOUND, fail, unconfirmed};
use super::{Decision, Draft, Reply, answer_to};
use crate::event::Event;
use crate::ids::{Millis, TaskNo, Time};
use crate::outcome::Failure;
use crate::task::{State, StopStage, TaskRow};
use crate::tree::{Timer, Tree};

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
            let after = row.limits.as_ref().and_then(|limits| limits.time);
            let after = after.or(tree.row().limits.time).unwrap_or_default();
            fail(tree, no, Failure::Timeout { after }, now).into_iter().map(Draft::from).collect()
        }
        Timer::Stall => vec![Event::Stalled { no }.into()],
        Timer::Backoff => vec![start_or_queue(tree, no, row).into()],
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
