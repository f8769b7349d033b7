//! A task as stored: one row with its current state.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::ApprovalVerdict;
use crate::call::ParkedCall;
use crate::ids::{Attempt, CallIndex, ClientIdentity, Millis, Owner, RunNo, Seq, TaskNo, Time};
use crate::json::{Json, present};
use crate::limits::{Limits, Usage};
use crate::name::TaskName;
use crate::outcome::{Failure, Outcome, StopOrder};
use crate::readiness::Readiness;
use crate::refusal::Refusal;
use crate::spawn_rate::SpawnMeter;
use crate::spec::TaskSpec;
use crate::stall::{NudgeState, StallWatch};
use crate::utc_time::render_utc;
use crate::work::FollowUp;
use crate::worktree::Worktree;

/// The stored form of a task. Everything else about it is derived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    pub spec: Arc<TaskSpec>,
    /// The current name. A task can lose it: see `Event::PassedToSession` and `Event::RunOpened`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TaskName>,
    pub owner: Owner,
    /// The owner's run that spawned it, within which keys are unique. `RunNo::NONE` after it has
    /// passed to an owner that did not spawn it.
    pub owner_run: RunNo,
    /// The owner's call that spawned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallIndex>,
    /// The attempt that spawned it, also after it has passed to another owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawner: Option<SpawningAttempt>,
    /// The client that started it, for a top-level task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientIdentity>,
    pub run: RunNo,
    pub attempt: Attempt,
    /// Recoveries since the last recorded progress.
    #[serde(default)]
    pub crashes: u16,
    /// The number of journal entries.
    #[serde(default)]
    pub journal_len: u32,
    pub spawned_at: Time,
    /// The time of the last activity.
    pub last_activity_at: Time,
    pub state: TaskState,
    /// The time of the change to this kind of state. `None` if an earlier version wrote the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_changed_at: Option<Time>,
    #[serde(default, skip_serializing_if = "RunStart::is_unknown")]
    pub run_start: RunStart,
    /// The journal position of a completion that the work has not acknowledged. Work that wakes on
    /// any completion gets one at a time, because the next could be for a call that it drops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacked: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked_calls: Vec<ParkedCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<Box<TaskExtras>>,
}

/// A task with its number in its session, as of a commit.
///
/// ```
/// # use brigade_model::task::StoredTask;
/// fn render(task: &StoredTask) -> String {
///     format!("{} is {}", task.address(), task.row.state.label())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTask {
    pub no: TaskNo,
    pub row: Arc<TaskRow>,
}

impl StoredTask {
    pub fn new(no: TaskNo, row: impl Into<Arc<TaskRow>>) -> Self {
        Self { no, row: row.into() }
    }

    /// Returns the address that lists show, such as `job:5`.
    pub fn address(&self) -> String {
        self.row.address(self.no)
    }
}

/// The task and attempt that spawned another task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawningAttempt {
    pub no: TaskNo,
    pub attempt: Attempt,
}

/// A verdict on an approval of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedApproval {
    pub index: CallIndex,
    pub verdict: ApprovalVerdict,
}

/// Fields that most tasks do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskExtras {
    /// The usage of this task and its descendants.
    pub usage: Usage,
    /// The part of `usage` that descendants spent.
    #[serde(skip_serializing_if = "Usage::is_none")]
    pub descendants_usage: Usage,
    /// The part of `usage` that was reserved for calls of unknown cost. The real cost may be less.
    #[serde(skip_serializing_if = "Usage::is_none")]
    pub unknown_usage: Usage,
    /// The amount reserved for a model call of this task that is in progress.
    pub reserved: Usage,
    /// The last progress note of the task.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub progress: Option<Json>,
    /// The typed state of the work, restored at its next attempt.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub state: Option<Json>,
    /// The partial result of a waiting task.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub partial: Option<Json>,
    /// Outcomes of earlier runs that nobody has collected.
    pub earlier_runs: Vec<EarlierRun>,
    pub clock: RunClock,
    /// The task whose limits apply to this one although it passed to the session. Both are charged
    /// to that task's row, so the row is kept as long as this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<TaskNo>,
    /// The deadline under which it was spawned, if it outlives that deadline's holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited_deadline: Option<InheritedDeadline>,
    /// The deadline under which a kept process was spawned. It does not end the process, but the
    /// agents and jobs that the process starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descendants_deadline: Option<InheritedDeadline>,
    /// Tasks ever spawned under this one, if a total limit counts them.
    pub total_spawned: u32,
    /// The owner's run under which the latest run was opened, if that is not the run that spawned
    /// the task.
    pub opened_by_run: Option<RunNo>,
    /// The number of journal entries that earlier runs wrote. `None` if there are none, and in a run
    /// that an earlier version opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier_entries: Option<u32>,
    /// True if the task was silent for too long and has shown no activity since.
    pub stalled: bool,
    #[serde(skip_serializing_if = "NudgeState::is_empty")]
    pub nudges: NudgeState,
    /// The meter of a spawn rate, if one counts the tasks spawned under this one.
    #[serde(skip_serializing_if = "SpawnMeter::is_unused")]
    pub spawn_meter: SpawnMeter,
    /// The last few verdicts, so that a repeated verdict can be recognized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_approvals: Vec<DecidedApproval>,
    /// The host on which the latest attempt started, for a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// True for a process whose host has a node, while another node owns the session. Nothing is pushed
    /// to it until its host adopts it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// The newest git worktree of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Box<Worktree>>,
    /// The time at which the latest attempt became ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierRun {
    pub run: RunNo,
    pub outcome: Arc<Outcome>,
    pub ended_at: Time,
}

/// The time limit of a run. It is stopped while the task is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunClock {
    #[default]
    Unlimited,
    Stopped {
        remaining: Millis,
    },
    Ticking {
        until: Time,
    },
}

/// The start of a run's first attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStart {
    /// An earlier version opened the run and did not store its start.
    #[default]
    Unknown,
    Pending,
    At(Time),
}

impl RunStart {
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// A deadline that a kept task inherited from a former holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedDeadline {
    pub at: Time,
    /// The time limit behind the deadline.
    pub limit: Millis,
    /// The holder of that limit.
    pub holder: TaskNo,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskState {
    /// Could run, but has no slot or must not start yet.
    Queued(QueuedState),
    Running,
    /// All its open calls are parked. It holds no slot and, except for closures, no future.
    Waiting,
    /// A process whose host has no node in the fleet. It may still run there.
    Away(AwayState),
    /// A stop was requested, and its performer has not yet reported the end.
    Stopping(StoppingState),
    /// Its own work is over, and its children are being stopped or awaited.
    Closing {
        outcome: Arc<Outcome>,
    },
    Ended(EndedState),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedState {
    /// The position in the queue: first come, first served.
    pub ticket: Seq,
    pub reason: QueueReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueReason {
    /// The running limit of this holder is reached.
    RunningLimit(Owner),
    /// The running limit of the runtime is reached, which all its sessions share. The task has its
    /// place under the limits of its session already.
    RuntimeLimit,
    /// The task crashed and is retried at this time.
    Backoff { until: Time },
    /// No performer here can execute it.
    NoPerformer { reason: Arc<str> },
}

/// The absence of the host on which a process was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwayState {
    /// The name by which people know the host: that of its last node, or of its machine.
    pub node: Arc<str>,
    /// The end of the last lease of that node, or the time of the finding if that is not known.
    pub since: Time,
    /// The time at which the run ends as lost.
    pub until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppingState {
    pub cause: StopCause,
    pub deadline: Time,
    pub phase: StopPhase,
}

/// The cause with which the run will end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    Order(Arc<StopOrder>),
    /// A limit was reached.
    Failure(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopPhase {
    Graceful,
    Forced,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedState {
    pub outcome: Arc<Outcome>,
    pub at: Time,
    pub delivery: ResultDelivery,
    /// True if the performer has not returned. It holds its slot until it does.
    #[serde(default)]
    pub lingering: bool,
}

/// The delivery state of a run's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultDelivery {
    /// Stored for the owner.
    Pending,
    Collected,
}

impl fmt::Display for AwayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} not seen since {}", self.node, render_utc(self.since))
    }
}

impl TaskRow {
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, TaskState::Ended(_))
    }

    pub fn away(&self) -> Option<&AwayState> {
        match &self.state {
            TaskState::Away(away) => Some(away),
            _ => None,
        }
    }

    /// Returns true for a process that runs on a host with a node, while another node owns the session.
    pub fn is_unattended(&self) -> bool {
        self.is_performed() && self.extras.as_ref().is_some_and(|extra| extra.unattended)
    }

    /// Returns the host on which the latest attempt of a process started.
    pub fn host(&self) -> Option<&Arc<str>> {
        self.extras.as_ref()?.host.as_ref()
    }

    /// Returns whether the latest run became ready. A run that was ready stays so after its end.
    pub fn readiness(&self) -> Readiness {
        match (self.ready_at(), self.ended()) {
            (Some(at), _) => Readiness::Ready(at),
            (None, Some(_)) => Readiness::EndedBefore,
            (None, None) => Readiness::Pending,
        }
    }

    /// Refuses a wait until it is ready, if it was started without a readiness check.
    pub fn check_readiness_check(&self, no: TaskNo) -> Result<(), Refusal> {
        match self.spec.work.readiness_check() {
            Some(_) => Ok(()),
            None => Err(Refusal::invalid(format!(
                "{} was started without a readiness check; start it with one: `brigade exec --ready \
                 REGEX`, or `ready` in run_process",
                self.address(no)
            ))),
        }
    }

    /// Returns when the work of the latest attempt became ready. It stays ready until it is started
    /// again.
    pub fn ready_at(&self) -> Option<Time> {
        self.extras.as_ref()?.ready_at
    }

    pub fn ended(&self) -> Option<&EndedState> {
        match &self.state {
            TaskState::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Returns when the current kind of state began, if that is stored.
    pub fn state_since(&self) -> Option<Time> {
        self.ended().map(|ended| ended.at).or(self.state_changed_at)
    }

    /// Returns when the first attempt of the latest run started, if it did and that is stored.
    pub fn started_at(&self) -> Option<Time> {
        match self.run_start {
            RunStart::At(at) => Some(at),
            RunStart::Unknown | RunStart::Pending => None,
        }
    }

    /// Returns whether a message can reach the work: it reads messages, and it has not ended or a
    /// message opens its next run.
    pub fn takes_messages(&self) -> bool {
        let is_open = match &self.state {
            TaskState::Queued(_) | TaskState::Running | TaskState::Waiting | TaskState::Away(_) => {
                true
            }
            TaskState::Stopping(_) | TaskState::Closing { .. } => false,
            TaskState::Ended(ended) => {
                !ended.lingering && self.spec.work.policy().follow_up == FollowUp::NewRun
            }
        };
        is_open && self.spec.work.missing_input_reason().is_none()
    }

    /// Returns whether a performer is executing it, as far as is known.
    pub fn is_performed(&self) -> bool {
        matches!(self.state, TaskState::Running | TaskState::Stopping(_))
    }

    /// Returns whether it takes a slot of the running limits. A part of its parent runs in the slot
    /// of its parent.
    pub fn holds_slot(&self) -> bool {
        let is_held = self.is_performed() || self.ended().is_some_and(|ended| ended.lingering);
        is_held && !self.spec.part_of_parent
    }

    /// Returns the number of children that it is for the width limit of its owner.
    pub(crate) fn width(&self) -> u32 {
        u32::from(self.is_alive() && !self.spec.part_of_parent)
    }

    /// Returns whether a stop was requested, or its own work is over.
    pub fn is_ending(&self) -> bool {
        matches!(
            self.state,
            TaskState::Stopping(_) | TaskState::Closing { .. } | TaskState::Ended(_)
        )
    }

    /// Returns whether the task is finished and all its results are collected.
    pub fn is_collected(&self) -> bool {
        self.ended().is_some_and(|e| e.delivery == ResultDelivery::Collected && !e.lingering)
            && self.extras.as_ref().is_none_or(|extra| extra.earlier_runs.is_empty())
    }

    /// Returns the newest progress note.
    pub fn progress(&self) -> Option<&Json> {
        self.extras.as_ref()?.progress.as_ref()
    }

    pub fn usage(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.usage)
    }

    /// Returns its own usage, without that of descendants.
    pub fn own_usage(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.usage.minus(extra.descendants_usage))
    }

    pub fn unknown_usage(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.unknown_usage)
    }

    pub fn reserved(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.reserved)
    }

    /// Returns the partial result of a task that nobody is executing.
    pub fn partial(&self) -> Option<Json> {
        self.extras.as_ref().and_then(|extra| extra.partial.clone())
    }

    /// Returns the stall watch that applies while it runs, if any.
    pub fn stall_watch(&self) -> Option<StallWatch> {
        let policy = self.limits.as_ref().and_then(|limits| limits.stall);
        policy.or_else(|| self.spec.work.default_stall_policy())?.watch()
    }

    /// Returns whether it was silent for too long.
    pub fn is_stalled(&self) -> bool {
        self.is_alive() && self.extras.as_ref().is_some_and(|extra| extra.stalled)
    }

    pub fn nudges(&self) -> NudgeState {
        self.extras.as_ref().map_or_else(NudgeState::default, |extra| extra.nudges)
    }

    /// Returns the newest git worktree of the task.
    pub fn worktree(&self) -> Option<&Worktree> {
        self.extras.as_ref()?.worktree.as_deref()
    }

    pub fn clock(&self) -> RunClock {
        self.extras.as_ref().map_or(RunClock::Unlimited, |extra| extra.clock)
    }

    pub fn inherited_deadline(&self) -> Option<InheritedDeadline> {
        self.extras.as_ref().and_then(|extra| extra.inherited_deadline)
    }

    pub fn descendants_deadline(&self) -> Option<InheritedDeadline> {
        self.extras.as_ref().and_then(|extra| extra.descendants_deadline)
    }

    /// Returns the next holder of limits: its owner, or the task that it was kept by.
    pub fn limit_holder(&self) -> Owner {
        let kept_by = self.extras.as_ref().and_then(|extra| extra.limited_by);
        kept_by.map_or(self.owner, Owner::Task)
    }

    pub fn extras_mut(&mut self) -> &mut TaskExtras {
        self.extras.get_or_insert_default()
    }

    /// Returns the owner's run that waits for the latest run.
    pub fn opened_by_run(&self) -> RunNo {
        self.extras.as_ref().and_then(|extra| extra.opened_by_run).unwrap_or(self.owner_run)
    }

    pub fn parked_call(&self, index: CallIndex) -> Option<&ParkedCall> {
        self.parked_calls.iter().find(|call| call.index == index)
    }

    /// Returns the address that lists show, such as `job:5`.
    pub fn address(&self, no: TaskNo) -> String {
        format!("{}:{no}", self.spec.work.kind())
    }
}

impl TaskState {
    /// Returns one word for lists.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Queued(_) => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Away(_) => "away",
            Self::Stopping(_) => "stopping",
            Self::Closing { .. } => "closing",
            Self::Ended(ended) => ended.outcome.label(),
        }
    }

    /// Returns the state as a phrase after a task's name, such as "is running" or "has failed".
    pub fn render_phrase(&self) -> String {
        match self {
            Self::Ended(ended) => match ended.outcome.label() {
                word @ "cancelled" => format!("was {word}"),
                word => format!("has {word}"),
            },
            _ => format!("is {}", self.label()),
        }
    }
}
