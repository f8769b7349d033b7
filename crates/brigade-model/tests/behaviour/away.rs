//! Processes whose host has no node.

use brigade_model::action::Action;
use brigade_model::command::{
    AttemptReport, EndReport, HostAbsence, PushResult, Recipient, RecoveryFinding, WorkResult,
};
use brigade_model::event::Event;
use brigade_model::ids::{Millis, Owner, TaskNo, Time};
use brigade_model::limits::Limits;
use brigade_model::outcome::{EndConfirmation, Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::spec::TaskSpec;
use brigade_model::work::{ParentClosePolicy, RecoveryPolicy};

use crate::support::*;

const GRACE: u64 = 600_000;

fn absent() -> RecoveryFinding {
    RecoveryFinding::HostAway(HostAbsence {
        node: "kitchen-2".into(),
        last_seen: Some(Time(940_000)),
        grace: Millis(GRACE),
    })
}

/// Creates a session whose processes start on a host.
fn env_with(limits: Limits) -> Env {
    let mut env = Env::limited(limits);
    env.tree.set_host(Some("kitchen/2".into()));
    env
}

fn away_process() -> (Env, TaskNo) {
    let mut env = env_with(Limits::default());
    let no = env.spawn(process());
    env.recover(no, absent());
    assert_eq!(env.state(no), "away");
    (env, no)
}

#[test]
fn a_process_is_away_while_its_host_has_no_node() {
    let (mut env, no) = away_process();
    let away = env.row(no).away().unwrap().clone();
    assert_eq!((&*away.node, away.since), ("kitchen-2", Time(940_000)));
    assert_eq!(away.until, env.now.after(Millis(GRACE)));
    assert!(env.row(no).is_alive() && !env.row(no).holds_slot() && !env.row(no).is_performed());
    env.advance(5_000);
    env.clear();
    for finding in [absent(), RecoveryFinding::Crash, RecoveryFinding::Shutdown] {
        env.recover(no, finding);
    }
    assert!(env.events.is_empty(), "a second look changes nothing");
    assert_eq!(env.row(no).away(), Some(&away));
}

#[test]
fn a_later_time_than_now_is_not_when_a_host_was_last_seen() {
    let mut env = env_with(Limits::default());
    for last_seen in [None, Some(env.now.after(Millis(8_000)))] {
        let no = env.spawn(process());
        let absence = HostAbsence { node: "k".into(), last_seen, grace: Millis(1) };
        env.recover(no, RecoveryFinding::HostAway(absence));
        assert_eq!(env.row(no).away().unwrap().since, env.now);
    }
}

#[test]
fn only_work_that_was_started_on_a_host_can_be_away() {
    let mut env = env_with(Limits::default());
    let adoptable = brigade_model::work::KindPolicy { recovery: RecoveryPolicy::Adopt, ..POLICY };
    for spec in [job(), agent(), custom(adoptable)] {
        let no = env.spawn(spec);
        env.recover(no, absent());
        assert_eq!(env.state(no), "running");
    }
    let waiting = env.spawn(process());
    env.succeed(waiting);
    env.recover(waiting, absent());
    assert_eq!(env.state(waiting), "succeeded");
}

#[test]
fn every_finding_about_an_away_process_has_its_effect() {
    let lost = || RecoveryFinding::NotFound { by: "the shim".into(), evidence: "no pid".into() };
    let table = [
        (RecoveryFinding::Adopted, "running"),
        (RecoveryFinding::HostPresent, "running"),
        (RecoveryFinding::NeverStarted, "queued"),
        (lost(), "failed"),
        (RecoveryFinding::Crash, "away"),
        (RecoveryFinding::Shutdown, "away"),
        (absent(), "away"),
    ];
    for (finding, expected) in table {
        let (mut env, no) = away_process();
        env.recover(no, finding.clone());
        assert_eq!(env.state(no), expected, "after {finding:?}");
    }
}

#[test]
fn a_returned_process_ends_with_the_truth_of_its_host() {
    let (mut env, no) = away_process();
    let report = AttemptReport::Ended(EndReport {
        result: WorkResult::Failed { failure: Failure::ExitCode(7), partial: None },
        confirmation: EndConfirmation::Confirmed,
    });
    let refused = env.try_report(no, report.clone());
    assert_eq!(refused.unwrap_err().kind, RefusalKind::Ended, "nobody executes it");
    env.recover(no, RecoveryFinding::Adopted);
    env.report(no, report);
    assert_eq!(env.outcome(no).to_string(), "failed (exit code 7)");
    env.advance(2 * GRACE);
    assert_eq!(env.outcome(no).to_string(), "failed (exit code 7)", "its grace is forgotten");
}

#[test]
fn a_process_whose_host_does_not_return_is_lost_after_the_grace() {
    let (mut env, no) = away_process();
    env.advance(GRACE - 1);
    assert_eq!(env.state(no), "away");
    assert_eq!(env.tree.next_due(), Some(env.now.after(Millis(1))), "the grace wakes the session");
    env.advance(1);
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("it is lost") };
    assert_eq!(failed.confirmation, EndConfirmation::Unconfirmed);
    let text = env.outcome(no).to_string();
    assert!(
        text.contains("lost")
            && text.contains("node kitchen-2 not seen since 1970-01-01 00:15:40Z"),
        "{text}"
    );
    assert!(!env.row(no).holds_slot(), "no performer here will return");
    env.clear();
    for finding in [RecoveryFinding::Adopted, RecoveryFinding::HostPresent, absent()] {
        env.recover(no, finding);
    }
    assert!(env.events.is_empty(), "the host comes too late");
}

#[test]
fn a_stop_of_an_away_process_is_not_confirmed() {
    let (mut env, no) = away_process();
    env.stop_task(no);
    let Outcome::Cancelled(cancelled) = env.outcome(no) else { panic!("it was stopped") };
    assert_eq!(cancelled.confirmation, EndConfirmation::Unconfirmed);
    assert_eq!(env.outcome(no).to_string(), "cancelled (unconfirmed)");
}

#[test]
fn a_stop_that_was_under_way_is_not_confirmed_when_the_host_goes_away() {
    let mut env = env_with(Limits::default());
    let no = env.spawn(process());
    env.stop_task(no);
    env.recover(no, absent());
    assert_eq!(env.outcome(no).to_string(), "cancelled (unconfirmed)");
    assert!(!env.row(no).holds_slot());
}

#[test]
fn an_away_process_holds_no_slot() {
    let mut env = env_with(Limits { running: Some(1), ..Limits::default() });
    let first = env.spawn(process());
    let second = env.spawn(process());
    assert_eq!(env.state(second), "queued");
    env.recover(first, absent());
    env.states(&[(first, "away"), (second, "running")]);
    // It runs, whatever the limit says.
    env.recover(first, RecoveryFinding::Adopted);
    env.states(&[(first, "running"), (second, "running")]);
    let third = env.spawn(process());
    env.succeed(second);
    assert_eq!(env.state(third), "queued", "the first one has the slot again");
}

#[test]
fn a_message_waits_for_the_host_and_is_pushed_once() {
    let mut env = env_with(Limits::default());
    let no = env.spawn(process());
    let before = env.send_to(no);
    env.recover(no, absent());
    let unknown = |event: &Event| matches!(event, Event::MessageDeliveryUnknown { message, .. } if *message == before);
    assert_eq!(env.count(unknown), 1, "it may have been written before the host went away");
    env.clear();
    let sent = env.send(operator(), Recipient::Task(no.into())).unwrap();
    assert_eq!(env.acted(|action| matches!(action, Action::Push { .. })), 0);
    env.recover(no, RecoveryFinding::Adopted);
    let pushed =
        |action: &Action| matches!(action, Action::Push { message, .. } if [message.no] == *sent);
    assert_eq!(env.acted(pushed), 1);
    assert_eq!(env.unread(Owner::Task(no)), 1, "it is delivered when the shim has it");
}

#[test]
fn a_process_whose_host_is_there_gets_its_messages_through_it() {
    let unknown = |event: &Event| matches!(event, Event::MessageDeliveryUnknown { .. });
    for was_away in [true, false] {
        let mut env = env_with(Limits::default());
        let no = env.spawn(process());
        if was_away {
            env.recover(no, absent());
        }
        let before = env.send_to(no);
        env.clear();
        env.recover(no, RecoveryFinding::HostPresent);
        assert!(env.row(no).is_unattended() && env.state(no) == "running");
        assert_eq!(
            env.count(unknown),
            usize::from(!was_away),
            "an earlier owner may have pushed it"
        );
        let pushed = |number| move |action: &Action| matches!(action, Action::Push { message, .. } if message.no == number);
        assert_eq!(env.acted(pushed(before)), usize::from(was_away), "nobody has pushed it yet");
        env.clear();
        let sent = env.send_to(no);
        assert_eq!(env.acted(pushed(sent)), 1, "its host pushes it");
        for message in std::iter::once(sent).chain(was_away.then_some(before)) {
            env.report(no, AttemptReport::Pushed { message, result: PushResult::Delivered });
        }
        env.recover(no, RecoveryFinding::HostPresent);
        let lost = env.send_to(no);
        env.report(no, AttemptReport::Pushed { message: lost, result: PushResult::Unknown });
        assert_eq!(env.count(unknown), 1, "its host has not replied");
        env.clear();
        let last = env.send_to(no);
        env.clear();
        env.recover(no, RecoveryFinding::Adopted);
        assert!(!env.row(no).is_unattended());
        assert_eq!(env.count(unknown), 1, "an earlier owner may have asked the host to push it");
        assert_eq!(env.acted(pushed(last)), 0);
    }
}

#[test]
fn a_stop_of_an_unattended_process_waits_for_its_host() {
    let mut env = env_with(Limits::default());
    let no = env.spawn(process());
    env.recover(no, RecoveryFinding::HostPresent);
    env.stop_task(no);
    env.recover(no, RecoveryFinding::HostPresent);
    assert_eq!(env.state(no), "stopping");
    assert_eq!(env.acted(|action| matches!(action, Action::Stop { .. })), 1);
    env.aborted(no);
    assert_eq!(env.outcome(no).to_string(), "cancelled");
}

#[test]
fn messages_to_a_lost_process_are_dead_letters() {
    let (mut env, no) = away_process();
    env.send_to(no);
    env.advance(GRACE);
    assert_eq!(env.count(|event| matches!(event, Event::DeadLettered { .. })), 1);
}

#[test]
fn a_time_limit_is_left_to_the_shim_of_the_host() {
    let mut env = env_with(Limits::default());
    let limited = Limits { time: Some(Millis(1_000)), ..Limits::default() };
    let no = env.spawn(process().limited(limited));
    env.recover(no, absent());
    env.advance(2_000);
    assert_eq!(env.state(no), "away", "only its host knows if it ended in time");
    env.recover(no, RecoveryFinding::Adopted);
    env.succeed(no);
    assert_eq!(env.state(no), "succeeded");

    let no = env.spawn(process().limited(limited));
    env.recover(no, absent());
    env.advance(2_000);
    env.recover(no, RecoveryFinding::Adopted);
    env.advance(0);
    assert_eq!(env.state(no), "stopping", "a process that still runs is ended at once");
}

#[test]
fn silence_of_an_away_process_is_no_stall() {
    let mut env = env_with(Limits::default());
    let stall = brigade_model::stall::StallPolicy::Watched(brigade_model::stall::StallWatch {
        after: Millis(1_000),
        nudges: 0,
        then_stop: true,
    });
    let limited = Limits { stall: Some(stall), ..Limits::default() };
    let no = env.spawn(process().limited(limited));
    env.recover(no, absent());
    env.advance(5_000);
    assert_eq!(env.state(no), "away");
    env.recover(no, RecoveryFinding::Adopted);
    env.advance(999);
    assert_eq!(env.state(no), "running", "its silence counts from its return");
    env.advance(1);
    assert_eq!(env.state(no), "stopping");
}

#[test]
fn the_end_of_a_parent_reaches_an_away_child() {
    let parent_close = |policy| {
        let recovery = RecoveryPolicy::Resume { max_attempts: 3, backoff: Millis(0) };
        custom(brigade_model::work::KindPolicy { recovery, parent_close: policy, ..POLICY })
    };
    let start = |spec: TaskSpec| {
        let mut env = env_with(Limits::default());
        let parent = env.spawn(spec);
        let child = env.spawn_child(parent, process());
        env.recover(child, absent());
        (env, parent, child)
    };
    let (mut env, parent, child) = start(parent_close(ParentClosePolicy::StopChildren));
    env.succeed(parent);
    env.states(&[(parent, "succeeded"), (child, "cancelled")]);
    let (mut env, parent, child) = start(parent_close(ParentClosePolicy::AwaitChildren));
    env.succeed(parent);
    env.states(&[(parent, "closing"), (child, "away")]);
    env.advance(GRACE);
    env.states(&[(parent, "succeeded"), (child, "failed")]);
    let (mut env, parent, child) = start(parent_close(ParentClosePolicy::AwaitChildren));
    env.stop_task(parent);
    env.states(&[(parent, "stopping"), (child, "cancelled")]);
}

#[test]
fn a_closed_session_does_not_wait_for_a_host() {
    let (mut env, no) = away_process();
    env.close();
    assert_eq!(env.outcome(no).to_string(), "cancelled (unconfirmed)");
    assert_eq!(env.count(|event| matches!(event, Event::SessionClosed)), 1);
}
