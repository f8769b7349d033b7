//! The end of every history: all work is over, all timers have fired, all results and messages are
//! accounted for.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_model::approval::ApprovalVerdict;
use brigade_model::call::{Condition, ConditionRequest, WaitMode};
use brigade_model::command::{
    AfterPark, AnswerCommand, AttemptReport, Caller, ClientCaller, CollectCommand, Command,
    GivenAnswer, MarkRead, ReadInboxCommand, Recipient, RecoverCommand, RecoveryFinding,
    ReportCommand, SendCommand, WorkResult,
};
use brigade_model::decide::CommandReply;
use brigade_model::event::CollectedRun;
use brigade_model::ids::{Millis, Owner, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::{CostEstimate, Limits, Usage};
use brigade_model::task::{QueueReason, TaskRow, TaskState};
use brigade_model::work::ParentClosePolicy;

use crate::rows::is_alive;
use crate::world::World;

pub(crate) fn drive_to_the_end(world: &mut World) {
    world.runtime_dice = None;
    // A task that waits for a slot under a limit of zero would wait for ever.
    lift_the_limits(world);
    for _ in 0..200 {
        if world.folded.rows().all(|(_, row)| !row.holds_slot() && !is_alive(row)) {
            break;
        }
        one_round(world);
    }
    let alive: Vec<_> = world.folded.rows().filter(|(_, row)| is_alive(row)).collect();
    assert!(alive.is_empty(), "these never end: {alive:#?}");
    every_result_can_be_collected_once(world);
    every_message_arrived(world);
    every_task_can_be_evicted(world);
}

fn lift_the_limits(world: &mut World) {
    let alive: Vec<_> = tasks(world, is_alive);
    let holders = alive.into_iter().flat_map(|no| world.naive().limit_chain(Owner::Task(no)));
    let holders: BTreeSet<TaskNo> = holders.filter_map(Owner::task).collect();
    let limited = |no: &TaskNo| world.folded.get(*no).is_some_and(|row| row.limits.is_some());
    let of: Vec<TaskNo> = holders.into_iter().rev().filter(limited).collect();
    for task in of.into_iter().map(|no| Some(no.into())).chain([None]) {
        let set = brigade_model::command::SetLimitsCommand {
            caller: Caller::Operator,
            task,
            limits: Limits::default(),
        };
        world.submit(&Command::SetLimits(set)).expect("the operator sets limits");
    }
}

fn tasks(world: &World, which: impl Fn(&TaskRow) -> bool) -> Vec<TaskNo> {
    world.folded.rows().filter(|(_, row)| which(row)).map(|(no, _)| no).collect()
}

fn one_round(world: &mut World) {
    while world.tree.has_sweep() {
        world.submit(&Command::Sweep).expect("a sweep goes on");
    }
    for no in tasks(world, |row| matches!(row.state, TaskState::Running)) {
        take_results(world, no);
    }
    for no in tasks(world, TaskRow::holds_slot) {
        returned(world, no);
    }
    let nobody = |row: &TaskRow| {
        matches!(&row.state, TaskState::Queued(queued)
            if matches!(queued.reason, QueueReason::NoPerformer { .. }))
    };
    for no in tasks(world, nobody) {
        let recover = RecoverCommand { no, finding: RecoveryFinding::Shutdown };
        world.submit(&Command::Recover(recover)).expect("a performer came back");
    }
    for no in tasks(world, |row| row.away().is_some()) {
        let recover = RecoverCommand { no, finding: RecoveryFinding::Adopted };
        // The host of every second one stays away until its grace is over.
        if no.get() % 2 == 0 {
            world.submit(&Command::Recover(recover)).expect("its host came back");
        }
    }
    for no in tasks(world, |row| matches!(row.state, TaskState::Waiting)) {
        answer_all(world, no);
    }
    world.now = world.now.after(Millis(100_000));
    world.submit(&Command::Tick).expect("the clock moves");
    world.evict();
}

/// Collects, for a running parent, the results of all children that ended in this run.
fn take_results(world: &mut World, no: TaskNo) {
    let Some(row) = world.folded.get(no).filter(|row| matches!(row.state, TaskState::Running))
    else {
        return;
    };
    let attempt = row.attempt;
    let run = row.run;
    let request = ConditionRequest::Tasks {
        tasks: Vec::new(),
        mode: WaitMode::Any,
        timeout: Some(Millis(1)),
        interruptible: false,
    };
    let report = AttemptReport::Park {
        calls: vec![(world.next_call(), request)],
        acked_entries: u32::MAX,
        then: AfterPark::Continue,
    };
    world.submit(&Command::Report(ReportCommand { no, attempt, report })).expect("it runs");
    // It gets one completion at a time, and older calls may come first.
    while world.folded.get(no).is_some_and(|row| row.unacked.is_some()) {
        let report = AttemptReport::Park {
            calls: Vec::new(),
            acked_entries: u32::MAX,
            then: AfterPark::Continue,
        };
        world.submit(&Command::Report(ReportCommand { no, attempt, report })).expect("it runs");
    }
    for child in tasks(world, |row| row.owner == Owner::Task(no) && !is_alive(row)) {
        let row = world.folded.get(child).expect("the child was just there");
        let collected = world.ledger.collected.contains(&CollectedRun { no: child, run: row.run });
        assert!(collected || row.opened_by_run() != run, "{no:?} did not collect {child:?}");
    }
}

fn returned(world: &mut World, no: TaskNo) {
    let Some(row) = world.folded.get(no).filter(|row| row.holds_slot()) else { return };
    let report = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    let attempt = row.attempt;
    let policy = row.spec.work.policy();
    let ended = world.submit(&Command::Report(ReportCommand { no, attempt, report }));
    if ended.is_err() && policy.parent_close == ParentClosePolicy::CollectChildren {
        let index = world.next_call();
        let report = AttemptReport::BeginStep {
            index,
            cost: CostEstimate { max: Usage::NONE, min: Usage::NONE },
        };
        world
            .submit(&Command::Report(ReportCommand { no, attempt, report }))
            .expect("it continues instead");
        return;
    }
    ended.expect("a performed task may end");
}

fn answer_all(world: &mut World, no: TaskNo) {
    let calls = world.folded.get(no).map(|row| row.parked_calls.clone()).unwrap_or_default();
    for call in calls {
        let still_open =
            world.folded.get(no).is_some_and(|row| row.parked_call(call.index).is_some());
        let answer = match call.condition {
            Condition::Question { .. } | Condition::ClientTool { .. } => {
                GivenAnswer::Reply(Json::null())
            }
            Condition::Approval { .. } => GivenAnswer::Verdict(ApprovalVerdict::AllowOnce),
            Condition::Message { until: None, name } if still_open => {
                write_to(world, no, name);
                continue;
            }
            Condition::Messages | Condition::Inbox if still_open => {
                write_to(world, no, None);
                continue;
            }
            _ => continue,
        };
        let caller = Caller::Operator;
        let task = no.into();
        let given =
            AnswerCommand { caller, task, call: Some(call.index), answer, caller_call: None };
        let _ = world.submit(&Command::Answer(given));
    }
}

fn write_to(world: &mut World, no: TaskNo, name: Option<Arc<str>>) {
    let to = Recipient::Task(no.into());
    let send = SendCommand { name, ..SendCommand::new(Caller::Operator, to, Json::null()) };
    let _ = world.submit(&Command::Send(send));
    // Work with a pushed inbox is not woken by a message, so the operator ends its wait.
    let waits = world.folded.get(no).is_some_and(|row| matches!(row.state, TaskState::Waiting));
    if waits && world.folded.unread_count(Owner::Task(no)) > 0 {
        let stop = brigade_model::command::StopCommand {
            caller: Caller::Operator,
            target: brigade_model::command::StopTarget::Task(no.into()),
            reason: None,
            grace: None,
            call: None,
        };
        world.submit(&Command::Stop(stop)).expect("the operator stops it");
    }
}

fn every_result_can_be_collected_once(world: &mut World) {
    let lapsed = ["c1", "c2"].iter().filter_map(|id| id.parse().ok()).collect();
    let one = ClientCaller { lapsed, ..ClientCaller::from("one") };
    for client in [one, "two".into()] {
        let collect = Command::Collect(CollectCommand {
            caller: Caller::Client(client),
            tasks: Vec::new(),
            mode: WaitMode::All,
        });
        world.submit(&collect).expect("a client collects");
        let again = world.submit(&collect).expect("a client collects");
        assert_eq!(again, CommandReply::Results(Vec::new()), "a result came twice");
    }
    for (no, row) in world.folded.rows() {
        if row.owner == Owner::Session && row.client.is_some() {
            for run in 1..=row.run.0 {
                let run = CollectedRun { no, run: brigade_model::ids::RunNo(run) };
                assert!(world.ledger.ended.contains_key(&run), "{run:?} never ended");
                assert!(world.ledger.collected.contains(&run), "{run:?} was not collected");
            }
        }
    }
}

fn every_message_arrived(world: &mut World) {
    let read =
        ReadInboxCommand { caller: Caller::Operator, mark_read: MarkRead::Oldest(usize::MAX) };
    world.submit(&Command::ReadInbox(read)).expect("the operator reads");
    let lost: Vec<_> = world.ledger.sent.difference(&world.ledger.arrived).collect();
    assert!(lost.is_empty(), "these messages did not arrive: {lost:?}");
}

fn every_task_can_be_evicted(world: &mut World) {
    world.evict();
    let kept: Vec<_> = world.tree.rows().collect();
    assert!(kept.is_empty(), "these stay in memory: {kept:#?}");
}
