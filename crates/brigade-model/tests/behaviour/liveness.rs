//! Alive and moving are two things.

use brigade_model::call::Asked;
use brigade_model::command::Reported;
use brigade_model::event::Event;
use brigade_model::ids::Millis;
use brigade_model::limits::Limits;
use brigade_model::spec::Spec;

use crate::support::*;

fn watched() -> Spec {
    agent().limited(Limits { stall: Some(Millis(1_000)), ..Limits::default() })
}

fn stalls(env: &Env) -> usize {
    env.count(|event| matches!(event, Event::Stalled { .. }))
}

#[test]
fn a_stall_is_said_once_and_the_task_goes_on() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    env.advance(999);
    assert_eq!(stalls(&env), 0);
    env.advance(1);
    env.advance(60_000);
    assert_eq!((stalls(&env), env.state(no)), (1, "running"));
}

#[test]
fn progress_puts_the_stall_off_and_ends_it() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    for _ in 0..5 {
        env.advance(900);
        env.report(no, Reported::Progress(json("stirring")));
    }
    assert_eq!(stalls(&env), 0);
    env.advance(1_000);
    assert_eq!(stalls(&env), 1);
    env.report(no, Reported::Progress(json("stirring")));
    env.advance(1_000);
    assert_eq!(stalls(&env), 2, "a second silence is a second stall");
}

#[test]
fn who_waits_or_queues_does_not_stall() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let no = env.spawn(watched());
    let queued = env.spawn(watched());
    env.park(no, 1, Asked::Message { patience: None });
    env.park(queued, 1, Asked::Message { patience: None });
    env.advance(60_000);
    assert_eq!(stalls(&env), 0);
}

#[test]
fn a_task_that_is_woken_starts_its_silence_anew() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    env.park(no, 1, Asked::Sleep { span: Millis(50_000) });
    env.advance(50_000);
    env.advance(999);
    assert_eq!(stalls(&env), 0);
    env.advance(1);
    assert_eq!(stalls(&env), 1);
}

#[test]
fn the_clock_of_a_tree_does_not_run_backwards() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    let later = env.now.after(Millis(500));
    env.now = later;
    env.report(no, Reported::Progress(json("one")));
    env.now = brigade_model::ids::Time(5);
    env.report(no, Reported::Progress(json("two")));
    let times: Vec<_> = env.events.iter().map(|record| record.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(env.row(no).moved, later);
}
