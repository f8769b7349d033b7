//! The ends of processes on other hosts, while this node owns their sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::command::AttemptReport;
use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::task::TaskRow;
use futures_util::future::join_all;

use super::host_watch::is_elsewhere;
use super::{HostClient, Node};
use crate::performer::{Reporter, TaskId};
use crate::processes::{
    CommandDescription, FIND_ENDS_MAX, HostEnd, HostProcess, HostReply, HostRequest,
    ProcessExecution, StartRecorded,
};
use crate::supervisor::Supervisor;

/// The time between two questions to a host.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The processes on other hosts whose ends this node waits for.
#[derive(Debug, Default)]
pub(super) struct HostEnds(Mutex<HashMap<TaskId, AwaitedEnd>>);

#[derive(Clone, Debug)]
struct AwaitedEnd {
    host: Arc<str>,
    process: HostProcess,
    reporter: Reporter,
}

impl Supervisor {
    /// Asks the host of a process from now on whether it has ended. Nobody else tells this node.
    pub(crate) fn await_end_at_host(&self, id: SessionId, no: TaskNo) {
        let Some(row) = self.trees.get(&id).and_then(|tree| tree.get(no)) else { return };
        let Some(owned) = &self.owned else { return };
        let is_awaited = |row: &&TaskRow| row.is_performed() && is_elsewhere(row, &owned.node.host);
        let Some(host) = Some(row).filter(is_awaited).and_then(|row| row.host()).cloned() else {
            return;
        };
        let task = TaskId { session: id, no };
        let execution = ProcessExecution { task, run: row.run, attempt: row.attempt };
        let process = HostProcess {
            execution: execution.into(),
            names: CommandDescription::from_work(&row.spec.work),
            was_started: StartRecorded::of_row(row) == StartRecorded::Yes,
        };
        let reporter = self.reporter(task, row.attempt);
        owned.node.host_ends.lock().insert(task, AwaitedEnd { host, process, reporter });
    }
}

impl HostEnds {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, AwaitedEnd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the processes of a session that this node has given up.
    pub(super) fn forget(&self, session: SessionId) {
        self.lock().retain(|task, _| task.session != session);
    }

    /// Returns the awaited processes by host.
    fn by_host(&self) -> HashMap<Arc<str>, Vec<AwaitedEnd>> {
        let mut by_host: HashMap<Arc<str>, Vec<AwaitedEnd>> = HashMap::new();
        for awaited in self.lock().values() {
            by_host.entry(awaited.host.clone()).or_default().push(awaited.clone());
        }
        by_host
    }
}

/// Asks the hosts for the ends of their processes, and reports them.
pub(super) async fn watch_host_ends(node: Arc<Node>) {
    let client = HostClient::new(node.clone());
    loop {
        tokio::time::sleep(ASK_INTERVAL).await;
        if node.lease.is_held() {
            let asked = node.host_ends.by_host();
            join_all(asked.iter().map(|(host, awaited)| ask(&node, &client, host, awaited))).await;
        }
    }
}

async fn ask(node: &Node, client: &HostClient, host: &str, awaited: &[AwaitedEnd]) {
    for part in awaited.chunks(FIND_ENDS_MAX) {
        let running = part.iter().map(|it| it.process.clone()).collect();
        let ends = match client.ask_host(host, &HostRequest::FindEnds(running)).await {
            Ok(HostReply::Ends(ends)) => ends,
            Ok(_) => return,
            // A host that is away shows as such.
            Err(refusal) => return tracing::debug!(%refusal, "a host does not answer"),
        };
        for HostEnd { execution, end } in ends {
            let found = part.iter().find(|it| it.process.execution == execution);
            if let Some(AwaitedEnd { reporter, .. }) = found {
                node.host_ends.lock().remove(&reporter.task);
                reporter.post(AttemptReport::Ended(end)).await;
            }
        }
    }
}
