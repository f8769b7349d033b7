//! Bounds on connections, so that tasks cannot shut out the operator.
//!
//! ```text
//! accept ─> process of a task: a limit per task, and one for all tasks together
//!        └> any other process: a pending handshake; too many evict the oldest
//!                                └─ with the operator key: a limit that tasks do not share
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_runtime::TaskId;
use tokio_util::sync::CancellationToken;

use brigade_protocol::bounded_line_reader::{ByteBudget, LineLimits};
use brigade_protocol::frames::LINE_BYTES_MAX;

const CONNECTIONS_PER_TASK: usize = 64;
/// The bytes of unfinished lines of all tasks together.
const TASK_LINE_BYTES: usize = 48 * 1024 * 1024;
/// The bytes of unfinished lines of the operator and the clients together.
const OPERATOR_LINE_BYTES: usize = 256 * 1024 * 1024;
/// A length over that of every handshake.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of connections of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) per_task: usize,
    pub(crate) all_tasks: usize,
    pub(crate) pending: usize,
    pub(crate) operators: usize,
    pub(crate) http: usize,
}

impl ConnectionLimits {
    /// Returns limits as fractions of the file descriptors that this process may open. The others
    /// are for processes, their output and the store.
    pub(crate) fn for_files(files: u64) -> Self {
        let share = |divisor: u64, max: u64| (files / divisor).clamp(8, max) as usize;
        Self {
            per_task: CONNECTIONS_PER_TASK,
            all_tasks: share(8, 512),
            pending: share(16, 128),
            operators: share(4, 2_048),
            http: share(4, 16_384),
        }
    }
}

/// The kind of a connection. Clients count as operators.
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
    /// Pending handshakes, the oldest first.
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

    /// Admits a connection until its permit is dropped, or refuses it.
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
                    let max = self.limits.per_task;
                    return Err(Refusal::limit(format!("this task has {max} connections open")));
                }
                if all >= self.limits.all_tasks {
                    let max = self.limits.all_tasks;
                    return Err(Refusal::limit(format!("tasks have {max} connections open")));
                }
                counts.by_task.insert(task, own + 1);
            }
            ConnectionKind::Operator if counts.operators >= self.limits.operators => {
                let max = self.limits.operators;
                return Err(Refusal::limit(format!("{max} connections are open")));
            }
            ConnectionKind::Operator => counts.operators += 1,
        }
        Ok(ConnectionPermit { admission: self.clone(), kind })
    }

    /// Admits a pending handshake. If there are too many, it evicts the oldest: an honest client
    /// sends its hello at once.
    pub(crate) fn admit_pending(self: &Arc<Self>) -> PendingHandshake {
        let mut counts = self.lock_counts();
        if counts.pending.len() >= self.limits.pending
            && let Some((_, oldest)) = counts.pending.pop_front()
        {
            oldest.cancel();
        }
        let id = counts.next_pending;
        counts.next_pending += 1;
        let evicted = CancellationToken::new();
        counts.pending.push_back((id, evicted.clone()));
        PendingHandshake { admission: self.clone(), id, evicted }
    }

    /// Returns the limits for the line of a handshake.
    pub(crate) fn handshake_limits() -> LineLimits {
        LineLimits { line_max: HANDSHAKE_BYTES_MAX, line_timeout: None, byte_budget: None }
    }

    /// Returns the limits for the lines after the handshake.
    pub(crate) fn line_limits(&self, kind: ConnectionKind) -> LineLimits {
        let byte_budget = match kind {
            ConnectionKind::Task(_) => &self.task_bytes,
            ConnectionKind::Operator => &self.operator_bytes,
        };
        LineLimits {
            line_max: LINE_BYTES_MAX as usize,
            line_timeout: Some(LINE_TIMEOUT),
            byte_budget: Some(byte_budget.clone()),
        }
    }

    fn lock_counts(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit of an admitted connection, released on drop.
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

/// A connection before its handshake.
#[derive(Debug)]
pub(crate) struct PendingHandshake {
    admission: Arc<Admission>,
    id: u64,
    /// Cancelled when newer handshakes evict this one.
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
        ConnectionLimits { per_task: 2, all_tasks: 3, pending: 2, operators: 1, http: 1 };

    fn task(no: u32) -> ConnectionKind {
        let session =
            serde_json::from_value(serde_json::json!("00000000-0000-0000-0000-000000000000"));
        let session: SessionId = session.expect("a uuid");
        ConnectionKind::Task(TaskId { session, no: TaskNo::new(no).expect("not zero") })
    }

    #[test]
    fn tasks_use_only_their_own_limits() {
        let admission = Admission::new(LIMITS);
        let first = admission.admit(task(1)).unwrap();
        let _second = admission.admit(task(1)).unwrap();
        assert!(admission.admit(task(1)).is_err(), "the limit of the task");
        let _third = admission.admit(task(2)).unwrap();
        assert!(admission.admit(task(3)).is_err(), "the limit of all tasks");
        let operator = admission.admit(ConnectionKind::Operator).unwrap();
        assert!(admission.admit(ConnectionKind::Operator).is_err());
        drop((first, operator));
        assert!(admission.admit(task(1)).is_ok());
        assert!(admission.admit(ConnectionKind::Operator).is_ok());
    }

    #[test]
    fn a_new_handshake_evicts_the_oldest() {
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
