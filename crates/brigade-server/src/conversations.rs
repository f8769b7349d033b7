//! The conversations of clients, connected and lapsed ones.
//!
//! A client creates an id when it starts and sends it in every handshake. The daemon records the id
//! with each run, and delivers the results and messages of the run to that conversation. A
//! conversation without a connection for a minute has lapsed: another one of the same client takes
//! over. None of this is stored. A daemon's start therefore counts as its last contact with all
//! conversations, so that clients have a minute to reconnect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::ids::{ConversationId, Time};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_runtime::{Clock, Session};

use crate::request_context::{CallerIdentity, RequestContext};
use brigade_protocol::task_info::{ConversationInfo, ConversationState};

/// The time without a connection after which a conversation lapses.
pub(crate) const LAPSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The last contact with each conversation.
#[derive(Debug)]
pub(crate) struct ConversationRegistry {
    clock: Arc<dyn Clock>,
    started_at: Time,
    last_seen: Mutex<HashMap<ConversationId, LastSeen>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSeen {
    /// The number of its connections.
    Connected(usize),
    At(Time),
}

impl ConversationRegistry {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let started_at = clock.now();
        Arc::new(Self { clock, started_at, last_seen: Mutex::default() })
    }

    /// Counts a conversation as connected until the guard is dropped.
    pub(crate) fn connect(self: &Arc<Self>, id: ConversationId) -> ConversationGuard {
        let now = self.clock.now();
        let mut last_seen = self.lock_last_seen();
        // The daemon's start counts as the last contact of a removed entry, so that it stays
        // lapsed.
        if is_lapsed_since(self.started_at, now) {
            last_seen.retain(|_, last| match last {
                LastSeen::Connected(_) => true,
                LastSeen::At(at) => !is_lapsed_since(*at, now),
            });
        }
        let connections = match last_seen.get(&id) {
            Some(LastSeen::Connected(connections)) => connections + 1,
            Some(LastSeen::At(_)) | None => 1,
        };
        last_seen.insert(id.clone(), LastSeen::Connected(connections));
        drop(last_seen);
        ConversationGuard { conversations: self.clone(), id }
    }

    /// Returns the time at which the conversation lapses; `None` while it is connected.
    pub(crate) fn lapses_at(&self, id: &ConversationId) -> Option<Time> {
        let last = match self.lock_last_seen().get(id) {
            Some(LastSeen::Connected(_)) => return None,
            Some(LastSeen::At(at)) => *at,
            None => self.started_at,
        };
        Some(last.after(LAPSE_TIMEOUT.into()))
    }

    pub(crate) fn has_lapsed(&self, id: &ConversationId) -> bool {
        self.lapses_at(id).is_some_and(|at| at <= self.clock.now())
    }

    fn disconnect(&self, id: &ConversationId) {
        let now = self.clock.now();
        let mut last_seen = self.lock_last_seen();
        let last = match last_seen.get(id) {
            Some(LastSeen::Connected(connections)) if *connections > 1 => {
                LastSeen::Connected(connections - 1)
            }
            _ => LastSeen::At(now),
        };
        last_seen.insert(id.clone(), last);
    }

    fn lock_last_seen(&self) -> MutexGuard<'_, HashMap<ConversationId, LastSeen>> {
        self.last_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_lapsed_since(last: Time, now: Time) -> bool {
    last.after(LAPSE_TIMEOUT.into()) <= now
}

/// A connection of a conversation, which ends on drop.
#[derive(Debug)]
pub(crate) struct ConversationGuard {
    conversations: Arc<ConversationRegistry>,
    id: ConversationId,
}

impl Drop for ConversationGuard {
    fn drop(&mut self) {
        self.conversations.disconnect(&self.id);
    }
}

/// The conversations of a client in a session that another one takes over.
#[derive(Debug, Default)]
pub(crate) struct ConversationTakeover {
    pub(crate) lapsed: Vec<ConversationId>,
    /// The time at which the next conversation lapses, unless it reconnects.
    pub(crate) next_lapse_at: Option<Time>,
}

impl RequestContext {
    /// Returns true if this caller receives the results and messages of a task without naming it.
    /// The operator and tasks receive all.
    pub(crate) fn receives_from(&self, row: &TaskRow) -> bool {
        let conversations = &self.daemon.conversations;
        match (&self.caller, &row.client) {
            (CallerIdentity::Client(client), Some(starter)) => {
                client.receives_from(starter, |id| conversations.has_lapsed(id))
            }
            (CallerIdentity::Client(_), None) => false,
            (CallerIdentity::Operator | CallerIdentity::Task { .. }, _) => true,
        }
    }

    /// Returns true for a client that named its conversation.
    pub(crate) fn has_conversation(&self) -> bool {
        matches!(&self.caller, CallerIdentity::Client(client) if client.conversation.is_some())
    }

    /// Sleeps until a time of the clock that measures conversations; without a time, forever.
    pub(crate) async fn sleep_until(&self, time: Option<Time>) {
        match time {
            Some(time) => self.daemon.conversations.clock.sleep_until(time).await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn find_takeover(&self, session: &Session) -> ConversationTakeover {
        let CallerIdentity::Client(client) = &self.caller else {
            return ConversationTakeover::default();
        };
        let conversations = &self.daemon.conversations;
        let now = conversations.clock.now();
        let mut takeover = ConversationTakeover::default();
        for StoredTask { row, .. } in session.list() {
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
                Some(at) => {
                    takeover.next_lapse_at =
                        Some(takeover.next_lapse_at.map_or(at, |next| next.min(at)))
                }
                None => {}
            }
        }
        takeover
    }

    /// Describes the conversation that started a task, from the view of this caller.
    pub(crate) fn describe_conversation(&self, row: &TaskRow) -> Option<ConversationInfo> {
        let starter = row.client.as_ref()?;
        let own = match &self.caller {
            CallerIdentity::Client(client) => client == starter,
            CallerIdentity::Operator | CallerIdentity::Task { .. } => false,
        };
        let id = starter.conversation.as_ref();
        let state = match id {
            _ if own => ConversationState::Own,
            Some(id) if starter.is_unrecorded() || self.daemon.conversations.has_lapsed(id) => {
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
        text.parse().expect("a valid id")
    }

    #[test]
    fn a_conversation_lapses_a_minute_after_its_last_connection() {
        let clock = ManualClock::at(Time(1_000_000));
        let all = ConversationRegistry::new(Arc::new(clock.clone()));
        let one = all.connect(id("a"));
        let two = all.connect(id("a"));
        clock.advance(LAPSE_TIMEOUT * 10);
        assert!(!all.has_lapsed(&id("a")), "it is connected");
        drop(one);
        clock.advance(LAPSE_TIMEOUT * 10);
        assert!(!all.has_lapsed(&id("a")), "one connection remains");
        drop(two);
        clock.advance(LAPSE_TIMEOUT - Duration::from_millis(1));
        assert!(!all.has_lapsed(&id("a")));
        clock.advance(Duration::from_millis(1));
        assert!(all.has_lapsed(&id("a")));
        let _again = all.connect(id("a"));
        assert!(!all.has_lapsed(&id("a")));
    }

    #[test]
    fn after_a_start_conversations_have_a_minute_to_reconnect() {
        let clock = ManualClock::at(Time(1_000_000));
        let all = ConversationRegistry::new(Arc::new(clock.clone()));
        assert!(!all.has_lapsed(&id("never-seen")));
        clock.advance(LAPSE_TIMEOUT);
        assert!(all.has_lapsed(&id("never-seen")));
    }

    #[test]
    fn lapsed_conversations_are_removed() {
        let clock = ManualClock::at(Time(1_000_000));
        let all = ConversationRegistry::new(Arc::new(clock.clone()));
        for number in 0..100 {
            drop(all.connect(id(&format!("c{number}"))));
            clock.advance(LAPSE_TIMEOUT / 4);
        }
        assert!(all.lock_last_seen().len() < 10, "{} are kept", all.lock_last_seen().len());
        assert!(all.has_lapsed(&id("c0")));
    }
}
