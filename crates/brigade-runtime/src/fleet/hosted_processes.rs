//! The processes of this host in sessions that other nodes may own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::SessionId;
use brigade_model::task::StoredTask;
use brigade_model::work::TaskKind;
use brigade_store::{StoreError, TaskQuery};
use tokio::sync::oneshot;

use super::Node;
use crate::loop_input::LoopInput;
use crate::loops::LoopSenders;
use crate::processes::{ProcessExecution, ProcessService};

/// The pause after a store that did not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Asks for the sessions of this host's processes after each join, and ends processes whose tasks have
/// ended without them.
pub(crate) async fn claim_hosted_processes(
    node: Arc<Node>,
    inputs: LoopSenders,
    processes: Arc<ProcessService>,
) {
    loop {
        while let Err(error) = claim_once(&node, &inputs, &processes).await {
            tracing::warn!(%error, "the sessions of this host cannot be read yet");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        node.joined_again.notified().await;
    }
}

/// Asks the owners for the sessions. They give them up as soon as nothing else of them runs there.
async fn claim_once(
    node: &Node,
    inputs: &LoopSenders,
    processes: &Arc<ProcessService>,
) -> Result<(), StoreError> {
    // An execution begins after its row was stored, so each of these is in the rows that are read next.
    let mut by_session: BTreeMap<SessionId, Vec<ProcessExecution>> = BTreeMap::new();
    for execution in processes.executions().await {
        by_session.entry(execution.task.session).or_default().push(execution);
    }
    for (session, executions) in by_session {
        let alive = alive_here(node, session).await?;
        processes.end_stale(stale_executions(executions, &alive));
        if alive.iter().any(|task| task.row.host().is_some()) {
            // Nobody waits for the reply: an owner that has gone is replaced by a claim.
            let (reply, _) = oneshot::channel();
            let _ =
                inputs.of(session).send(LoopInput::Move { session, to: node.id(), reply }).await;
        }
    }
    Ok(())
}

/// Returns the alive processes of a session that were not started on another host. An earlier version
/// stored no hosts.
async fn alive_here(node: &Node, session: SessionId) -> Result<Vec<StoredTask>, StoreError> {
    let query = TaskQuery { alive_only: true, ..TaskQuery::default() };
    let mut alive = node.store().tasks(session, &query).await?;
    alive.retain(|StoredTask { row, .. }| {
        let is_process = row.spec.work.kind() == TaskKind::Process;
        is_process && row.host().is_none_or(|host| node.host.is_same(host))
    });
    Ok(alive)
}

/// Returns the executions that are not the current one of an alive task.
fn stale_executions(
    mut executions: Vec<ProcessExecution>,
    alive: &[StoredTask],
) -> Vec<ProcessExecution> {
    executions.retain(|execution| {
        let found = alive.iter().find(|task| task.no == execution.task.no);
        found.is_none_or(|StoredTask { row, .. }| {
            row.run != execution.run || row.attempt != execution.attempt
        })
    });
    executions
}
