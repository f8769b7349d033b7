//! The timers of sessions in the loop.

use std::collections::BTreeSet;

use brigade_model::id_map::IdMap;
use brigade_model::ids::{SessionId, Time};

/// The next due time of each session.
#[derive(Debug, Default)]
pub(crate) struct SessionTimers {
    ordered: BTreeSet<(Time, SessionId)>,
    by_session: IdMap<SessionId, Time>,
}

impl SessionTimers {
    pub(crate) fn set(&mut self, session: SessionId, due: Option<Time>) {
        if self.by_session.get(&session).copied() == due {
            return;
        }
        if let Some(old) = self.by_session.remove(&session) {
            self.ordered.remove(&(old, session));
        }
        if let Some(due) = due {
            self.by_session.insert(session, due);
            self.ordered.insert((due, session));
        }
    }

    pub(crate) fn first(&self) -> Option<Time> {
        self.ordered.first().map(|(due, _)| *due)
    }

    pub(crate) fn due(&self, now: Time) -> Vec<SessionId> {
        self.ordered
            .iter()
            .take_while(|(due, _)| *due <= now)
            .map(|(_, session)| *session)
            .collect()
    }
}
