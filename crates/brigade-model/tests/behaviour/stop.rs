//! Stops: they close the subtree, reach all of it, escalate from graceful to forced, and report a
//! truthful outcome.

use brigade_model::action::Action;
use brigade_model::call::ConditionRequest;
use brigade_model::command::{
    AttemptReport, Command, EndReport, StopCommand, StopTarget, WorkResult,
};
use brigade_model::decide::StopResult;
use brigade_model::event::Event;
use brigade_model::ids::{Millis, Owner, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::outcome::{
    CancelledOutcome, EndConfirmation, Failure, LateResult, Outcome, StopInitiator,
};
use brigade_model::refusal::RefusalKind;
use brigade_model::transition::{CommandOutputs, handle_command_into};
use brigade_model::work::RecoveryPolicy;

use crate::support::*;

#[track_caller]
fn cancelled(env: &Env, no: TaskNo) -> &CancelledOutcome {
    match env.outcome(no) {
        Outcome::Cancelled(cancelled) => cancelled,
        other => panic!("{no:?} ended {other}"),
    }
}

#[test]
fn a_stop_reaches_every_descendant_and_counts_them() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let [a, b] = [0; 2].map(|_| env.spawn_child(top, agent()));
    let low = env.spawn_child(a, process());
    env.park(b, 1, ConditionRequest::Message { timeout: None, name: None });
    let other = env.spawn(agent());
    assert_eq!(env.stop_task(top), StopResult { tasks: 4, already_stopped: false });
    env.states(&[(top, "stopping"), (a, "stopping"), (low, "stopping"), (other, "running")]);
    assert_eq!(cancelled(&env, b).order.by, StopInitiator::Operator, "a waiting task ends at once");
    env.aborted(low);
    env.aborted(a);
    env.aborted(top);
    for no in [top, a, low] {
        assert_eq!(env.state(no), "cancelled");
    }
}

/// The commands of one turn of the loop share their outputs.
#[test]
fn the_stops_of_one_turn_sweep_one_slice() {
    let mut env = Env::new();
    let tops: Vec<TaskNo> = (0..3).map(|_| env.spawn(agent())).collect();
    for top in &tops {
        for _ in 0..400 {
            env.spawn_child(*top, job());
        }
    }
    let mut outputs = CommandOutputs::default();
    for top in tops {
        let target = StopTarget::Task(top.into());
        let stop =
            StopCommand { caller: operator(), target, reason: None, grace: None, call: None };
        let stop = Command::Stop(stop);
        handle_command_into(&mut env.tree, (&stop).into(), env.now, &mut outputs).unwrap();
    }
    let stopping = env.tree.rows().filter(|(_, row)| row.state.label() == "stopping").count();
    assert_eq!(stopping, 3 + 512);
    assert!(env.tree.has_sweep());
}

#[test]
fn a_stop_of_a_large_subtree_runs_in_slices() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let children: Vec<TaskNo> = (0..1_200).map(|_| env.spawn_child(top, job())).collect();
    let stopping = |env: &Env| children.iter().filter(|no| env.state(**no) == "stopping").count();
    assert_eq!(env.stop_task(top), StopResult { tasks: 1_201, already_stopped: false });
    assert_eq!(stopping(&env), 512);
    assert!(env.tree.has_sweep());
    let late = *children.last().unwrap();
    // A child that the stop has not reached yet is part of the stopped subtree already.
    let caller = env.by(late);
    refused(env.try_spawn(caller, job()), RefusalKind::Ended, "nothing new starts under it");
    env.succeed(late);
    assert_eq!(cancelled(&env, late).late, Some(LateResult::Result(json("soup"))));
    assert_eq!(stopping(&env), 1_024, "every command handles another slice");
    env.submit(&Command::Sweep).unwrap();
    assert_eq!(stopping(&env), 1_199);
    assert!(!env.tree.has_sweep());
}

#[test]
fn a_stop_in_progress_continues_after_a_reload() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let children: Vec<TaskNo> = (0..600).map(|_| env.spawn_child(top, job())).collect();
    env.stop_task(top);
    let mut loaded = brigade_model::task_tree::TaskTree::from_row(env.tree.row().clone());
    for (no, row) in env.tree.rows() {
        loaded.insert_loaded(brigade_model::task::StoredTask::new(no, row.clone()));
    }
    loaded.finish_loading();
    env.tree = loaded;
    while env.tree.has_sweep() {
        env.submit(&Command::Sweep).unwrap();
    }
    assert!(children.iter().all(|no| env.state(*no) == "stopping"));
}

#[test]
fn a_spawn_in_a_stopping_subtree_is_refused() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let child = env.spawn_child(top, agent());
    env.stop_task(top);
    for caller in [env.by(top), env.by(child)] {
        refused(env.try_spawn(caller, job()), RefusalKind::Ended, "nothing new starts under it");
    }
}

#[test]
fn a_stop_is_graceful_then_forced_then_unconfirmed_and_the_slot_stays_taken() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let no = env.spawn(closure().grace(1_000));
    let next = env.spawn(job());
    env.stop_task(no);
    let attempt = env.row(no).attempt;
    let stops = |a: &Action| matches!(a, Action::Stop { attempt: of, .. } if *of == attempt);
    let kills = |a: &Action| matches!(a, Action::Kill { attempt: of, .. } if *of == attempt);
    assert_eq!((env.acted(stops), env.acted(kills)), (1, 0));
    env.advance(999);
    assert_eq!(env.acted(kills), 0, "it has its grace");
    env.advance(1);
    assert_eq!(env.acted(kills), 1);
    assert_eq!(env.state(no), "stopping");
    env.advance(5_000);
    assert_eq!(cancelled(&env, no).confirmation, EndConfirmation::Unconfirmed);
    assert_eq!(env.outcome(no).to_string(), "cancelled (unconfirmed)");
    assert_eq!(env.state(next), "queued", "work that has not returned still holds the slot");
    refused(env.resume(operator(), no), RefusalKind::Unavailable, "has not returned");
    env.succeed(no);
    assert_eq!(env.count(|event| matches!(event, Event::SlotReturned { .. })), 1);
    assert_eq!(env.state(next), "running");
    assert_eq!(env.count(|e| matches!(e, Event::Ended { no: n, .. } if *n == no)), 1);
}

#[test]
fn an_order_can_override_the_grace() {
    let mut env = Env::new();
    let no = env.spawn(job().grace(60_000));
    let caller = operator();
    let target = StopTarget::Task(no.into());
    let grace = Some(Millis(10));
    env.submit(&Command::Stop(StopCommand { caller, target, reason: None, grace, call: None }))
        .unwrap();
    env.advance(10);
    assert_eq!(env.acted(|action| matches!(action, Action::Kill { .. })), 1);
}

#[test]
fn a_parent_does_not_end_before_its_descendants() {
    let mut env = Env::new();
    let top = env.spawn(agent().grace(10));
    let child = env.spawn_child(top, job().grace(100_000));
    env.stop_task(top);
    env.advance(10);
    env.advance(6_000);
    env.advance(6_000);
    assert_eq!(env.state(top), "stopping", "the child has its grace");
    env.aborted(child);
    env.advance(1_000);
    assert_eq!(cancelled(&env, top).confirmation, EndConfirmation::Unconfirmed);
}

#[test]
fn survivors_are_named_in_the_outcome() {
    let mut env = Env::new();
    let no = env.spawn(process());
    env.stop_task(no);
    let result = WorkResult::Failed { failure: Failure::Signal(9), partial: None };
    let confirmation = EndConfirmation::Survivors(vec!["pid 77".into()]);
    let end = EndReport { result, confirmation: confirmation.clone() };
    env.report(no, AttemptReport::Ended(end));
    let outcome = cancelled(&env, no);
    assert_eq!(outcome.confirmation, confirmation);
    assert_eq!(
        outcome.late,
        Some(LateResult::Failure(Failure::Signal(9))),
        "the real signal is kept"
    );
}

#[test]
fn a_success_after_the_stop_is_cancelled_with_the_late_result() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.stop_task(no);
    env.succeed(no);
    assert_eq!(cancelled(&env, no).late, Some(LateResult::Result(json("soup"))));
}

#[test]
fn a_stop_after_the_success_is_a_no_op() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    assert_eq!(env.stop_task(no), StopResult { tasks: 0, already_stopped: true });
    assert_eq!(env.state(no), "succeeded");
}

#[test]
fn a_stop_while_children_are_awaited_cancels_with_the_result_attached() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let child = env.spawn_child(no, job());
    env.succeed(no);
    assert_eq!(env.state(no), "closing");
    env.stop_task(no);
    assert_eq!(env.state(child), "stopping");
    env.aborted(child);
    assert_eq!(cancelled(&env, no).late, Some(LateResult::Result(json("soup"))));
}

#[test]
fn a_second_stop_changes_nothing() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.spawn_child(no, job());
    env.stop_task(no);
    env.clear();
    assert_eq!(env.stop_task(no), StopResult { tasks: 2, already_stopped: true });
    assert!(env.events.is_empty());
}

#[test]
fn a_task_can_stop_itself_and_its_children_are_stopped_too() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let child = env.spawn_child(no, process().kept());
    let caller = env.by(no);
    env.stop(caller, StopTarget::Itself).unwrap();
    env.states(&[(no, "stopping"), (child, "stopping")]);
    env.aborted(child);
    env.aborted(no);
    assert_eq!(cancelled(&env, no).order.by, StopInitiator::Itself);
    refused(env.stop(operator(), StopTarget::Itself), RefusalKind::Invalid, "only a task");
}

#[test]
fn stopping_all_children_is_per_owner() {
    let mut env = Env::new();
    let [one, two] = [0; 2].map(|_| env.spawn(agent()));
    let mine = [0; 2].map(|_| env.spawn_child(one, job()));
    let theirs = env.spawn_child(two, job());
    let caller = env.by(one);
    let stopped = env.stop(caller, StopTarget::Children).unwrap();
    assert_eq!(stopped, StopResult { tasks: 2, already_stopped: false });
    assert!(mine.iter().all(|no| env.state(*no) == "stopping"));
    env.states(&[(one, "running"), (two, "running"), (theirs, "running")]);
}

#[test]
fn a_queued_task_is_cancelled_without_having_run() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    env.spawn(job());
    let no = env.spawn(job());
    env.stop_task(no);
    assert_eq!(cancelled(&env, no).confirmation, EndConfirmation::Confirmed);
    assert_eq!(env.acted(|action| matches!(action, Action::Start(start) if start.no == no)), 0);
}

#[test]
fn the_end_of_a_job_stops_its_children() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let child = env.spawn_child(no, process());
    env.succeed(no);
    env.states(&[(no, "closing"), (child, "stopping")]);
    env.aborted(child);
    assert_eq!(env.state(no), "succeeded");
    assert_eq!(cancelled(&env, child).order.by, StopInitiator::ParentEnded);
}

#[test]
fn a_successful_agent_awaits_its_children_and_a_failed_one_stops_them() {
    let mut env = Env::new();
    let [good, bad] = [0; 2].map(|_| env.spawn(agent()));
    let [awaited, stopped] = [good, bad].map(|no| env.spawn_child(no, job()));
    env.succeed(good);
    env.fail(bad);
    env.states(&[(awaited, "running"), (stopped, "stopping")]);
    env.succeed(awaited);
    env.aborted(stopped);
    env.states(&[(good, "succeeded"), (bad, "failed")]);
}

#[test]
fn awaited_children_may_still_spawn() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let child = env.spawn_child(no, agent());
    env.succeed(no);
    let grandchild = env.spawn_child(child, job());
    env.states(&[(no, "closing"), (child, "running"), (grandchild, "running")]);
}

#[test]
fn kept_children_pass_to_the_session_when_the_work_is_over() {
    let mut env = Env::new();
    env.spawn(job().named("Cook"));
    let no = env.spawn(job());
    let kept = env.spawn_child(no, process().kept().named("cook"));
    let low = env.spawn_child(kept, job());
    let stopped = env.spawn_child(no, process());
    env.fail(no);
    env.states(&[(kept, "running"), (low, "running"), (stopped, "stopping")]);
    assert_eq!(env.row(kept).owner, Owner::Session);
    assert_eq!(env.row(kept).name, None, "a name taken meanwhile is dropped");
    env.aborted(stopped);
    env.states(&[(no, "failed"), (kept, "running")]);
}

#[test]
fn kept_children_of_a_stopped_task_are_stopped() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let kept = env.spawn_child(no, process().kept());
    env.stop_task(no);
    assert_eq!(env.state(kept), "stopping");
}

#[test]
fn a_kept_child_does_not_escape_a_stop_that_has_not_reached_its_parent() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    for _ in 0..600 {
        env.spawn_child(top, job());
    }
    let parent = env.spawn_child(top, closure());
    let kept = env.spawn_child(parent, job_that(RecoveryPolicy::resume_max_crashes(9)).kept());
    env.stop_task(top);
    env.states(&[(parent, "running"), (kept, "running")]);
    // The closure is lost with its process while the order is on its way to it.
    env.recover(parent, brigade_model::command::RecoveryFinding::Crash);
    assert_eq!(env.row(kept).owner, Owner::Task(parent));
    while env.tree.has_sweep() {
        env.submit(&Command::Sweep).unwrap();
    }
    assert_eq!(env.state(kept), "stopping");
    env.aborted(kept);
    assert!(matches!(
        cancelled(&env, parent).late,
        Some(LateResult::Failure(Failure::Lost { .. }))
    ));
}

#[test]
fn a_kept_child_does_not_escape_the_failure_of_its_parents_limit() {
    let mut env = Env::new();
    let limits = Limits { time: Some(Millis(1_000)), ..Limits::default() };
    let parent = env.spawn(job().limited(limits));
    for _ in 0..600 {
        env.spawn_child(parent, job());
    }
    let kept = env.spawn_child(parent, job().kept());
    env.advance(1_000);
    env.states(&[(parent, "stopping"), (kept, "running")]);
    env.aborted(parent);
    assert_eq!(env.row(kept).owner, Owner::Task(parent));
    while env.tree.has_sweep() {
        env.submit(&Command::Sweep).unwrap();
    }
    assert_eq!(env.state(kept), "stopping");
}

#[test]
fn a_kept_child_does_not_escape_a_closing_session() {
    let mut env = Env::new();
    for _ in 0..600 {
        env.spawn(job());
    }
    let parent = env.spawn(closure());
    let kept = env.spawn_child(parent, job().kept());
    env.close();
    assert_eq!(env.state(parent), "running", "the order is on its way");
    env.recover(parent, brigade_model::command::RecoveryFinding::Crash);
    while env.tree.has_sweep() {
        env.submit(&Command::Sweep).unwrap();
    }
    assert_eq!(env.state(kept), "stopping");
}

#[test]
fn a_stop_of_something_unknown_is_not_found() {
    let mut env = Env::new();
    let nobody = StopTarget::Task(TaskNo::FIRST.into());
    refused(env.stop(operator(), nobody), RefusalKind::NotFound, "there is no task 1");
}

#[test]
fn a_report_after_the_end_is_refused() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    let late = AttemptReport::Ended(WorkResult::Returned(json("again")).into());
    refused(env.try_report(no, late), RefusalKind::Ended, "is over");
}

#[test]
fn a_second_stop_with_less_grace_brings_the_deadline_forward_and_never_back() {
    let mut env = Env::new();
    let no = env.spawn(job().grace(60_000));
    let child = env.spawn_child(no, job().grace(60_000));
    env.stop_task(no);
    let stop = |grace| StopCommand {
        caller: operator(),
        target: StopTarget::Task(no.into()),
        reason: None,
        grace: Some(Millis(grace)),
        call: None,
    };
    env.submit(&Command::Stop(stop(90_000))).unwrap();
    env.advance(1_000);
    env.states(&[(no, "stopping"), (child, "stopping")]);
    let kills = |a: &Action| matches!(a, Action::Kill { .. });
    assert_eq!(env.acted(kills), 0);
    env.submit(&Command::Stop(stop(0))).unwrap();
    env.advance(0);
    assert_eq!(env.acted(kills), 2, "the task and its child");
}
