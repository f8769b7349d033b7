//! The nodes of the fleet and the sessions that they own, as a caller sees them.

use std::collections::HashMap;

use brigade_model::ids::SessionId;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{NodeBody, NodeListBody};
use brigade_runtime::{NodeInfo, Session};

use crate::request_context::RequestContext;

/// The nodes that own sessions, and the labels that sessions require.
#[derive(Debug, Default)]
pub(crate) struct SessionPlacements {
    nodes: HashMap<SessionId, String>,
    labels: HashMap<SessionId, Vec<String>>,
}

impl SessionPlacements {
    pub(crate) fn node_of(&self, session: SessionId) -> Option<String> {
        self.nodes.get(&session).cloned()
    }

    pub(crate) fn labels_of(&self, session: SessionId) -> Vec<String> {
        self.labels.get(&session).cloned().unwrap_or_default()
    }
}

impl RequestContext {
    pub(crate) async fn list_nodes(&self) -> Result<NodeListBody, Refusal> {
        if self.session_scope.is_some() {
            return Err(Refusal::forbidden("a client's token does not see nodes"));
        }
        let mut nodes = self.runtime().nodes().await?;
        nodes.sort_by_cached_key(|node| (!node.row.open, node.row.name.clone(), node.row.id));
        let items = nodes.into_iter().map(new_node_body).collect();
        Ok(NodeListBody { fleet: self.runtime().is_in_fleet(), items })
    }

    /// Returns the node of a name that has not ended, or refuses.
    pub(crate) async fn find_node(&self, name: &str) -> Result<NodeBody, Refusal> {
        if !self.runtime().is_in_fleet() {
            return Err(Refusal::invalid(
                "this daemon is no node of a fleet; `--store postgres://…` makes it one",
            ));
        }
        let nodes = self.runtime().nodes().await?;
        let found = nodes.into_iter().find(|node| node.row.open && node.row.name == name);
        let found = found
            .ok_or_else(|| Refusal::not_found(format!("no running node is called {name:?}")))?;
        Ok(new_node_body(found))
    }

    /// Returns the nodes that own these sessions, and the required labels. A client's token sees none.
    pub(crate) async fn session_placements(
        &self,
        sessions: &[Session],
    ) -> Result<SessionPlacements, Refusal> {
        if self.session_scope.is_some() || !self.runtime().is_in_fleet() {
            return Ok(SessionPlacements::default());
        }
        let ids: Vec<SessionId> = sessions.iter().map(Session::id).collect();
        let owners = self.runtime().session_owners(&ids).await?;
        let nodes = self.runtime().nodes().await?;
        let names: HashMap<_, _> =
            nodes.into_iter().map(|node| (node.row.id, node.row.name)).collect();
        let owned = owners.into_iter().filter_map(|owner| {
            let name = names.get(&owner.node)?;
            Some((owner.session, name.clone()))
        });
        let required = self.runtime().required_labels(&ids).await?;
        Ok(SessionPlacements {
            nodes: owned.collect(),
            labels: required.into_iter().map(|it| (it.session, it.labels)).collect(),
        })
    }
}

fn new_node_body(node: NodeInfo) -> NodeBody {
    let lease_remaining = match node.row.open {
        true => node.lease_remaining().as_millis(),
        false => 0,
    };
    let state = match (node.row.open, lease_remaining, node.row.draining) {
        (false, _, _) => "ended",
        (true, 0, _) => "expired",
        (true, _, true) => "draining",
        (true, _, false) => "running",
    };
    let NodeInfo { row, is_own } = node;
    NodeBody {
        name: row.name,
        host: row.host,
        state: state.to_owned(),
        lease_remaining_ms: u64::try_from(lease_remaining).unwrap_or(u64::MAX),
        owned_sessions: row.owned_sessions,
        running_tasks: row.load.running,
        clock_skew_ms: row.load.skew_ms,
        clock_skew_warning: NodeBody::is_skew_excessive(row.load.skew_ms),
        version: row.version,
        labels: row.labels,
        capacity: row.capacity,
        joined_at: row.joined_at.into(),
        own: is_own,
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::Time;
    use brigade_store::{NodeId, NodeLoad, NodeRow};

    use super::*;

    const NOW: u64 = 1_000_000;

    fn node(open: bool, draining: bool, lease_until: u64, skew_ms: i64) -> NodeBody {
        let row = NodeRow {
            id: NodeId(1),
            name: "one".to_owned(),
            host: "kitchen".to_owned(),
            open,
            draining,
            labels: Vec::new(),
            capacity: None,
            version: "0.1.0".to_owned(),
            joined_at: Time(1),
            lease_until: Time(lease_until),
            now: Time(NOW),
            load: NodeLoad { sessions: 5, running: 2, skew_ms },
            owned_sessions: 3,
        };
        new_node_body(NodeInfo { row, is_own: false })
    }

    #[test]
    fn the_state_of_a_node_follows_from_its_lease() {
        for (open, draining, lease_until, state, remaining) in [
            (true, false, NOW + 700, "running", 700),
            (true, true, NOW + 1, "draining", 1),
            (true, false, NOW, "expired", 0),
            (true, true, NOW - 5_000, "expired", 0),
            (false, false, NOW + 700, "ended", 0),
            (false, true, NOW - 5_000, "ended", 0),
        ] {
            let body = node(open, draining, lease_until, 0);
            assert_eq!((body.state.as_str(), body.lease_remaining_ms), (state, remaining));
        }
    }

    #[test]
    fn the_load_of_a_node_is_that_of_its_last_renewal() {
        let body = node(true, false, NOW + 700, -1_500);
        assert_eq!((body.owned_sessions, body.running_tasks), (3, 2));
        assert_eq!((body.clock_skew_ms, body.clock_skew_warning), (-1_500, true));
    }
}
