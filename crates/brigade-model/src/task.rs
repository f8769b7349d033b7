//! A task as it is stored: one row, current state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::ApprovalVerdict;
use crate::call::ParkedCall;
use crate::ids::{Attempt, CallIndex, ClientIdentity, Millis, Owner, RunNo, Seq, TaskNo, Time};
use crate::json::{Json, present};
use crate::limits::{Limits, Usage};
use crate::name::TaskName;
use crate::outcome::{Failure, Outcome, StopOrder};
use crate::spawn_rate::SpawnMeter;
use crate::spec::TaskSpec;
use crate::stall::{NudgeState, StallWatch};

/// The stored form of a task. Everything else about it is derived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    pub spec: Arc<TaskSpec>,
    /// The name it bears. It can lose it: see `Event::PassedToSession` and `Event::RunOpened`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TaskName>,
    pub owner: Owner,
    /// The owner's run that spawned it: keys are unique within it. `RunNo::NONE` once it has
    /// passed to an owner that did not spawn it.
    pub owner_run: RunNo,
    /// The owner's call that spawned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallIndex>,
    /// The task that spawned it, also when it belongs to somebody else by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawner: Option<SpawningAttempt>,
    /// At top level, the client that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientIdentity>,
    pub run: RunNo,
    pub attempt: Attempt,
    /// Recoveries since the last recorded progress.
    #[serde(default)]
    pub crashes: u16,
    /// How many journal entries there are.
    #[serde(default)]
    pub journal_len: u32,
    pub spawned_at: Time,
    /// When something last happened.
    pub last_activity_at: Time,
    pub state: TaskState,
    /// The journal's number of an answer that the work has not reacted to yet. Work that goes on
    /// with any answer is told one at a time: the next could be for a call that it drops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacked: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked_calls: Vec<ParkedCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<Box<TaskExtras>>,
}

/// Which execution of which task spawned another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawningAttempt(pub TaskNo, pub Attempt);

/// What most tasks do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskExtras {
    /// Spent by this task and all below it.
    pub usage: Usage,
    /// Of that, what those below it spent.
    #[serde(skip_serializing_if = "Usage::is_none")]
    pub descendants_usage: Usage,
    /// Of that, what was set aside for calls of which nobody knows what they cost: it may be less.
    #[serde(skip_serializing_if = "Usage::is_none")]
    pub unknown_usage: Usage,
    /// Set aside for a model call of this task that is under way.
    pub reserved: Usage,
    /// What the task last said of itself.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub progress: Option<Json>,
    /// Typed state of the work, restored when it goes on.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub state: Option<Json>,
    /// Of a task that waits: what there is of a result.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub partial: Option<Json>,
    /// Endings of earlier runs that nobody has collected yet.
    pub earlier_runs: Vec<EarlierRun>,
    pub clock: RunClock,
    /// The task whose limits hold for this one although it passed to the session. That task's row is
    /// the budget that both are charged to, so it is kept for as long as this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<TaskNo>,
    /// The deadline under which it was spawned, where it outlives the holder of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited_deadline: Option<InheritedDeadline>,
    /// The deadline under which a kept process was spawned. It does not end the process, but the
    /// agents and jobs that the process starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descendants_deadline: Option<InheritedDeadline>,
    /// Tasks ever spawned below, where a total limit counts them.
    pub total_spawned: u32,
    /// The owner's run under which the latest run was opened, if another spawned the task.
    pub opened_by_run: Option<RunNo>,
    /// Nothing happened for too long, and nothing has since.
    pub stalled: bool,
    #[serde(skip_serializing_if = "NudgeState::is_empty")]
    pub nudges: NudgeState,
    /// Where a spawn rate counts what is spawned below.
    #[serde(skip_serializing_if = "SpawnMeter::is_unused")]
    pub spawn_meter: SpawnMeter,
    /// What was said to the last few approvals, for whoever says it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_approvals: Vec<(CallIndex, ApprovalVerdict)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierRun {
    pub run: RunNo,
    pub outcome: Arc<Outcome>,
    pub ended_at: Time,
}

/// The time limit of a run: it stands still while the task is queued.
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

/// A deadline that a kept task has from a task above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedDeadline {
    pub at: Time,
    /// The time limit that it comes from.
    pub limit: Millis,
    /// The holder of that limit.
    pub holder: TaskNo,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Could run, but has no slot or must not start yet.
    Queued(QueuedState),
    Running,
    /// All its open calls are parked. It holds no slot and, but for closures, nothing in memory.
    Waiting,
    /// Told to end; its performer has not said yet that it has.
    Stopping(StoppingState),
    /// Its own work is over while its children are being stopped or awaited.
    Closing {
        outcome: Arc<Outcome>,
    },
    Ended(EndedState),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedState {
    /// First come, first served.
    pub ticket: Seq,
    pub reason: QueueReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueReason {
    /// The running limit of this holder is reached.
    RunningLimit(Owner),
    /// It crashed and tries again then.
    Backoff { until: Time },
    /// No performer here can do it.
    NoPerformer { reason: Arc<str> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppingState {
    pub cause: StopCause,
    pub deadline: Time,
    pub phase: StopPhase,
}

/// What the run will have ended with.
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
    /// The performer has not returned: it keeps its slot until it does.
    #[serde(default)]
    pub lingering: bool,
}

/// Where a run's result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultDelivery {
    /// Kept for the owner.
    Pending,
    Collected,
}

impl TaskRow {
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, TaskState::Ended(_))
    }

    pub fn ended(&self) -> Option<&EndedState> {
        match &self.state {
            TaskState::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether its performer is at work, as far as we know.
    pub fn is_performed(&self) -> bool {
        matches!(self.state, TaskState::Running | TaskState::Stopping(_))
    }

    pub fn holds_slot(&self) -> bool {
        self.is_performed() || self.ended().is_some_and(|ended| ended.lingering)
    }

    /// Whether it was told to end, or is over but for its children.
    pub fn is_ending(&self) -> bool {
        matches!(
            self.state,
            TaskState::Stopping(_) | TaskState::Closing { .. } | TaskState::Ended(_)
        )
    }

    /// Whether no one will ask for it without naming it.
    pub fn is_collected(&self) -> bool {
        self.ended().is_some_and(|e| e.delivery == ResultDelivery::Collected && !e.lingering)
            && self.extras.as_ref().is_none_or(|extra| extra.earlier_runs.is_empty())
    }

    pub fn usage(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.usage)
    }

    /// What it spent itself, without those below it.
    pub fn own_usage(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.usage.minus(extra.descendants_usage))
    }

    pub fn unknown_usage(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.unknown_usage)
    }

    pub fn reserved(&self) -> Usage {
        self.extras.as_ref().map_or(Usage::NONE, |extra| extra.reserved)
    }

    /// What there is of a result while nobody is at work.
    pub fn partial(&self) -> Option<Json> {
        self.extras.as_ref().and_then(|extra| extra.partial.clone())
    }

    /// How it is watched while it runs, if it is.
    pub fn stall_watch(&self) -> Option<StallWatch> {
        let said = self.limits.as_ref().and_then(|limits| limits.stall);
        said.or_else(|| self.spec.work.default_stall_policy())?.watch()
    }

    /// Whether nothing has happened for too long.
    pub fn is_stalled(&self) -> bool {
        self.is_alive() && self.extras.as_ref().is_some_and(|extra| extra.stalled)
    }

    pub fn nudges(&self) -> NudgeState {
        self.extras.as_ref().map_or_else(NudgeState::default, |extra| extra.nudges)
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

    /// The next holder of limits above it: its owner, or the task that it was kept by.
    pub fn limit_holder(&self) -> Owner {
        let kept_by = self.extras.as_ref().and_then(|extra| extra.limited_by);
        kept_by.map_or(self.owner, Owner::Task)
    }

    pub fn extras_mut(&mut self) -> &mut TaskExtras {
        self.extras.get_or_insert_default()
    }

    /// The owner's run that waits for the latest run.
    pub fn opened_by_run(&self) -> RunNo {
        self.extras.as_ref().and_then(|extra| extra.opened_by_run).unwrap_or(self.owner_run)
    }

    pub fn parked_call(&self, index: CallIndex) -> Option<&ParkedCall> {
        self.parked_calls.iter().find(|call| call.index == index)
    }

    /// `job:5`, as a list shows it.
    pub fn address(&self, no: TaskNo) -> String {
        format!("{}:{no}", self.spec.work.kind())
    }
}

impl TaskState {
    /// One word for lists.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Queued(_) => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stopping(_) => "stopping",
            Self::Closing { .. } => "closing",
            Self::Ended(ended) => ended.outcome.label(),
        }
    }

    /// The same after the name of a task: "is running", "has failed".
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
