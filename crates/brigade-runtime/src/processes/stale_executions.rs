//! Executions whose tasks have ended without them: this host was away, and the session went on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use brigade_process::{FoundExecution, Shim, ShimOrder, find_execution};
use futures_util::stream::{self, StreamExt};

use super::driver::run_blocking;
use super::execution_dirs::{ExecutionDirs, ProcessExecution};
use super::performer::{DEFAULT_GRACE, ProcessService};
use super::probe::ExecutionProbe;
use super::report::CommandDescription;

/// The number of executions that are ended at once.
const ENDED_AT_ONCE: usize = 8;
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
            // A machine may have thousands of old directories, of which few have a living shim.
            let ending = stream::iter(stale).for_each_concurrent(ENDED_AT_ONCE, |execution| {
                let processes = processes.clone();
                async move {
                    processes.end_execution(execution, DEFAULT_GRACE).await;
                }
            });
            // The next start ends the others.
            let _ = processes.until_shutdown(ending).await;
            processes.reap_orphans();
        });
    }

    /// Ends what still runs of an execution. Returns false if something is left, or nobody can tell.
    pub(super) async fn end_execution(
        self: &Arc<Self>,
        execution: ProcessExecution,
        grace: Duration,
    ) -> bool {
        let processes = self.clone();
        match run_blocking(move || processes.find_stale(execution)).await {
            Ok(Some(shim)) => self.end_shim(&execution, &shim, grace).await,
            Ok(None) => true,
            Err(error) => {
                let no = execution.task.no;
                tracing::warn!(%error, %no, "an ended process cannot be looked at");
                false
            }
        }
    }

    /// Returns the shim of an execution if it is alive. Ends the orphans of a dead one.
    fn find_stale(&self, execution: ProcessExecution) -> io::Result<Option<Shim>> {
        let dir = self.execution_dirs.dir_of(&execution);
        match find_execution(&dir, self.boot_id)? {
            FoundExecution::Alive(shim) => Ok(Some(shim)),
            FoundExecution::Abandoned { .. } => {
                let probe = ExecutionProbe {
                    execution,
                    dir,
                    boot_id: self.boot_id,
                    names: CommandDescription::default(),
                    was_started: true,
                    saw_shim_die: false,
                };
                probe.probe().map(|_| None)
            }
            _ => Ok(None),
        }
    }

    /// Ends a shim with its processes, gracefully first.
    async fn end_shim(&self, execution: &ProcessExecution, shim: &Shim, grace: Duration) -> bool {
        let task = execution.task;
        tracing::warn!(no = %task.no, session = %task.session, "ending a process whose task has ended");
        for (order, timeout) in [(ShimOrder::Stop, grace), (ShimOrder::Kill, KILL_TIMEOUT)] {
            if let Err(error) = shim.send_order(order) {
                tracing::warn!(%error, no = %task.no, "a shim cannot be stopped");
            }
            if let Ok(Ok(())) = tokio::time::timeout(timeout, shim.wait_exit()).await {
                let dir = self.execution_dirs.dir_of(execution);
                self.tracker.spawn_blocking(move || ExecutionDirs::remove_scratch_dir(&dir));
                return true;
            }
        }
        tracing::error!(no = %task.no, session = %task.session, "a process cannot be ended");
        false
    }
}
