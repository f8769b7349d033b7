//! Turns random numbers into commands that make sense in the current world.

use std::fmt;
use std::sync::Arc;

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::call::{CallCompletion, Condition, ConditionRequest, WaitMode};
use brigade_model::command::{
    AfterPark, AnswerCommand, AttemptReport, CallRecord, Caller, ClientCaller, ClientControl,
    CloseCommand, CollectCommand, Command, EndReport, GivenAnswer, HostAbsence, MarkRead,
    PushResult, ReadInboxCommand, Recipient, RecoverCommand, RecoveryFinding, ReportCommand,
    ResumeCommand, SendCommand, SetLimitsCommand, SpawnCommand, StopCommand, StopTarget,
    WorkResult,
};
use brigade_model::entry_label::EntryLabel;
use brigade_model::error_details::ErrorDetails;
use brigade_model::ids::{Attempt, ClientIdentity, Millis, Owner, RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::{CostEstimate, Limits, Money, Usage};
use brigade_model::outcome::EndConfirmation;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::spec::TaskSpec;
use brigade_model::stall::{StallPolicy, StallWatch};
use brigade_model::task::TaskRow;
use brigade_model::work::{
    AgentWork, CommandLine, CustomWork, FollowUp, InboxMode, JobWork, KeptDeadline, KindPolicy,
    ParentClosePolicy, ProcessWork, ReadinessCheck, RecoveryPolicy, StdinSource, WakeOn, Work,
};

use crate::approvals;
use crate::world::World;

/// One step of a history: the kind of command, and the numbers for its choices. The step of all
/// zeros does nothing, so that a shrunk history shows only the relevant steps.
#[derive(Clone, Copy)]
pub(crate) struct Gene(pub(crate) u8, pub(crate) u32, pub(crate) u32);

impl fmt::Debug for Gene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("-"),
            _ => write!(f, "Gene({}, {}, {})", self.0, self.1, self.2),
        }
    }
}

/// A source of small choices from the numbers of a gene.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(a: u32, b: u32) -> Self {
        Self(u64::from(a) << 32 | u64::from(b))
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // An odd multiplier mixes the state, so that late rolls depend on all bits.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % sides.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.roll(from.len())].clone())
    }
}

pub(crate) fn play(world: &mut World, gene: Gene) {
    let Gene(kind, a, b) = gene;
    let mut dice = Dice::new(a, b);
    match kind {
        0 => {}
        1..=19 => spawn(world, &mut dice),
        20..=31 => park(world, &mut dice),
        32..=42 => report(world, &mut dice),
        43..=51 => end(world, &mut dice),
        52..=57 => send(world, &mut dice),
        58..=62 => stop(world, &mut dice),
        63..=67 => collect(world, &mut dice),
        68..=69 => answer(world, &mut dice),
        70 => approvals::decide(world, &mut dice),
        71..=73 => resume(world, &mut dice),
        74..=76 => set_limits(world, &mut dice),
        77 if dice.one_in(6) => {
            let close = CloseCommand { caller: caller(world, &mut dice), reason: None };
            submit(world, Command::Close(close));
        }
        77..=84 => {
            let spans = [0, 1, 50, 200, 1_000, 5_000, 30_000];
            world.now = world.now.after(Millis(spans[dice.roll(spans.len())]));
            // The tick is late now and then, so that other commands see due timers first.
            if !dice.one_in(3) {
                submit(world, Command::Tick);
            }
        }
        85 => submit(world, Command::Sweep),
        86..=88 => crash(world, &mut dice),
        89..=93 => world.evict(),
        94..=97 => world.rebuild(),
        _ => {
            let take = MarkRead::Oldest(dice.roll(3));
            let read = ReadInboxCommand { caller: caller(world, &mut dice), mark_read: take };
            submit(world, Command::ReadInbox(read));
        }
    }
}

/// Submits a command and ignores a refusal, which the world has checked.
pub(crate) fn submit(world: &mut World, command: Command) {
    let _ = world.submit(&command);
}

fn performed(world: &World) -> Vec<(TaskNo, Attempt)> {
    let rows = world.folded.rows().filter(|(_, row)| row.is_performed());
    rows.map(|(no, row)| (no, row.attempt)).collect()
}

/// Returns a current attempt, or now and then one that is over.
fn performer(world: &World, dice: &mut Dice) -> Option<(TaskNo, Attempt)> {
    if dice.one_in(12) {
        let all: Vec<_> = world.folded.rows().map(|(no, row)| (no, row.attempt)).collect();
        let (no, attempt) = dice.pick(&all)?;
        return Some((no, Attempt(attempt.0.saturating_sub(dice.roll(2) as u32))));
    }
    dice.pick(&performed(world))
}

/// Returns the first client in one of two conversations or in none, with the other one lapsed or
/// not.
fn conversing(dice: &mut Dice) -> ClientCaller {
    let [own, other] = [["c1", "c2"], ["c2", "c1"]][dice.roll(2)].map(|id| id.parse().ok());
    let conversation = own.filter(|_| !dice.one_in(3));
    let lapsed = other.into_iter().filter(|_| dice.one_in(2)).collect();
    let identity = ClientIdentity { conversation, ..ClientIdentity::from("one") };
    ClientCaller { lapsed, ..identity.into() }
}

pub(crate) fn caller(world: &World, dice: &mut Dice) -> Caller {
    match dice.roll(8) {
        0 => Caller::Operator,
        1 => Caller::Client(conversing(dice)),
        2 => {
            let controls = [ClientControl::Own, ClientControl::Confined, ClientControl::Shared];
            let control = controls[dice.roll(3)];
            Caller::Client(ClientCaller { control, ..ClientCaller::from("two") })
        }
        _ => match performer(world, dice) {
            Some((no, attempt)) => Caller::Task { no, attempt },
            None => Caller::Client("one".into()),
        },
    }
}

const NAMES: [&str; 4] = ["Tester", "tester", "Cook", "Waiter"];

pub(crate) fn task_ref(world: &World, dice: &mut Dice, caller: &Caller) -> TaskRef {
    let mine: Vec<TaskNo> = world
        .folded
        .rows()
        .filter(|(_, row)| row.owner == caller.owner())
        .map(|(no, _)| no)
        .collect();
    let last = world.tree.row().last_task.map_or(0, TaskNo::get);
    let any = TaskNo::new(dice.roll(last as usize + 1) as u32 + 1).unwrap_or(TaskNo::FIRST);
    let no = if dice.one_in(4) { any } else { dice.pick(&mine).unwrap_or(any) };
    let selector = match dice.roll(6) {
        0 => TaskSelector::Name(NAMES[dice.roll(NAMES.len())].parse().expect("a good name")),
        1 => {
            let of = if dice.one_in(4) { any } else { no };
            let kind = world.folded.get(of).map(|row| row.spec.work.kind());
            kind.map_or(TaskSelector::Number(no), |kind| TaskSelector::KindAndNumber(kind, no))
        }
        _ => TaskSelector::Number(no),
    };
    let run = dice.one_in(6).then(|| RunNo(dice.roll(3) as u32 + 1));
    TaskRef { selector, run }
}

fn limits(dice: &mut Dice) -> Limits {
    let mut limits = Limits::default();
    for _ in 0..=dice.roll(2) {
        let some = dice.roll(4) as u32;
        match dice.roll(9) {
            0 | 1 => limits.running = Some(some.min(2)),
            2 => limits.width = Some(some + 1),
            3 => limits.depth = Some(some as u16),
            4 => limits.total = Some(some + 1),
            5 => limits.tokens = Some(40 + u64::from(some) * 40),
            6 => limits.time = Some(Millis(1_000 * u64::from(some + 1))),
            7 => limits.stall = Some(stall(dice)),
            _ => limits.spawn_rate = Some(RATE),
        }
    }
    limits
}

/// The only rate that is used, so that the reference can be simple.
pub(crate) const RATE: SpawnRate = SpawnRate { count: 3, per: Millis(2_000) };

fn stall(dice: &mut Dice) -> StallPolicy {
    let after = Millis(500);
    let nudges = dice.roll(3) as u8;
    match dice.roll(4) {
        0 => StallPolicy::Off,
        _ => StallPolicy::Watched(StallWatch { after, nudges, then_stop: dice.one_in(2) }),
    }
}

fn policy(dice: &mut Dice) -> KindPolicy {
    let backoff = Millis(100);
    let policies = [
        RecoveryPolicy::Lost,
        RecoveryPolicy::Adopt,
        RecoveryPolicy::Resume { max_attempts: 1, backoff },
    ];
    let closes = [
        ParentClosePolicy::AwaitChildren,
        ParentClosePolicy::StopChildren,
        ParentClosePolicy::CollectChildren,
    ];
    let inboxes = [InboxMode::Pull, InboxMode::Pull, InboxMode::Push];
    KindPolicy {
        recovery: policies[dice.roll(3)],
        parent_close: closes[dice.roll(3)],
        follow_up: [FollowUp::NewRun, FollowUp::Refused][dice.roll(2)],
        inbox_mode: inboxes[dice.roll(3)],
        wake_on: [WakeOn::AllCompletions, WakeOn::AnyCompletion][dice.roll(2)],
    }
}

fn spec(dice: &mut Dice) -> TaskSpec {
    let args = Json::null();
    let mut spec = TaskSpec::new(match dice.roll(8) {
        0 | 1 => Work::Job(JobWork::Named {
            handler: "h".into(),
            args,
            recovery: RecoveryPolicy::resume_max_crashes(2),
        }),
        2 => Work::Job(JobWork::Closure { label: "c".into() }),
        3 | 4 => {
            let may_end_before_children = dice.one_in(2);
            Work::Agent(AgentWork { may_end_before_children, ..AgentWork::new("do it") })
        }
        5 => Work::Process(ProcessWork {
            stdin: [StdinSource::Null, StdinSource::Messages][dice.roll(2)],
            ready: dice.one_in(2).then_some(ReadinessCheck::Port(8_000)),
            ..ProcessWork::new(CommandLine::Shell("true".into()))
        }),
        6 => {
            let policy = KindPolicy {
                recovery: RecoveryPolicy::Adopt,
                follow_up: FollowUp::NewRun,
                inbox_mode: InboxMode::Push,
                ..KindPolicy::adopted()
            };
            Work::Custom(CustomWork { kind: "other".into(), payload: args, policy: Some(policy) })
        }
        _ => {
            let policy = Some(policy(dice));
            Work::Custom(CustomWork { kind: "cook".into(), payload: args, policy })
        }
    });
    let names = dice.one_in(3).then(|| NAMES[dice.roll(NAMES.len())]);
    spec.name = names.map(|name| name.parse().expect("a good name"));
    let keys = dice.one_in(3).then(|| ["k1", "k2"][dice.roll(2)]);
    spec.key = keys.map(|key| key.parse().expect("a good key"));
    spec.keep = dice.one_in(3);
    spec.kept_deadline =
        dice.one_in(5).then(|| [KeptDeadline::Inherited, KeptDeadline::Dropped][dice.roll(2)]);
    spec.grace = dice.one_in(5).then_some(Millis(100));
    spec.limits = dice.one_in(4).then(|| Box::new(limits(dice)));
    spec
}

fn spawn(world: &mut World, dice: &mut Dice) {
    let caller = caller(world, dice);
    // Often the same request as an earlier one, so that keys are repeated.
    let keyed = world.folded.rows().filter(|(_, row)| row.spec.key.is_some());
    let before: Vec<Arc<TaskSpec>> = keyed.map(|(_, row)| row.spec.clone()).collect();
    let again = dice.one_in(3).then(|| dice.pick(&before)).flatten();
    let spec = again.unwrap_or_else(|| Arc::new(spec(dice)));
    let call = dice.one_in(3).then(|| world.next_call());
    submit(world, Command::Spawn(SpawnCommand { caller, spec, call }));
}

fn condition_request(world: &World, dice: &mut Dice, no: TaskNo) -> ConditionRequest {
    let timeout = dice.one_in(2).then(|| Millis([0, 100, 1_000, 60_000][dice.roll(4)]));
    match dice.roll(12) {
        11 => ConditionRequest::Messages,
        10 => ConditionRequest::Retry {
            label: EntryLabel::step("step"),
            attempt: dice.roll(3) as u32 + 1,
            error: ErrorDetails::new("no").with_kind("odd"),
            pause: Millis([0, 100, 2_000][dice.roll(3)]),
        },
        9 => ConditionRequest::Inbox,
        0 => ConditionRequest::Message { timeout, name: message_name(dice) },
        1 => ConditionRequest::Timer { duration: Millis([0, 100, 2_000][dice.roll(3)]) },
        2 => ConditionRequest::Question { question: Json::null() },
        3 if dice.one_in(2) => approvals::approval_request(dice),
        3 => ConditionRequest::ClientTool { request: Json::null() },
        _ => {
            let rows = world.folded.rows();
            let mine: Vec<TaskNo> =
                rows.filter(|(_, row)| row.owner == Owner::Task(no)).map(|(no, _)| no).collect();
            let mut tasks: Vec<TaskNo> = mine.into_iter().filter(|_| dice.one_in(2)).collect();
            if dice.one_in(12) {
                tasks.extend(TaskNo::new(dice.roll(12) as u32 + 1));
            }
            let mode = [WaitMode::Any, WaitMode::All][dice.roll(2)];
            let interruptible = dice.one_in(2);
            if dice.one_in(3) {
                // Mostly tasks that can become ready.
                tasks.retain(|no| {
                    let row = world.folded.get(*no);
                    let check = row.and_then(|row| row.spec.work.readiness_check());
                    check.is_some() || dice.one_in(12)
                });
                return ConditionRequest::Ready { tasks, mode, timeout, interruptible };
            }
            ConditionRequest::Tasks { tasks, mode, timeout, interruptible }
        }
    }
}

fn park(world: &mut World, dice: &mut Dice) {
    let Some((no, attempt)) = performer(world, dice) else { return };
    let mut calls = Vec::new();
    for _ in 0..=dice.roll(2) {
        calls.push((world.next_call(), condition_request(world, dice, no)));
    }
    let open = world.folded.get(no).map_or(0, |row| row.parked_calls.len()) + calls.len();
    let then = match dice.roll(4) {
        0 => AfterPark::Continue,
        1 => AfterPark::Suspend { parked_count: open + dice.roll(2) },
        _ => AfterPark::Suspend { parked_count: open },
    };
    submit(
        world,
        Command::Report(ReportCommand {
            no,
            attempt,
            report: AttemptReport::Park { calls, acked_entries: u32::MAX, then },
        }),
    );
}

fn report(world: &mut World, dice: &mut Dice) {
    let Some((no, attempt)) = performer(world, dice) else { return };
    let open: Vec<_> = world
        .folded
        .get(no)
        .map(|row| row.parked_calls.iter().map(|c| c.index).collect())
        .unwrap_or_default();
    let usage = |tokens: usize| Usage { tokens: tokens as u64, money: Money(tokens as u64 / 2) };
    let report = match dice.roll(16) {
        0 => {
            let index = world.next_call();
            let completion = Arc::new(CallCompletion::Value(Json::null()));
            let spent = dice.one_in(2).then(|| usage(dice.roll(50)));
            AttemptReport::Record(CallRecord {
                spent,
                ..CallRecord::new(index, EntryLabel::step("step"), completion)
            })
        }
        12 | 13 => {
            let completion = Arc::new(CallCompletion::Value(Json::null()));
            let record = CallRecord::new(world.next_call(), EntryLabel::step("step"), completion);
            let index = world.next_call();
            let max = usage(dice.roll(60));
            let step = AttemptReport::BeginStep {
                index,
                cost: CostEstimate { max, min: usage(dice.roll(10)) },
            };
            match dice.one_in(2) {
                true => {
                    AttemptReport::WithRecords { records: vec![record], report: Box::new(step) }
                }
                false => step,
            }
        }
        1 => AttemptReport::Progress(Json::null()),
        2 => AttemptReport::State(Json::null()),
        3 | 4 => AttemptReport::Abandon { calls: open },
        5 | 6 => AttemptReport::Reserve(CostEstimate {
            max: usage(dice.roll(60)),
            min: usage(dice.roll(10)),
        }),
        7 => AttemptReport::Charge(usage(dice.roll(50))),
        8 => AttemptReport::NoPerformer { reason: "nobody here".into() },
        9 => AttemptReport::Park {
            calls: Vec::new(),
            acked_entries: u32::MAX,
            then: AfterPark::Suspend { parked_count: open.len() },
        },
        14 | 15 => AttemptReport::Ready,
        _ => {
            let unread: Vec<_> =
                world.folded.inbox(Owner::Task(no)).map(|message| message.no).collect();
            let Some(message) = dice.pick(&unread) else { return };
            let reason = || PushResult::Refused { reason: "no input".into() };
            let result = if dice.one_in(4) { reason() } else { PushResult::Delivered };
            AttemptReport::Pushed { message, result }
        }
    };
    submit(world, Command::Report(ReportCommand { no, attempt, report }));
}

fn end(world: &mut World, dice: &mut Dice) {
    let Some((no, attempt)) = performer(world, dice) else { return };
    let result = match dice.roll(5) {
        0 => {
            let error = ErrorDetails::new("no").with_kind("odd").with_payload(Json::null());
            WorkResult::Failed { failure: error.into_fatal().into(), partial: None }
        }
        1 => WorkResult::Aborted,
        _ => WorkResult::Returned(Json::null()),
    };
    let confirmation = if dice.one_in(8) {
        EndConfirmation::Survivors(vec!["pid 7".into()])
    } else {
        EndConfirmation::Confirmed
    };
    let report = AttemptReport::Ended(EndReport { result, confirmation });
    submit(world, Command::Report(ReportCommand { no, attempt, report }));
}

fn send(world: &mut World, dice: &mut Dice) {
    let caller = caller(world, dice);
    let to = match dice.roll(5) {
        0 => Recipient::Parent,
        1 => Recipient::Children,
        _ => Recipient::Task(task_ref(world, dice, &caller)),
    };
    let call = dice.one_in(3).then(|| world.next_call());
    let body = Json::of(&dice.roll(2)).expect("a number is JSON");
    let key = dice.one_in(2).then(|| ["m1", "m2"][dice.roll(2)].parse().expect("a good key"));
    let name = message_name(dice);
    let interrupt = dice.one_in(2);
    let send = SendCommand { interrupt, name, key, call, ..SendCommand::new(caller, to, body) };
    submit(world, Command::Send(send));
}

fn message_name(dice: &mut Dice) -> Option<Arc<str>> {
    dice.one_in(2).then(|| ["red", "blue"][dice.roll(2)].into())
}

fn stop(world: &mut World, dice: &mut Dice) {
    let caller = caller(world, dice);
    let target = match dice.roll(6) {
        0 => StopTarget::Itself,
        1 if dice.one_in(3) => StopTarget::Children,
        _ => StopTarget::Task(task_ref(world, dice, &caller)),
    };
    let grace = dice.one_in(3).then_some(Millis(50));
    submit(world, Command::Stop(StopCommand { caller, target, reason: None, grace, call: None }));
}

fn collect(world: &mut World, dice: &mut Dice) {
    let caller = caller(world, dice);
    let tasks = (0..dice.roll(3)).map(|_| task_ref(world, dice, &caller)).collect();
    let mode = [WaitMode::Any, WaitMode::All][dice.roll(2)];
    submit(world, Command::Collect(CollectCommand { caller, tasks, mode }));
}

fn answer(world: &mut World, dice: &mut Dice) {
    let asks = |row: &TaskRow| {
        row.parked_calls.iter().any(|call| {
            !matches!(
                call.condition,
                Condition::Tasks(_)
                    | Condition::Message { .. }
                    | Condition::Messages
                    | Condition::Timer { .. }
                    | Condition::Retry(_)
            )
        })
    };
    let asking: Vec<TaskNo> =
        world.folded.rows().filter(|(_, row)| asks(row)).map(|(no, _)| no).collect();
    let caller = if dice.one_in(2) { Caller::Operator } else { caller(world, dice) };
    let task = match dice.pick(&asking) {
        Some(no) if !dice.one_in(5) => no.into(),
        _ => task_ref(world, dice, &caller),
    };
    let answer = GivenAnswer::Reply(Json::null());
    submit(
        world,
        Command::Answer(AnswerCommand { caller, task, call: None, answer, caller_call: None }),
    );
}

fn resume(world: &mut World, dice: &mut Dice) {
    let caller = caller(world, dice);
    let task = task_ref(world, dice, &caller);
    let limits = dice.one_in(3).then(|| limits(dice));
    submit(world, Command::Resume(ResumeCommand { caller, task, limits }));
}

fn set_limits(world: &mut World, dice: &mut Dice) {
    let caller = caller(world, dice);
    let task = (!dice.one_in(3)).then(|| task_ref(world, dice, &caller));
    let limits = if dice.one_in(2) { Limits::default() } else { limits(dice) };
    submit(world, Command::SetLimits(SetLimitsCommand { caller, task, limits }));
}

/// Kills the process; the next one reconciles every task that it finds.
fn crash(world: &mut World, dice: &mut Dice) {
    world.rebuild();
    // The next process may be on another host.
    let is_other_host = dice.one_in(3);
    let all: Vec<TaskNo> = world.tree.rows().map(|(no, _)| no).collect();
    let finding = if dice.one_in(4) { RecoveryFinding::Shutdown } else { RecoveryFinding::Crash };
    for no in all {
        submit(world, Command::Recover(RecoverCommand { no, finding: finding.clone() }));
        let is_unresolved =
            world.folded.get(no).is_some_and(|row| row.is_performed() || row.away().is_some());
        let is_hosted = world.folded.get(no).is_some_and(|row| row.host().is_some());
        if is_unresolved && is_hosted && is_other_host {
            let absence = HostAbsence {
                node: "kitchen-2".into(),
                last_seen: dice.one_in(2).then_some(world.now),
                grace: Millis([0, 200, 60_000][dice.roll(3)]),
            };
            let finding = match dice.roll(3) {
                0 => RecoveryFinding::HostPresent,
                _ => RecoveryFinding::HostAway(absence),
            };
            submit(world, Command::Recover(RecoverCommand { no, finding }));
        } else if is_unresolved {
            let not_found =
                RecoveryFinding::NotFound { by: "the shim".into(), evidence: "no pid".into() };
            let finding = match dice.roll(4) {
                0 | 1 => RecoveryFinding::Adopted,
                2 => RecoveryFinding::NeverStarted,
                _ => not_found,
            };
            submit(world, Command::Recover(RecoverCommand { no, finding }));
        }
    }
}
