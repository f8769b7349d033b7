//! The pending notifications of each notifier, by the time of their next attempt.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use brigade_model::ids::Time;

use super::pending_notification::QueuedNotification;

/// The most attempts of one notifier at the same time. A notifier that hangs delays no other one.
const RUNNING_MAX: usize = 4;

/// The pending notifications in memory, without their content.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    notifiers: BTreeMap<String, NotifierQueue>,
}

#[derive(Debug, Default)]
struct NotifierQueue {
    waiting: BTreeSet<(Time, String)>,
    /// The times of the waiting records; `None` for those with a running attempt.
    known: HashMap<String, Option<Time>>,
    running: usize,
}

impl SendQueue {
    /// Adds a notification, unless it is there.
    pub(super) fn add(&mut self, queued: QueuedNotification) {
        let queue = self.notifiers.entry(queued.notifier).or_default();
        if queue.known.contains_key(&queued.record) {
            return;
        }
        queue.known.insert(queued.record.clone(), Some(queued.due));
        queue.waiting.insert((queued.due, queued.record));
    }

    /// Takes a notification that is due, of a notifier that may make another attempt.
    pub(super) fn take_due(&mut self, now: Time) -> Option<QueuedNotification> {
        for (notifier, queue) in &mut self.notifiers {
            if queue.running >= RUNNING_MAX {
                continue;
            }
            let Some((due, _)) = queue.waiting.first() else { continue };
            if *due > now {
                continue;
            }
            let (due, record) = queue.waiting.pop_first()?;
            queue.known.insert(record.clone(), None);
            queue.running += 1;
            return Some(QueuedNotification { notifier: notifier.clone(), record, due });
        }
        None
    }

    /// Ends a running attempt. The notification has a next one, or is gone.
    pub(super) fn finish(&mut self, attempted: &QueuedNotification, next: Option<Time>) {
        let Some(queue) = self.notifiers.get_mut(&attempted.notifier) else { return };
        queue.running = queue.running.saturating_sub(1);
        queue.known.remove(&attempted.record);
        if let Some(due) = next {
            self.add(QueuedNotification { due, ..attempted.clone() });
        }
    }

    /// Returns the time at which an attempt is due that may begin then.
    pub(super) fn next_due(&self) -> Option<Time> {
        let free = self.notifiers.values().filter(|queue| queue.running < RUNNING_MAX);
        free.filter_map(|queue| queue.waiting.first()).map(|(due, _)| *due).min()
    }

    pub(super) fn len(&self) -> usize {
        self.notifiers.values().map(|queue| queue.known.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(notifier: &str, record: &str, due: u64) -> QueuedNotification {
        let (notifier, record) = (notifier.to_owned(), record.to_owned());
        QueuedNotification { notifier, record, due: Time(due) }
    }

    #[test]
    fn a_notification_is_taken_once_when_it_is_due() {
        let mut queue = SendQueue::default();
        queue.add(queued("a", "later", 9));
        queue.add(queued("a", "soon", 5));
        queue.add(queued("a", "soon", 6));
        assert_eq!((queue.len(), queue.next_due()), (2, Some(Time(5))));
        assert_eq!(queue.take_due(Time(4)), None);
        let taken = queue.take_due(Time(5)).unwrap();
        assert_eq!(taken, queued("a", "soon", 5));
        queue.add(queued("a", "soon", 1));
        assert_eq!(queue.take_due(Time(5)), None, "its attempt runs");
        queue.finish(&taken, Some(Time(8)));
        assert_eq!(queue.next_due(), Some(Time(8)));
        let again = queue.take_due(Time(8)).unwrap();
        queue.finish(&again, None);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_notifier_with_all_attempts_running_delays_no_other() {
        let mut queue = SendQueue::default();
        for number in 0..6 {
            queue.add(queued("hangs", &number.to_string(), 1));
        }
        queue.add(queued("works", "only", 2));
        let taken: Vec<_> = std::iter::from_fn(|| queue.take_due(Time(3))).collect();
        assert_eq!(taken.len(), RUNNING_MAX + 1);
        assert_eq!(taken.last().unwrap().notifier, "works");
        assert_eq!(queue.next_due(), None, "only an end makes the next attempt possible");
        queue.finish(&taken[0], None);
        assert_eq!(queue.next_due(), Some(Time(1)));
    }
}
