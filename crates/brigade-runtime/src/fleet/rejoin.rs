//! The loops of a node that has lost its lease: all give up their sessions, then one joins for all.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::{Lane, SessionId};

use super::Node;
use crate::loops::RejoinTurn;
use crate::supervisor::Supervisor;

/// The pause between two attempts to join again.
const REJOIN_PAUSE: Duration = Duration::from_millis(250);

impl Supervisor {
    /// Gives up all sessions after the lease was lost. When all loops have done so, the node joins the
    /// fleet again. Callers that wait get their results from the new owners.
    pub(crate) async fn rejoin(&mut self) {
        let Some(owned) = &self.owned else { return };
        let node = owned.node.clone();
        let ids: Vec<SessionId> =
            self.trees.keys().chain(self.discarded_trees.keys()).copied().collect();
        for id in ids {
            self.give_up_session(id);
        }
        if let Some(owned) = &mut self.owned {
            owned.recovered.clear();
            owned.failed_recoveries.clear();
            owned.moving.clear();
        }
        let mut wait = self.member.wait_to_rejoin();
        let turn = tokio::select! {
            biased;
            turn = wait.turn() => turn,
            () = self.shutdown_token.cancelled() => return,
            () = self.abandoned.cancelled() => return,
        };
        match turn {
            RejoinTurn::Lead => {
                let Some(lanes) = self.rejoin_for_all(&node).await else { return };
                self.feed.change_lanes(&lanes);
                wait.finish();
                node.claimable.notify_one();
                node.joined_again.notify_one();
            }
            RejoinTurn::Joined => drop(wait),
        }
        self.lane = node.lanes()[self.share.index];
    }

    /// Joins again for all loops. Returns `None` if the runtime ends before.
    async fn rejoin_for_all(&self, node: &Node) -> Option<Arc<[Lane]>> {
        node.served_calls.forget_all();
        loop {
            match node.rejoin().await {
                Ok(lanes) => return Some(lanes),
                Err(error) => tracing::warn!(%error, "the node cannot join again yet"),
            }
            if self.shutdown_token.is_cancelled() || self.abandoned.is_cancelled() {
                return None;
            }
            tokio::time::sleep(REJOIN_PAUSE).await;
        }
    }

    /// Finds out whether a refused commit means that this node is closed.
    pub(crate) async fn check_node(&mut self) {
        let Some(owned) = &self.owned else { return };
        let node = owned.node.clone();
        let id = node.id();
        match node.fleet().renew(id, &node.load()).await {
            Ok(Some(_)) => tracing::error!("a commit of an open lane was refused"),
            Ok(None) => node.lease.lose(id),
            Err(error) => tracing::warn!(%error, "the state of the node is unknown"),
        }
    }
}
