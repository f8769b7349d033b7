//! Executions whose tasks have ended without them: this host was away, and the session went on.

use std::sync::Arc;
use std::time::Duration;

use brigade_process::{FoundExecution, Shim, ShimOrder, find_execution};
use futures_util::future::join_all;

use super::driver::run_blocking;
use super::execution_dirs::{ExecutionDirs, ProcessExecution};
use super::performer::{DEFAULT_GRACE, ProcessService};
use super::probe::ExecutionProbe;
use super::report::CommandDescription;

/// The time that a killed shim may take to end its process tree.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

impl ProcessService {
    /// Returns all executions that have a directory.
    pub(crate) async fn executions(&self) -> Vec<ProcessExecution> {
        let dirs = self.execution_dirs.clone();
        tokio::task::spawn_blocking(move || dirs.executions()).await.unwrap_or_default()
    }

    /// Ends in the background what still runs of these executions. Their output stays.
    pub(crate) fn end_stale(self: &Arc<Self>, stale: Vec<ProcessExecution>) {
        if stale.is_empty() {
            return;
        }
        let processes = self.clone();
        self.tracker.spawn(async move {
            let finding = processes.clone();
            let found = run_blocking(move || {
                let found = stale.into_iter().filter_map(|execution| finding.find_stale(execution));
                Ok(found.collect::<Vec<_>>())
            });
            let shims = found.await.unwrap_or_default();
            let ending = shims.iter().map(|(execution, shim)| processes.end_shim(execution, shim));
            // The next start ends the others.
            let _ = processes.until_shutdown(join_all(ending)).await;
            processes.reap_orphans();
        });
    }

    /// Returns the shim of an execution if it is alive. Ends the orphans of a dead one.
    fn find_stale(&self, execution: ProcessExecution) -> Option<(ProcessExecution, Shim)> {
        let dir = self.execution_dirs.dir_of(&execution);
        let found = find_execution(&dir, self.boot_id).and_then(|found| match found {
            FoundExecution::Alive(shim) => Ok(Some((execution, shim))),
            FoundExecution::Abandoned { .. } => {
                let probe = ExecutionProbe {
                    execution,
                    dir: dir.clone(),
                    boot_id: self.boot_id,
                    names: CommandDescription::default(),
                    was_started: true,
                    saw_shim_die: false,
                };
                probe.probe().map(|_| None)
            }
            _ => Ok(None),
        });
        found.unwrap_or_else(|error| {
            tracing::warn!(%error, dir = %dir.display(), "an ended process cannot be looked at");
            None
        })
    }

    /// Ends a shim with its processes, gracefully first.
    async fn end_shim(&self, execution: &ProcessExecution, shim: &Shim) {
        let task = execution.task;
        tracing::warn!(no = %task.no, session = %task.session, "ending a process whose task has ended");
        for (order, timeout) in [(ShimOrder::Stop, DEFAULT_GRACE), (ShimOrder::Kill, KILL_TIMEOUT)]
        {
            if let Err(error) = shim.send_order(order) {
                tracing::warn!(%error, no = %task.no, "a shim cannot be stopped");
            }
            if let Ok(Ok(())) = tokio::time::timeout(timeout, shim.wait_exit()).await {
                let dir = self.execution_dirs.dir_of(execution);
                self.tracker.spawn_blocking(move || ExecutionDirs::remove_scratch_dir(&dir));
                return;
            }
        }
        tracing::error!(no = %task.no, session = %task.session, "a process cannot be ended");
    }
}
