//! The time for which a node may act.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_store::NodeId;
use tokio::sync::Notify;

use crate::clock::Clock;

/// The lease of a node. Other nodes take its sessions after the end of the lease, so this node ends
/// what it performs a margin earlier.
#[derive(Debug)]
pub(crate) struct NodeLease {
    clock: Arc<dyn Clock>,
    length: Duration,
    state: Mutex<LeaseState>,
    /// Notified when the lease is lost.
    lost: Notify,
}

#[derive(Clone, Copy, Debug)]
struct LeaseState {
    node: NodeId,
    /// The end of the time for which the node may act, by the machine's running time.
    until: Duration,
    is_lost: bool,
}

impl NodeLease {
    /// Creates the lease of a node whose join was sent at this time.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        length: Duration,
        node: NodeId,
        sent_at: Duration,
    ) -> Self {
        let until = sent_at + usable(length);
        let state = LeaseState { node, until, is_lost: false };
        Self { clock, length, state: Mutex::new(state), lost: Notify::new() }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.lock().node
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Returns the time that a request of now is sent at.
    pub(crate) fn now(&self) -> Duration {
        self.clock.running_time()
    }

    /// Begins the lease of a node that has joined again.
    pub(crate) fn begin(&self, node: NodeId, sent_at: Duration) {
        *self.lock() = LeaseState { node, until: sent_at + usable(self.length), is_lost: false };
    }

    /// Extends the lease by a renewal, counted from before it was sent. A lost lease stays lost.
    pub(crate) fn extend(&self, node: NodeId, sent_at: Duration) {
        let mut state = self.lock();
        if state.node == node && !state.is_lost {
            state.until = state.until.max(sent_at + usable(self.length));
        }
    }

    /// Returns true if the node may act. Each effect asks: a timer does not run while the process is
    /// stopped.
    pub(crate) fn is_held(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// Returns true if the node may act, and has not joined again since it had this id.
    pub(crate) fn is_held_by(&self, node: NodeId) -> bool {
        self.is_held() && self.node() == node
    }

    /// Returns the time for which the node may act.
    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.lock();
        let remaining = state.until.saturating_sub(self.clock.running_time());
        if remaining.is_zero() && !state.is_lost {
            state.is_lost = true;
            self.lost.notify_waiters();
        }
        if state.is_lost { Duration::ZERO } else { remaining }
    }

    /// Ends the lease of a node, because the store has closed it.
    pub(crate) fn lose(&self, node: NodeId) {
        let mut state = self.lock();
        if state.node == node && !state.is_lost {
            state.is_lost = true;
            self.lost.notify_waiters();
        }
    }

    /// Waits until the lease is lost.
    pub(crate) async fn wait_lost(&self) {
        loop {
            let notified = self.lost.notified();
            if !self.is_held() {
                return;
            }
            notified.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the part of a lease in which the node may act: all but a fifth, for its performers to end.
fn usable(length: Duration) -> Duration {
    length - length / 5
}
