//! The conversations of clients: which are connected, and which have lapsed.
//!
//! A client makes an id when it starts and sends it in every handshake. What it starts is recorded with
//! that id, and results and messages go to that conversation unasked. A conversation that nobody has
//! seen for a minute has lapsed: another one of the same client takes over. Nothing of this is stored. A
//! daemon that has just started has seen nobody, so its start counts as the time at which each
//! conversation was last seen: clients have a minute to connect again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::ids::{ConversationId, Time};
use brigade_model::task::TaskRow;
use brigade_runtime::{Clock, Session};

use crate::desk::{Desk, Who};
use crate::info::{ConversationInfo, ConversationState};

/// How long a conversation is not seen before another may take over.
pub(crate) const LAPSES_AFTER: Duration = Duration::from_secs(60);

/// What the daemon knows of conversations.
#[derive(Debug)]
pub(crate) struct Conversations {
    clock: Arc<dyn Clock>,
    began: Time,
    seen: Mutex<HashMap<ConversationId, LastSeen>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSeen {
    /// It has so many connections.
    Connected(usize),
    At(Time),
}

impl Conversations {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let began = clock.now();
        Arc::new(Self { clock, began, seen: Mutex::default() })
    }

    /// Counts a conversation as connected for as long as the guard lives.
    pub(crate) fn enter(self: &Arc<Self>, id: ConversationId) -> ConversationGuard {
        let now = self.clock.now();
        let mut seen = self.seen();
        // Forgotten, they were last seen at the daemon's start, which is as long ago or longer.
        if has_passed(self.began, now) {
            seen.retain(|_, last| match last {
                LastSeen::Connected(_) => true,
                LastSeen::At(at) => !has_passed(*at, now),
            });
        }
        let connections = match seen.get(&id) {
            Some(LastSeen::Connected(connections)) => connections + 1,
            Some(LastSeen::At(_)) | None => 1,
        };
        seen.insert(id.clone(), LastSeen::Connected(connections));
        drop(seen);
        ConversationGuard { conversations: self.clone(), id }
    }

    /// The time from which on another conversation takes over. None while this one is connected.
    pub(crate) fn lapses_at(&self, id: &ConversationId) -> Option<Time> {
        let last = match self.seen().get(id) {
            Some(LastSeen::Connected(_)) => return None,
            Some(LastSeen::At(at)) => *at,
            None => self.began,
        };
        Some(last.after(LAPSES_AFTER.into()))
    }

    pub(crate) fn has_lapsed(&self, id: &ConversationId) -> bool {
        self.lapses_at(id).is_some_and(|at| at <= self.clock.now())
    }

    fn leave(&self, id: &ConversationId) {
        let now = self.clock.now();
        let mut seen = self.seen();
        let last = match seen.get(id) {
            Some(LastSeen::Connected(connections)) if *connections > 1 => {
                LastSeen::Connected(connections - 1)
            }
            _ => LastSeen::At(now),
        };
        seen.insert(id.clone(), last);
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<ConversationId, LastSeen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_passed(last: Time, now: Time) -> bool {
    last.after(LAPSES_AFTER.into()) <= now
}

/// A connection of a conversation.
#[derive(Debug)]
pub(crate) struct ConversationGuard {
    conversations: Arc<Conversations>,
    id: ConversationId,
}

impl Drop for ConversationGuard {
    fn drop(&mut self) {
        self.conversations.leave(&self.id);
    }
}

/// The conversations that a client takes over from in a session.
#[derive(Debug, Default)]
pub(crate) struct Takeover {
    pub(crate) lapsed: Vec<ConversationId>,
    /// When the next one lapses, unless it connects again.
    pub(crate) next: Option<Time>,
}

impl Desk {
    /// Whether the results and messages of a task come to this client unasked, as to whoever acts for
    /// all.
    pub(crate) fn takes_from(&self, row: &TaskRow) -> bool {
        let conversations = &self.shared.conversations;
        match (&self.who, &row.client) {
            (Who::Client(client), Some(starter)) => {
                client.takes_from(starter, |id| conversations.has_lapsed(id))
            }
            (Who::Client(_), None) => false,
            (Who::Operator | Who::Task { .. }, _) => true,
        }
    }

    /// Whether this is a client that said in which of its conversations it is.
    pub(crate) fn has_conversation(&self) -> bool {
        matches!(&self.who, Who::Client(client) if client.conversation.is_some())
    }

    /// Returns when it is so late, by the clock by which conversations lapse.
    pub(crate) async fn sleep_until(&self, time: Option<Time>) {
        match time {
            Some(time) => self.shared.conversations.clock.sleep_until(time).await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn takeover(&self, session: &Session) -> Takeover {
        let Who::Client(client) = &self.who else { return Takeover::default() };
        let conversations = &self.shared.conversations;
        let now = conversations.clock.now();
        let mut takeover = Takeover::default();
        for (_, row) in session.list() {
            let Some(starter) = row.client.as_ref().filter(|starter| starter.name == client.name)
            else {
                continue;
            };
            let Some(id) = starter.conversation.as_ref() else { continue };
            if starter.conversation == client.conversation || takeover.lapsed.contains(id) {
                continue;
            }
            match conversations.lapses_at(id) {
                Some(at) if at <= now => takeover.lapsed.push(id.clone()),
                Some(at) => takeover.next = Some(takeover.next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        takeover
    }

    /// The conversation in which a task was started, as this client sees it.
    pub(crate) fn conversation_of(&self, row: &TaskRow) -> Option<ConversationInfo> {
        let starter = row.client.as_ref()?;
        let own = match &self.who {
            Who::Client(client) => client == starter,
            Who::Operator | Who::Task { .. } => false,
        };
        let id = starter.conversation.as_ref();
        let state = match id {
            _ if own => ConversationState::Own,
            Some(id) if starter.is_unrecorded() || self.shared.conversations.has_lapsed(id) => {
                ConversationState::Lapsed
            }
            Some(_) | None => ConversationState::Other,
        };
        Some(ConversationInfo { id: id.map(ToString::to_string).unwrap_or_default(), state })
    }
}

#[cfg(test)]
mod tests {
    use brigade_testkit::ManualClock;

    use super::*;

    fn id(text: &str) -> ConversationId {
        text.parse().expect("it is an id")
    }

    #[test]
    fn a_conversation_lapses_a_minute_after_its_last_connection() {
        let clock = ManualClock::at(Time(1_000_000));
        let all = Conversations::new(Arc::new(clock.clone()));
        let (one, two) = (all.enter(id("a")), all.enter(id("a")));
        clock.advance(LAPSES_AFTER * 10);
        assert!(!all.has_lapsed(&id("a")), "it is connected");
        drop(one);
        clock.advance(LAPSES_AFTER * 10);
        assert!(!all.has_lapsed(&id("a")), "one is left");
        drop(two);
        clock.advance(LAPSES_AFTER - Duration::from_millis(1));
        assert!(!all.has_lapsed(&id("a")));
        clock.advance(Duration::from_millis(1));
        assert!(all.has_lapsed(&id("a")));
        let _again = all.enter(id("a"));
        assert!(!all.has_lapsed(&id("a")));
    }

    #[test]
    fn after_a_start_all_have_a_minute_to_connect_again() {
        let clock = ManualClock::at(Time(1_000_000));
        let all = Conversations::new(Arc::new(clock.clone()));
        assert!(!all.has_lapsed(&id("never-seen")));
        clock.advance(LAPSES_AFTER);
        assert!(all.has_lapsed(&id("never-seen")));
    }

    #[test]
    fn lapsed_conversations_are_forgotten() {
        let clock = ManualClock::at(Time(1_000_000));
        let all = Conversations::new(Arc::new(clock.clone()));
        for at in 0..100 {
            drop(all.enter(id(&format!("c{at}"))));
            clock.advance(LAPSES_AFTER / 4);
        }
        assert!(all.seen().len() < 10, "{} are kept", all.seen().len());
        assert!(all.has_lapsed(&id("c0")));
    }
}
