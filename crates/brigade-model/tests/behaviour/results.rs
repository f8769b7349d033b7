//! Results: each reaches its owner once, and can be requested again.

use brigade_model::call::WaitMode;
use brigade_model::command::{AttemptReport, Caller, WorkResult};
use brigade_model::decide::CommandReply;
use brigade_model::event::Event;
use brigade_model::ids::Owner;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;

use crate::support::*;

fn me() -> Caller {
    client("me")
}

#[test]
fn a_result_is_collected_once_and_marked_when_it_is_read_again() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.succeed(no);
    assert_eq!(env.collected(me(), &[no.into()]), [(no, false)]);
    assert_eq!(env.collected(me(), &[no.into()]), [(no, true)]);
    assert_eq!(env.collected(me(), &[]), [], "a wait for all runs no longer covers it");
    assert_eq!(env.count(|event| matches!(event, Event::Collected { .. })), 1);
}

#[test]
fn a_result_named_twice_is_returned_once() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.succeed(no);
    assert_eq!(env.collected(me(), &[no.into(), no.into(), run_of(no, 1)]), [(no, false)]);
}

#[test]
fn the_operator_reads_results_without_collecting_them() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.succeed(no);
    assert_eq!(env.collected(operator(), &[no.into()]), [(no, false)]);
    assert_eq!(env.collected(operator(), &[no.into()]), [(no, false)]);
    assert_eq!(env.collected(me(), &[]), [(no, false)]);
}

#[test]
fn a_pending_wait_collects_nothing() {
    let mut env = Env::new();
    let [a, b] = [0; 2].map(|_| env.spawn(job()));
    env.succeed(a);
    let all = env.collect(me(), &[], WaitMode::All).unwrap();
    assert_eq!(all, CommandReply::Pending(vec![b]));
    let any = env.collect(me(), &[b.into()], WaitMode::Any).unwrap();
    assert_eq!(any, CommandReply::Pending(vec![b]));
    let CommandReply::Results(results) = env.collect(me(), &[], WaitMode::Any).unwrap() else {
        panic!("one of them has ended")
    };
    assert_eq!((results.len(), results[0].no, results[0].collected_before), (1, a, false));
}

#[test]
fn a_wait_for_all_runs_covers_the_clients_own_runs() {
    let mut env = Env::new();
    let mine = env.spawn(job());
    let theirs = env.try_spawn(client("other"), job()).unwrap().no;
    env.succeed(mine);
    env.succeed(theirs);
    assert_eq!(env.collected(me(), &[]), [(mine, false)]);
    assert_eq!(
        env.collected(me(), &[theirs.into()]),
        [(theirs, false)],
        "a foreign task must be named"
    );
    assert_eq!(env.collected(client("other"), &[]), []);
}

#[test]
fn runs_are_collected_one_by_one() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    env.send_to(no);
    assert_eq!(env.collected(me(), &[run_of(no, 1)]), [(no, false)], "the second run is alive");
    env.fail(no);
    assert_eq!(env.collected(me(), &[no.into()]), [(no, false)]);
    let runs: Vec<Vec<u32>> = env
        .events
        .iter()
        .filter_map(|record| match &record.event {
            Event::Collected { runs } => Some(runs.iter().map(|run| run.run.0).collect()),
            _ => None,
        })
        .collect();
    assert_eq!(runs, [vec![1], vec![2]]);
}

#[test]
fn uncollected_results_of_earlier_runs_are_returned_too() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    env.send_to(no);
    env.fail(no);
    let Ok(CommandReply::Results(results)) = env.collect(me(), &[], WaitMode::All) else {
        panic!("both runs have ended")
    };
    let got: Vec<_> = results.iter().map(|result| (result.run.0, result.outcome.label())).collect();
    assert_eq!(got, [(1, "succeeded"), (2, "failed")]);
}

#[test]
fn a_collected_run_that_was_followed_by_another_is_not_an_empty_success() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    env.collected(me(), &[no.into()]);
    env.send_to(no);
    let again = env.collect(me(), &[run_of(no, 1)], WaitMode::All);
    refused(again, RefusalKind::NotFound, "run 1 of agent:1 was collected");
}

#[test]
fn outcomes_are_truthful() {
    let failure = || Failure::MaxSteps { steps: 9 };
    let cases = [
        (WorkResult::Returned(json("soup")), "succeeded"),
        (
            WorkResult::Failed { failure: Failure::Panic("oh".into()), partial: None },
            "failed (panic: oh)",
        ),
        (
            WorkResult::Failed { failure: Failure::ExitCode(3), partial: None },
            "failed (exit code 3)",
        ),
        (
            WorkResult::Failed { failure: failure(), partial: Some(json("half")) },
            "failed (max steps: 9)",
        ),
        (
            WorkResult::Stopped { partial: Some(json("half")), spent: None },
            "failed (lost, says its performer: it ended without a report)",
        ),
        (WorkResult::Aborted, "failed (lost, says its performer: it ended without a report)"),
    ];
    for (result, expect) in cases {
        let mut env = Env::new();
        let no = env.spawn(agent().named("Cook"));
        env.report(no, AttemptReport::Ended(result.into()));
        assert_eq!(env.outcome(no).to_string(), expect);
        // After any outcome, the name is free and the waiter gets the result.
        assert_eq!(env.collected(me(), &[no.into()]), [(no, false)]);
        env.spawn(agent().named("Cook"));
    }
}

#[test]
fn a_parent_may_resume_a_child_unless_it_was_cancelled() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let [good, bad, stopped] = [0; 3].map(|_| env.spawn_child(parent, agent()));
    env.succeed(good);
    env.fail(bad);
    env.stop_task(stopped);
    env.aborted(stopped);
    let caller = env.by(parent);
    env.resume(caller.clone(), good).unwrap();
    env.resume(caller.clone(), bad).unwrap();
    refused(env.resume(caller.clone(), stopped), RefusalKind::Forbidden, "only the operator");
    refused(env.resume(caller, good), RefusalKind::Conflict, "has not ended");
    env.resume(operator(), stopped).unwrap();
    env.states(&[(good, "running"), (bad, "running"), (stopped, "running")]);
}

#[test]
fn a_run_opened_under_an_ended_parent_belongs_to_the_session() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent().named("Cook"));
    env.succeed(child);
    env.succeed(parent);
    env.spawn(agent().named("cook"));
    env.resume(operator(), child).unwrap();
    assert_eq!(env.row(child).owner, Owner::Session);
    assert_eq!(env.row(child).name, None, "the name was taken meanwhile");
    let dropped = |event: &Event| matches!(event, Event::RunOpened { name_dropped: true, .. });
    assert_eq!(env.count(dropped), 1, "the event says so");
}

#[test]
fn a_new_run_does_not_wait_for_results_of_an_earlier_one() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let [earlier, again] = [0; 2].map(|_| env.spawn_child(parent, agent()));
    env.succeed(earlier);
    env.succeed(again);
    env.succeed(parent);
    env.send_to(parent);
    env.send_to(again);
    env.succeed(again);
    env.park(parent, 1, wait_for(&[], WaitMode::All));
    assert_eq!(env.results(parent, 1), [(again, false), (again, false)]);
    env.park(parent, 2, wait_for(&[earlier], WaitMode::All));
    assert_eq!(env.results(parent, 2), [(earlier, false)], "it can be named");
}

#[test]
fn a_resumed_run_keeps_the_state_of_the_work() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.report(no, AttemptReport::State(json("page 7")));
    env.succeed(no);
    env.clear();
    env.resume(me(), no).unwrap();
    let start = env.actions.iter().find_map(|action| match action {
        brigade_model::action::Action::Start(start) => Some(start.state.clone()),
        _ => None,
    });
    assert_eq!(start, Some(Some(json("page 7"))));
    assert!(!matches!(env.row(no).ended().map(|e| &*e.outcome), Some(Outcome::Succeeded { .. })));
}
