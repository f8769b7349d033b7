//! The loop of a node that has lost its lease.

use std::time::Duration;

use brigade_model::ids::SessionId;

use crate::supervisor::Supervisor;

/// The pause between two attempts to join again.
const REJOIN_PAUSE: Duration = Duration::from_millis(250);

impl Supervisor {
    /// Gives up all sessions after the lease was lost, and joins the fleet again. Callers that wait get
    /// their results from the new owners.
    pub(crate) async fn rejoin(&mut self) {
        let Some(owned) = &self.owned else { return };
        let node = owned.node.clone();
        let ids: Vec<SessionId> =
            self.trees.keys().chain(self.discarded_trees.keys()).copied().collect();
        for id in ids {
            self.give_up_session(id);
        }
        node.served_calls.forget_all();
        if let Some(owned) = &mut self.owned {
            owned.recovered.clear();
            owned.failed_recoveries.clear();
            owned.moving.clear();
        }
        let lane = loop {
            match node.rejoin().await {
                Ok(lane) => break lane,
                Err(error) => tracing::warn!(%error, "the node cannot join again yet"),
            }
            if self.shutdown_token.is_cancelled() || self.abandoned.is_cancelled() {
                return;
            }
            tokio::time::sleep(REJOIN_PAUSE).await;
        };
        self.lane = lane;
        self.feed.change_lane(lane);
        node.claimable.notify_one();
        node.joined_again.notify_one();
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
