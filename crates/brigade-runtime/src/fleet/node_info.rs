//! Nodes as people and programs see them.

use std::time::Duration;

use brigade_model::ids::SessionId;
use brigade_model::refusal::Refusal;
use brigade_store::{NodeRow, RequiredLabels, SessionOwner};
use tokio::sync::oneshot;

use super::node_options::check_required_labels;
use crate::error::{in_doubt_refusal, shutdown_refusal, store_refusal};
use crate::loop_input::LoopInput;
use crate::runtime::Runtime;

/// A node of the fleet, as the store knows it.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    pub row: NodeRow,
    /// True for the node of this runtime.
    pub is_own: bool,
}

impl NodeInfo {
    /// Returns the remaining time of the lease; zero if it is over.
    pub fn lease_remaining(&self) -> Duration {
        self.row.lease_until.since(self.row.now).into()
    }
}

impl Runtime {
    /// Returns true if this runtime shares its store with others, as a node of a fleet.
    pub fn is_in_fleet(&self) -> bool {
        self.inner.node.is_some()
    }

    /// Returns the nodes that share the store, by ascending id. Without a fleet there are none.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, Refusal> {
        let Some(node) = &self.inner.node else { return Ok(Vec::new()) };
        let rows = node.fleet().nodes().await.map_err(|e| store_refusal(&e))?;
        let own = node.id();
        Ok(rows.into_iter().map(|row| NodeInfo { is_own: row.id == own, row }).collect())
    }

    /// Returns the owners of these sessions. A session at rest has none.
    pub async fn session_owners(
        &self,
        sessions: &[SessionId],
    ) -> Result<Vec<SessionOwner>, Refusal> {
        let Some(node) = &self.inner.node else { return Ok(Vec::new()) };
        node.fleet().owners(sessions).await.map_err(|e| store_refusal(&e))
    }

    /// Lets a node claim no more sessions and give up those at rest, or undoes that.
    pub async fn drain_node(&self, name: &str, draining: bool) -> Result<(), Refusal> {
        let found = self.open_node(name).await?;
        let node = self.inner.node.as_ref().ok_or_else(no_fleet)?;
        let set = node.fleet().set_draining(found.row.id, draining).await;
        match set.map_err(|e| store_refusal(&e))? {
            true => Ok(()),
            false => Err(Refusal::not_found(format!("the node {name:?} has just ended"))),
        }
    }

    /// Gives a session to a node. The owner does so as soon as nothing of the session runs there: all
    /// its tasks wait or have ended.
    pub async fn move_session(&self, session: SessionId, to: &str) -> Result<(), Refusal> {
        let NodeInfo { row, .. } = self.open_node(to).await?;
        if row.draining {
            return Err(Refusal::conflict(format!("the node {to:?} drains and takes no session")));
        }
        let to = row.id;
        self.check_lease()?;
        let (reply, received) = oneshot::channel();
        let input = LoopInput::Move { session, to, reply };
        self.inner.inputs.of(session).send(input).await.map_err(|_| shutdown_refusal())?;
        received.await.map_err(|_| in_doubt_refusal())?.map(|_| ())
    }

    /// Sets the labels that a node must have to own a session, in place of earlier ones. If the owner
    /// has not all of them, the session moves to a node that has, as soon as nothing of it runs.
    ///
    /// Returns the node to which it moves. While no node has the labels, the session stays with its
    /// owner, and without an owner its requests wait for such a node.
    pub async fn require_labels(
        &self,
        session: SessionId,
        labels: &[String],
    ) -> Result<Option<NodeInfo>, Refusal> {
        let node = self.inner.node.as_ref().ok_or_else(no_fleet)?;
        check_required_labels(labels)?;
        let set = node.fleet().require_labels(session, labels).await;
        if !set.map_err(|e| store_refusal(&e))? {
            return Err(Refusal::not_found("the session is not stored any more"));
        }
        let has_labels = |node: &NodeInfo| labels.iter().all(|it| node.row.labels.contains(it));
        let owners = self.session_owners(&[session]).await?;
        let nodes = self.nodes().await?;
        let owner =
            owners.first().and_then(|owner| nodes.iter().find(|it| it.row.id == owner.node));
        if owner.is_none_or(has_labels) {
            return Ok(None);
        }
        let next = nodes.iter().find(|it| it.row.open && !it.row.draining && has_labels(it));
        if let Some(next) = next {
            self.move_session(session, &next.row.name).await?;
        }
        Ok(next.cloned())
    }

    /// Returns the labels that sessions require. Sessions that require none are missing.
    pub async fn required_labels(
        &self,
        sessions: &[SessionId],
    ) -> Result<Vec<RequiredLabels>, Refusal> {
        let Some(node) = &self.inner.node else { return Ok(Vec::new()) };
        node.fleet().required_labels(sessions).await.map_err(|e| store_refusal(&e))
    }

    /// Returns the open node of a name.
    pub(crate) async fn open_node(&self, name: &str) -> Result<NodeInfo, Refusal> {
        if self.inner.node.is_none() {
            return Err(no_fleet());
        }
        let nodes = self.nodes().await?;
        let found = nodes.into_iter().find(|node| node.row.open && node.row.name == name);
        found.ok_or_else(|| Refusal::not_found(format!("no running node is called {name:?}")))
    }
}

fn no_fleet() -> Refusal {
    Refusal::invalid("this runtime is no node of a fleet")
}
