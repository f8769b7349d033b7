//! The hosts of processes that other nodes started: the nodes that are there now, and those that were.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::{Command, HostAbsence, RecoverCommand, RecoveryFinding};
use brigade_model::ids::{Millis, SessionId, TaskNo, Time};
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::TaskTree;
use brigade_store::NodeRow;

use super::node_options::DEFAULT_HOST_GRACE;
use super::{Node, NodeHost, while_held};
use crate::commit::Decided;
use crate::error::store_refusal;
use crate::loop_input::LoopInput;
use crate::loops::LoopSenders;
use crate::supervisor::Supervisor;

/// The time between two looks at the nodes while a held session has processes of another host.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of looks after which the loop gets the nodes although nothing has changed. A commit of
/// what it decided before may have failed.
const REPEAT_INTERVAL: u32 = 15;
/// The time for which the nodes of one look are used.
const NODES_KNOWN: Millis = Millis(500);
/// The time after which a session without an owner gets one, if a process of it runs on a host that
/// had a node. Nobody looks at the host meanwhile.
const HOST_CHECK_INTERVAL: Millis = Millis(60_000);

/// The nodes of the fleet at one time.
#[derive(Debug)]
pub(super) struct KnownNodes {
    read_at: Time,
    nodes: Arc<[NodeRow]>,
}

/// Returns true for the same state directory, also if its machine was renamed.
pub(crate) fn is_same_host(one: &str, other: &str) -> bool {
    host_id(one) == host_id(other)
}

fn host_id(host: &str) -> &str {
    host.rsplit('/').next().unwrap_or(host)
}

/// Returns the name of the machine of a host.
pub(crate) fn machine_name(host: &str) -> &str {
    host.rsplit_once('/').map_or(host, |(machine, _)| machine)
}

/// Returns the open node of a host.
pub(crate) fn open_node_of<'a>(nodes: &'a [NodeRow], host: &str) -> Option<&'a NodeRow> {
    nodes.iter().find(|node| node.open && is_same_host(&node.host, host))
}

/// Returns what is known of a host without an open node.
pub(crate) fn absence_of(nodes: &[NodeRow], host: &str, grace: Duration) -> HostAbsence {
    let of_host = nodes.iter().filter(|node| is_same_host(&node.host, host));
    let last = of_host.max_by_key(|node| node.id);
    HostAbsence {
        node: last.map_or_else(|| machine_name(host), |node| &node.name).into(),
        last_seen: last.map(|node| node.lease_until.min(node.now)),
        grace: grace.into(),
    }
}

/// Returns the time at which a session without an owner needs a look at the hosts of its processes.
pub(super) fn next_host_check(tree: &TaskTree, host: &NodeHost, now: Time) -> Option<Time> {
    let runs_elsewhere = tree.rows().any(|(_, row)| row.is_performed() && is_elsewhere(row, host));
    runs_elsewhere.then(|| now.after(HOST_CHECK_INTERVAL))
}

/// Returns true for a process that was started on another host.
pub(super) fn is_elsewhere(row: &TaskRow, host: &NodeHost) -> bool {
    row.host().is_some_and(|started_on| !host.is_same(started_on))
}

impl Supervisor {
    /// Returns the finding about work of a session that was started on another host.
    pub(crate) async fn find_host(
        &mut self,
        id: SessionId,
        host: &str,
    ) -> Result<RecoveryFinding, Refusal> {
        let now = self.clock.now();
        let Some(owned) = &mut self.owned else {
            let absence = absence_of(&[], host, DEFAULT_HOST_GRACE);
            return Ok(RecoveryFinding::HostAway(absence));
        };
        owned.note_hosted_elsewhere(id);
        let known = owned.known_nodes.as_ref();
        let known = known.filter(|known| now.since(known.read_at) < NODES_KNOWN);
        let nodes: Arc<[NodeRow]> = match known {
            Some(known) => known.nodes.clone(),
            None => {
                let read = while_held(Some(&owned.node), owned.node.fleet().nodes()).await;
                let nodes: Arc<[NodeRow]> = read.map_err(|error| store_refusal(&error))?.into();
                owned.known_nodes = Some(KnownNodes { read_at: now, nodes: nodes.clone() });
                nodes
            }
        };
        Ok(match open_node_of(&nodes, host) {
            Some(node) => {
                if !node.draining {
                    // The session goes to its process as soon as nothing of it runs here.
                    owned.moving.entry(id).or_insert(node.id);
                }
                RecoveryFinding::HostPresent
            }
            None => {
                let grace = owned.node.options.host_grace;
                RecoveryFinding::HostAway(absence_of(&nodes, host, grace))
            }
        })
    }

    /// Decides for the processes of other hosts whether their hosts are there.
    pub(crate) async fn decide_hosts(
        &mut self,
        nodes: Arc<[NodeRow]>,
        now: Time,
        decided: &mut Decided,
    ) {
        let Some(owned) = &mut self.owned else { return };
        owned.known_nodes = Some(KnownNodes { read_at: now, nodes });
        let sessions: Vec<SessionId> = owned.hosted_elsewhere.iter().copied().collect();
        for id in sessions {
            self.decide_hosts_of(id, now, decided).await;
        }
    }

    async fn decide_hosts_of(&mut self, id: SessionId, now: Time, decided: &mut Decided) {
        let (Some(tree), Some(owned)) = (self.trees.get(&id), &mut self.owned) else { return };
        let host = &owned.node.host;
        let is_hosted =
            |row: &TaskRow| (row.is_performed() || row.away().is_some()) && is_elsewhere(row, host);
        let hosted = tree.rows().filter(|(_, row)| is_hosted(row));
        let hosted: Vec<(TaskNo, Arc<str>)> =
            hosted.filter_map(|(no, row)| Some((no, row.host()?.clone()))).collect();
        if hosted.is_empty() {
            owned.forget_hosted_elsewhere(id);
            return;
        }
        let before = (tree.row().seq, owned.moving.contains_key(&id));
        for (no, host) in hosted.into_iter().rev() {
            let finding = match self.find_host(id, &host).await {
                Ok(finding) => finding,
                Err(refusal) => return tracing::debug!(%refusal, "the hosts are looked at again"),
            };
            let is_present = matches!(finding, RecoveryFinding::HostPresent);
            let row = self.trees.get(&id).and_then(|tree| tree.get(no));
            if is_present && row.is_some_and(|row| row.is_unattended()) {
                continue;
            }
            let command = Command::Recover(RecoverCommand { no, finding });
            let _ = self.decide(id, (&command).into(), now, decided).await;
            #[cfg(feature = "processes")]
            if is_present {
                self.await_end_at_host(id, no);
            }
        }
        let seq = self.trees.get(&id).map(|tree| tree.row().seq);
        let is_moving = self.owned.as_ref().is_some_and(|owned| owned.moving.contains_key(&id));
        // A look that changes nothing does not delay the release of a session at rest.
        if seq.is_none_or(|seq| (seq, is_moving) != before) {
            decided.loaded_sessions.push(id);
        }
    }
}

/// Gives the loops the nodes when hosts come and go, while they have sessions with processes of other hosts.
pub(super) async fn watch_hosts(node: Arc<Node>, inputs: LoopSenders) {
    let mut known: Option<BTreeSet<String>> = None;
    let mut looks: u32 = 0;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        if !node.has_hosted_elsewhere() {
            known = None;
            continue;
        }
        if !node.lease.is_held() {
            continue;
        }
        let nodes = match node.fleet().nodes().await {
            Ok(nodes) => nodes,
            Err(error) => {
                tracing::debug!(%error, "the hosts of processes cannot be read");
                continue;
            }
        };
        let open = nodes.iter().filter(|node| node.open).map(|node| node.host.clone()).collect();
        looks += 1;
        if known.as_ref() != Some(&open) || looks >= REPEAT_INTERVAL {
            known = Some(open);
            looks = 0;
            let nodes: Arc<[NodeRow]> = nodes.into();
            inputs.send_all(|| LoopInput::Hosts(nodes.clone())).await;
        }
    }
}
