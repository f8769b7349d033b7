//! The readiness of a task, and the end of a wait for it.

use crate::call::WaitMode;
use crate::ids::Time;

/// The readiness of the latest run of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It may become ready.
    Pending,
    Ready(Time),
    /// It has ended and was not ready before.
    EndedBefore,
}

impl Readiness {
    /// Returns whether a wait for tasks with this readiness is over. A wait for all of them ends with
    /// the first that can no longer become ready.
    pub fn is_wait_over(mode: WaitMode, tasks: impl IntoIterator<Item = Self>) -> bool {
        let mut tasks = tasks.into_iter().peekable();
        if tasks.peek().is_none() {
            return true;
        }
        match mode {
            WaitMode::Any => tasks.any(|task| task != Self::Pending),
            WaitMode::All => {
                let mut is_pending = false;
                for task in tasks {
                    match task {
                        Self::EndedBefore => return true,
                        Self::Pending => is_pending = true,
                        Self::Ready(_) => {}
                    }
                }
                !is_pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_first_task_that_decides_it() {
        use Readiness::{EndedBefore, Pending};
        let ready = Readiness::Ready(Time(1));
        let table: [(&[Readiness], bool, bool); 6] = [
            (&[], true, true),
            (&[Pending], false, false),
            (&[Pending, ready], true, false),
            (&[ready, ready], true, true),
            (&[Pending, EndedBefore], true, true),
            (&[EndedBefore, ready], true, true),
        ];
        for (tasks, any, all) in table {
            let is_over = |mode| Readiness::is_wait_over(mode, tasks.iter().copied());
            assert_eq!((is_over(WaitMode::Any), is_over(WaitMode::All)), (any, all), "{tasks:?}");
        }
    }
}
