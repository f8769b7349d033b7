//! The lease under which an attempt was started.

use std::sync::Arc;

use brigade_model::refusal::Refusal;
use brigade_store::NodeId;

use super::Node;
use super::node::unheld_refusal;

/// The lease of an attempt. A process that was stopped for longer than its lease continues before any
/// timer has run, so each effect looks at the lease itself.
#[derive(Debug)]
pub(crate) struct AttemptLease {
    node: Arc<Node>,
    /// A node that has joined again has another id, and other attempts.
    id: NodeId,
}

impl AttemptLease {
    pub(crate) fn new(node: &Arc<Node>) -> Arc<Self> {
        Arc::new(Self { node: node.clone(), id: node.id() })
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self.node.lease.is_held_by(self.id) {
            true => Ok(()),
            false => Err(unheld_refusal()),
        }
    }
}
