//! Renews the lease of a node, and ends the leases of nodes that do not renew theirs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Node;
use crate::performer::{PerformerRegistry, TaskId};
use crate::view::CommittedView;

/// The longest time between two looks at the remaining lease. A timer does not count the time in which
/// the machine was suspended.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Renews the lease four times in its length.
pub(crate) async fn keep_lease(node: Arc<Node>) {
    loop {
        tokio::time::sleep(node.lease.length() / 4).await;
        if node.lease.is_held() {
            renew(&node).await;
        }
    }
}

/// Closes nodes whose lease is over. A close can wait for a commit that hangs, and must not delay the
/// renewals of this node.
pub(crate) async fn close_expired_nodes(node: Arc<Node>) {
    loop {
        tokio::time::sleep(node.lease.length() / 4).await;
        match node.fleet().close_expired().await {
            Ok(closed) => {
                for other in &closed {
                    tracing::warn!(node = other.name, "closed a node whose lease is over");
                }
                if !closed.is_empty() {
                    node.claimable.notify_one();
                    let _ = node.fleet().notify().await;
                }
            }
            Err(error) => tracing::debug!(%error, "expired nodes cannot be closed"),
        }
    }
}

async fn renew(node: &Node) {
    let id = node.id();
    let sent_at = node.lease.now();
    let before = node.clock.machine_now();
    match node.fleet().renew(id, &node.load()).await {
        Ok(Some(renewal)) => {
            node.lease.extend(id, sent_at);
            node.clock.correct(renewal.now, before);
            let was_draining = node.is_draining.swap(renewal.draining, Ordering::Relaxed);
            if renewal.draining != was_draining {
                tracing::info!(draining = renewal.draining, "the node changes");
                node.loops.iter().for_each(|it| it.drain_changed.notify_one());
            }
        }
        Ok(None) => {
            tracing::warn!(node = %id, "the lease of this node is over");
            node.lease.lose(id);
        }
        Err(error) => tracing::warn!(%error, "the lease cannot be renewed"),
    }
}

/// Halts all performers when the lease is lost: each time, before another node can own their sessions.
pub(crate) async fn halt_at_end(
    node: Arc<Node>,
    performers: PerformerRegistry,
    view: Arc<CommittedView>,
) {
    let mut halted = None;
    loop {
        let remaining = node.lease.remaining();
        if remaining.is_zero() && halted != Some(node.id()) {
            halted = Some(node.id());
            tracing::error!("the node has lost its lease and halts its work");
            for alive in view.alive_tasks() {
                halt(&performers, alive.task);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(remaining.clamp(Duration::from_millis(10), LOOK_INTERVAL)) => {}
            () = node.lease.wait_lost(), if halted.is_none() => {}
        }
    }
}

fn halt(performers: &PerformerRegistry, task: TaskId) {
    for performer in performers.all() {
        performer.halt(task);
    }
}
