//! Bounds on connections, so that tasks cannot shut out the operator.
//!
//! ```text
//! accept ─> process of a task: at most so many per task, and of all tasks together
//!        └> anybody else:      a pending handshake; the newest wins when there are too many
//!                                └─ with the operator key: a place that tasks cannot take
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_runtime::TaskId;
use tokio_util::sync::CancellationToken;

use crate::bounded_line_reader::{ByteBudget, LineLimits};
use crate::frames::LINE_BYTES_MAX;

const CONNECTIONS_PER_TASK: usize = 64;
/// Bytes of unfinished lines that are held for all tasks together, and for everybody else.
const TASK_LINE_BYTES: usize = 48 * 1024 * 1024;
const OPERATOR_LINE_BYTES: usize = 256 * 1024 * 1024;
/// Longer than any handshake.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// How many connections of each kind there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) per_task: usize,
    pub(crate) all_tasks: usize,
    pub(crate) pending: usize,
    pub(crate) operators: usize,
}

impl ConnectionLimits {
    /// Shares of the descriptors that this process may have open. The rest is for processes, their
    /// output and the store.
    pub(crate) fn for_files(files: u64) -> Self {
        let share = |of: u64, most: u64| (files / of).clamp(8, most) as usize;
        Self {
            per_task: CONNECTIONS_PER_TASK,
            all_tasks: share(8, 512),
            pending: share(16, 128),
            operators: share(4, 2_048),
        }
    }
}

/// Who has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    Task(TaskId),
    Operator,
}

#[derive(Debug)]
pub(crate) struct Admission {
    limits: ConnectionLimits,
    counts: Mutex<ConnectionCounts>,
    task_bytes: Arc<ByteBudget>,
    operator_bytes: Arc<ByteBudget>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    by_task: HashMap<TaskId, usize>,
    operators: usize,
    /// Oldest first.
    pending: VecDeque<(u64, CancellationToken)>,
    next_pending: u64,
}

impl Admission {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            counts: Mutex::default(),
            task_bytes: ByteBudget::new(TASK_LINE_BYTES),
            operator_bytes: ByteBudget::new(OPERATOR_LINE_BYTES),
        })
    }

    /// Takes a place for as long as the guard lives.
    pub(crate) fn admit(
        self: &Arc<Self>,
        kind: ConnectionKind,
    ) -> Result<ConnectionPermit, Refusal> {
        let mut counts = self.lock_counts();
        match kind {
            ConnectionKind::Task(task) => {
                let all: usize = counts.by_task.values().sum();
                let own = counts.by_task.get(&task).copied().unwrap_or(0);
                if own >= self.limits.per_task {
                    let most = self.limits.per_task;
                    return Err(Refusal::limit(format!("this task has {most} connections open")));
                }
                if all >= self.limits.all_tasks {
                    let most = self.limits.all_tasks;
                    return Err(Refusal::limit(format!("tasks have {most} connections open")));
                }
                counts.by_task.insert(task, own + 1);
            }
            ConnectionKind::Operator if counts.operators >= self.limits.operators => {
                let most = self.limits.operators;
                return Err(Refusal::limit(format!("{most} connections are open")));
            }
            ConnectionKind::Operator => counts.operators += 1,
        }
        Ok(ConnectionPermit { admission: self.clone(), kind })
    }

    /// Takes a place until the handshake is over. The oldest pending handshake ends when there are too
    /// many: an honest client has sent its own long before.
    pub(crate) fn admit_pending(self: &Arc<Self>) -> PendingHandshake {
        let mut counts = self.lock_counts();
        if counts.pending.len() >= self.limits.pending
            && let Some((_, ended)) = counts.pending.pop_front()
        {
            ended.cancel();
        }
        let id = counts.next_pending;
        counts.next_pending += 1;
        let ended = CancellationToken::new();
        counts.pending.push_back((id, ended.clone()));
        PendingHandshake { admission: self.clone(), id, evicted: ended }
    }

    /// Bounds on the line of a handshake.
    pub(crate) fn handshake_limits() -> LineLimits {
        LineLimits { line_max: HANDSHAKE_BYTES_MAX, line_timeout: None, byte_budget: None }
    }

    /// Bounds on the lines that follow.
    pub(crate) fn line_limits(&self, kind: ConnectionKind) -> LineLimits {
        let unfinished = match kind {
            ConnectionKind::Task(_) => &self.task_bytes,
            ConnectionKind::Operator => &self.operator_bytes,
        };
        LineLimits {
            line_max: LINE_BYTES_MAX as usize,
            line_timeout: Some(LINE_TIMEOUT),
            byte_budget: Some(unfinished.clone()),
        }
    }

    fn lock_counts(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, given back on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    admission: Arc<Admission>,
    kind: ConnectionKind,
}

impl ConnectionPermit {
    pub(crate) fn kind(&self) -> ConnectionKind {
        self.kind
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.admission.lock_counts();
        match self.kind {
            ConnectionKind::Operator => counts.operators -= 1,
            ConnectionKind::Task(task) => match counts.by_task.get_mut(&task) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(counts.by_task.remove(&task)),
            },
        }
    }
}

/// A connection that has not shown who it is.
#[derive(Debug)]
pub(crate) struct PendingHandshake {
    admission: Arc<Admission>,
    id: u64,
    /// Cancelled when newer ones need the place.
    pub(crate) evicted: CancellationToken,
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        self.admission.lock_counts().pending.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::{SessionId, TaskNo};

    use super::*;

    const LIMITS: ConnectionLimits =
        ConnectionLimits { per_task: 2, all_tasks: 3, pending: 2, operators: 1 };

    fn task(no: u32) -> ConnectionKind {
        let tree =
            serde_json::from_value(serde_json::json!("00000000-0000-0000-0000-000000000000"));
        let tree: SessionId = tree.expect("a uuid");
        ConnectionKind::Task(TaskId { session: tree, no: TaskNo::new(no).expect("not zero") })
    }

    #[test]
    fn tasks_fill_their_own_places_only() {
        let admission = Admission::new(LIMITS);
        let first = admission.admit(task(1)).unwrap();
        let _second = admission.admit(task(1)).unwrap();
        assert!(admission.admit(task(1)).is_err(), "its own bound");
        let _third = admission.admit(task(2)).unwrap();
        assert!(admission.admit(task(3)).is_err(), "the bound of all tasks");
        let operator = admission.admit(ConnectionKind::Operator).unwrap();
        assert!(admission.admit(ConnectionKind::Operator).is_err());
        drop((first, operator));
        assert!(admission.admit(task(1)).is_ok());
        assert!(admission.admit(ConnectionKind::Operator).is_ok());
    }

    #[test]
    fn the_newest_handshakes_are_served() {
        let admission = Admission::new(LIMITS);
        let oldest = admission.admit_pending();
        let second = admission.admit_pending();
        drop(second);
        let third = admission.admit_pending();
        assert!(!oldest.evicted.is_cancelled());
        let fourth = admission.admit_pending();
        assert!(oldest.evicted.is_cancelled());
        drop(oldest);
        assert!(!third.evicted.is_cancelled() && !fourth.evicted.is_cancelled());
    }
}
