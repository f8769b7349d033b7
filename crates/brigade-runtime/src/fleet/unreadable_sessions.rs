//! Sessions that this node cannot read: a newer version wrote them, or they are damaged.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::ids::{Epoch, SessionId};
use brigade_model::task_tree::SessionRow;
use brigade_store::{SessionRelease, StoreError};

use super::while_held;
use crate::supervisor::Supervisor;

/// The time after which the node tries to read a session again. It doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_secs(30);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// The number of sessions above which those that may be claimed again are forgotten.
const SESSIONS_MAX: usize = 10_000;

/// The sessions that this node does not claim for some time, so that a node which can read them does.
#[derive(Debug, Default)]
pub(crate) struct UnreadableSessions(Mutex<HashMap<SessionId, UnreadableSession>>);

#[derive(Debug)]
struct UnreadableSession {
    /// The running time from which the node may claim the session again.
    until: Duration,
    pause: Duration,
    /// The end of the node's ownership, while it is not stored.
    release: Option<SessionRelease>,
}

/// Returns true for the error of a session that another node may be able to read.
pub(crate) fn is_unreadable(error: &StoreError) -> bool {
    matches!(error, StoreError::Newer { .. } | StoreError::Corrupt(_))
}

impl UnreadableSessions {
    /// Adds a session that this node owns, and is to release.
    pub(crate) fn add(&self, now: Duration, release: SessionRelease) {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, session| session.until > now || session.release.is_some());
        }
        let before = sessions.get(&release.id).map(|session| session.pause);
        let pause = before.map_or(PAUSE_MIN, |pause| (2 * pause).min(PAUSE_MAX));
        let session = UnreadableSession { until: now + pause, pause, release: Some(release) };
        sessions.insert(release.id, session);
    }

    /// Forgets a session that could be read.
    pub(crate) fn remove(&self, id: SessionId) {
        self.lock().remove(&id);
    }

    /// Returns the sessions that the node does not claim now.
    pub(crate) fn skipped(&self, now: Duration) -> Vec<SessionId> {
        let sessions = self.lock();
        let skipped = sessions.iter().filter(|(_, session)| session.until > now);
        skipped.map(|(id, _)| *id).collect()
    }

    /// Returns the releases that are not stored yet.
    pub(crate) fn releases(&self) -> Vec<SessionRelease> {
        self.lock().values().filter_map(|session| session.release).collect()
    }

    /// Notes that a release is stored, or refused.
    pub(crate) fn set_released(&self, id: SessionId) {
        if let Some(session) = self.lock().get_mut(&id) {
            session.release = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, UnreadableSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    /// Returns the error of a session that this node cannot read. If another node owns it, requests go
    /// there.
    pub(super) async fn find_reader(&mut self, id: SessionId, error: StoreError) -> StoreError {
        let now = self.clock.now();
        let Some(owned) = &mut self.owned else { return error };
        let ids = [id];
        let owners = while_held(Some(&owned.node), owned.node.fleet().owners(&ids)).await;
        let own = owned.node.id();
        if !owners.is_ok_and(|owners| owners.iter().any(|owner| owner.node != own)) {
            return error;
        }
        owned.elsewhere.insert(id, now);
        StoreError::Fenced(format!("session {id}"))
    }

    /// Plans the release of a session that this node has acquired and cannot read.
    pub(super) fn give_up_unreadable(&self, row: &SessionRow, epoch: Epoch) {
        let Some(owned) = &self.owned else { return };
        let release = SessionRelease {
            lane: self.lane,
            id: row.id,
            epoch,
            seq: row.seq,
            // Due at once, so that another node claims it.
            next_due: Some(self.clock.now()),
            next_owner: None,
        };
        owned.node.unreadable.add(owned.node.lease.now(), release);
        owned.node.claimable.notify_one();
    }
}
