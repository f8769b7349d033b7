//! Times of states and runs, and the tasks that messages can reach.

use brigade_model::call::ConditionRequest;
use brigade_model::command::Recipient;
use brigade_model::ids::Time;
use brigade_model::limits::Limits;
use brigade_model::task::{RunStart, TaskRow};
use brigade_model::task_tree::TaskTree;
use brigade_model::work::{CommandLine, ProcessWork, Work};

use crate::support::*;

fn message() -> ConditionRequest {
    ConditionRequest::Message { timeout: None, name: None }
}

#[test]
fn a_state_has_the_time_of_its_beginning() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let first = env.spawn(agent());
    let started = env.now;
    assert_eq!(env.row(first).state_since(), Some(started));
    assert_eq!(env.row(first).started_at(), Some(started));
    env.advance(10);
    let queued = env.spawn(job());
    let queued_at = env.now;
    env.advance(10);
    assert_eq!(env.row(queued).state_since(), Some(queued_at));
    assert_eq!(env.row(queued).started_at(), None, "it waits for a slot");
    env.park(first, 1, message());
    let parked_at = env.now;
    assert_eq!(env.row(first).state_since(), Some(parked_at));
    assert_eq!(env.row(queued).state_since(), Some(parked_at), "it has the slot");
    assert_eq!(env.row(queued).started_at(), Some(parked_at));
    env.advance(10);
    env.succeed(queued);
    assert_eq!(env.row(queued).state_since(), Some(env.now));
    assert_eq!(env.row(first).started_at(), Some(started));
    env.send_to(first);
    assert_eq!(env.state(first), "running");
    assert_eq!(env.row(first).state_since(), Some(env.now));
    assert_eq!(env.row(first).started_at(), Some(started), "the run has not changed");
}

#[test]
fn a_run_has_a_start_of_its_own() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    env.advance(10);
    env.resume(operator(), no).expect("the operator may");
    assert_eq!(env.row(no).started_at(), Some(env.now));
}

#[test]
fn the_times_of_an_earlier_version_are_not_guessed() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let no = env.spawn(agent());
    let old =
        TaskRow { state_changed_at: None, run_start: RunStart::Unknown, ..env.row(no).clone() };
    env.tree = TaskTree::from_row(env.tree.row().clone());
    env.tree.insert_loaded(brigade_model::task::StoredTask::new(no, old));
    env.tree.finish_loading();
    assert_eq!(env.row(no).state_since(), None);
    env.advance(10);
    env.park(no, 1, message());
    assert_eq!(env.row(no).state_since(), Some(env.now), "this state is a new one");
    env.send_to(no);
    assert_eq!(env.row(no).started_at(), None, "a later attempt is not the first");
    env.succeed(no);
    env.advance(10);
    env.resume(operator(), no).expect("the operator may");
    assert_eq!(env.row(no).started_at(), Some(env.now));
    assert!(env.row(no).state_since() > Some(Time(0)));
}

#[test]
fn a_message_reaches_work_that_reads_it() {
    let mut env = Env::new();
    let silent = ProcessWork::new(CommandLine::Shell("true".into()));
    let specs = [
        (agent(), true),
        (job(), false),
        (process(), false),
        (brigade_model::spec::TaskSpec::new(Work::Process(silent)), false),
    ];
    for (spec, after_end) in specs {
        let reads = spec.work.missing_input_reason().is_none();
        let no = env.spawn(spec);
        let check = |env: &mut Env, expected: bool| {
            assert_eq!(env.row(no).takes_messages(), expected, "{:?}", env.row(no).spec.work);
            let sent = env.send(operator(), Recipient::Task(no.into()));
            assert_eq!(sent.is_ok(), expected, "{sent:?}");
        };
        check(&mut env, reads);
        env.succeed(no);
        check(&mut env, after_end);
    }
    let stopped = env.spawn(agent());
    env.stop_task(stopped);
    assert!(!env.row(stopped).takes_messages());
}
