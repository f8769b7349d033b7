//! The processes that a runtime follows, and the starts of shims that are under way.
//!
//! A node that has lost its lease may follow the same attempt again, while its earlier work for that
//! attempt still ends. So each watch ends itself alone, and a look for a shim waits for its start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::ids::Attempt;
use brigade_process::ProcessId;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::driver::DriverRequest;
use super::peer_origin::{RegisteredShims, TaskAttempt};
use crate::performer::TaskId;

/// The attempts that are followed, at most one for each task.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchedProcesses {
    table: Arc<Mutex<WatchTable>>,
}

#[derive(Debug, Default)]
struct WatchTable {
    by_task: HashMap<TaskId, WatchedProcess>,
    watch_count: u64,
}

#[derive(Debug)]
struct WatchedProcess {
    /// Tells this watch from others of the same attempt.
    watch_no: u64,
    attempt: Attempt,
    requests: mpsc::UnboundedSender<DriverRequest>,
    /// `None` until the shim is started.
    shim: Option<ProcessId>,
    halt: CancellationToken,
}

/// The watch of one attempt, until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    /// Bounded by the task's inbox and by the two stages of a stop.
    pub(super) requests: mpsc::UnboundedReceiver<DriverRequest>,
    /// Ends the watch, not the process.
    pub(super) halt: CancellationToken,
    task: TaskId,
    watch_no: u64,
    processes: WatchedProcesses,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let by_task = &mut self.processes.lock().by_task;
        if by_task.get(&self.task).is_some_and(|watched| watched.watch_no == self.watch_no) {
            by_task.remove(&self.task);
        }
    }
}

impl WatchedProcesses {
    /// Begins to watch an attempt. Returns `None` if it is being watched already.
    pub(super) fn begin(&self, task: TaskId, attempt: Attempt) -> Option<Watch> {
        let mut table = self.lock();
        if table.by_task.get(&task).is_some_and(|watched| watched.attempt == attempt) {
            return None;
        }
        table.watch_count += 1;
        let watch_no = table.watch_count;
        let (sender, requests) = mpsc::unbounded_channel();
        let halt = CancellationToken::new();
        let watched =
            WatchedProcess { watch_no, attempt, requests: sender, shim: None, halt: halt.clone() };
        table.by_task.insert(task, watched);
        Some(Watch { requests, halt, task, watch_no, processes: self.clone() })
    }

    /// Ends the watch of a task.
    pub(super) fn halt(&self, task: TaskId) {
        if let Some(watched) = self.lock().by_task.remove(&task) {
            watched.halt.cancel();
        }
    }

    pub(super) fn send_request(&self, task: TaskId, attempt: Attempt, request: DriverRequest) {
        if let Some(watched) = self.lock().by_task.get(&task)
            && watched.attempt == attempt
        {
            // Nobody receives requests for an attempt that has ended; its end is on its way.
            let _ = watched.requests.send(request);
        }
    }

    pub(super) fn set_shim(&self, task: TaskId, attempt: Attempt, shim: ProcessId) {
        if let Some(watched) = self.lock().by_task.get_mut(&task)
            && watched.attempt == attempt
        {
            watched.shim = Some(shim);
        }
    }

    pub(super) fn registered_shims(&self) -> RegisteredShims {
        let table = self.lock();
        let shims = table.by_task.iter().filter_map(|(task, watched)| {
            Some((watched.shim?, TaskAttempt { task: *task, attempt: watched.attempt }))
        });
        shims.collect()
    }

    fn lock(&self) -> MutexGuard<'_, WatchTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The starts of shims that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct ShimLaunches {
    table: Arc<LaunchTable>,
}

#[derive(Debug, Default)]
struct LaunchTable {
    counts: Mutex<HashMap<TaskId, usize>>,
    ended: Notify,
}

/// The start of a shim, until it is dropped.
#[derive(Debug)]
pub(super) struct ShimLaunch {
    task: TaskId,
    table: Arc<LaunchTable>,
}

impl ShimLaunches {
    pub(super) fn begin(&self, task: TaskId) -> ShimLaunch {
        *self.table.lock().entry(task).or_default() += 1;
        ShimLaunch { task, table: self.table.clone() }
    }

    /// Waits until no shim of a task is being started.
    pub(super) async fn wait_ended(&self, task: TaskId) {
        loop {
            let ended = self.table.ended.notified();
            if !self.table.lock().contains_key(&task) {
                return;
            }
            ended.await;
        }
    }
}

impl LaunchTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ShimLaunch {
    fn drop(&mut self) {
        let mut counts = self.table.lock();
        if let Some(count) = counts.get_mut(&self.task) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.task);
            }
        }
        drop(counts);
        self.table.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brigade_model::ids::{SessionId, TaskNo};
    use tokio::time::timeout;

    use super::*;

    fn task() -> TaskId {
        TaskId { session: SessionId::from_uuid(uuid::Uuid::from_u128(1)), no: TaskNo::FIRST }
    }

    #[test]
    fn an_earlier_watch_of_the_same_attempt_ends_itself_alone() {
        let processes = WatchedProcesses::default();
        let earlier = processes.begin(task(), Attempt(1)).expect("nobody watches it");
        assert!(processes.begin(task(), Attempt(1)).is_none());
        processes.halt(task());
        assert!(earlier.halt.is_cancelled());
        let mut later = processes.begin(task(), Attempt(1)).expect("the earlier one was halted");
        drop(earlier);
        processes.send_request(task(), Attempt(1), DriverRequest::Input);
        assert!(matches!(later.requests.try_recv(), Ok(DriverRequest::Input)));
        assert!(!later.halt.is_cancelled());
        drop(later);
        assert!(processes.begin(task(), Attempt(1)).is_some());
    }

    #[test]
    fn a_later_attempt_replaces_the_watch() {
        let processes = WatchedProcesses::default();
        let mut earlier = processes.begin(task(), Attempt(1)).expect("nobody watches it");
        let mut later = processes.begin(task(), Attempt(2)).expect("another attempt");
        processes.send_request(task(), Attempt(1), DriverRequest::Kill);
        assert!(earlier.requests.try_recv().is_err());
        drop(earlier);
        processes.send_request(task(), Attempt(2), DriverRequest::Kill);
        assert!(matches!(later.requests.try_recv(), Ok(DriverRequest::Kill)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_waits_for_all_starts_of_its_task() {
        let launches = ShimLaunches::default();
        let second = Duration::from_secs(1);
        launches.wait_ended(task()).await;
        let first = launches.begin(task());
        let other = launches.begin(task());
        drop(first);
        timeout(second, launches.wait_ended(task())).await.expect_err("one is under way");
        let waiting = async {
            tokio::time::sleep(second).await;
            drop(other);
        };
        let (waited, ()) = tokio::join!(timeout(second * 2, launches.wait_ended(task())), waiting);
        waited.expect("all have ended");
    }
}
