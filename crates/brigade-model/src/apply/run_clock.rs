//! The clock of a run's time limit, as its row has it.

use crate::ids::{Millis, Time};
use crate::task::{RunClock, TaskRow, TaskState};

/// Adjusts the clock to a new limit. Time that was counted under the old limit counts under the new
/// one too.
pub(super) fn change_clock(
    row: &mut TaskRow,
    before: Option<Millis>,
    after: Option<Millis>,
    at: Time,
) {
    let changed = |remaining: u64, before: Millis, after: Millis| {
        remaining.saturating_add(after.0).saturating_sub(before.0)
    };
    let clock = match (row.clock(), before, after) {
        (_, _, None) => RunClock::Unlimited,
        (RunClock::Ticking { until }, Some(before), Some(after)) => {
            RunClock::Ticking { until: Time(changed(until.0, before, after)) }
        }
        (RunClock::Stopped { remaining }, Some(before), Some(after)) => {
            RunClock::Stopped { remaining: Millis(changed(remaining.0, before, after)) }
        }
        (_, _, Some(remaining)) if matches!(row.state, TaskState::Queued(_)) => {
            RunClock::Stopped { remaining }
        }
        (_, _, Some(remaining)) => RunClock::Ticking { until: at.after(remaining) },
    };
    if clock != row.clock() {
        row.extras_mut().clock = clock;
    }
}

pub(super) fn set_clock(row: &mut TaskRow, time: Option<Millis>, at: Time) {
    let clock = match time {
        None => RunClock::Unlimited,
        Some(remaining) if matches!(row.state, TaskState::Running) => {
            RunClock::Ticking { until: at.after(remaining) }
        }
        Some(remaining) => RunClock::Stopped { remaining },
    };
    if clock != row.clock() {
        row.extras_mut().clock = clock;
    }
}

pub(super) fn stop_clock(row: &mut TaskRow, at: Time) {
    if let Some(extra) = &mut row.extras
        && let RunClock::Ticking { until } = extra.clock
    {
        extra.clock = RunClock::Stopped { remaining: until.since(at) };
    }
}
