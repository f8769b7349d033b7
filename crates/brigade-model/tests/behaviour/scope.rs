//! Scope: a task sees its children, a client the top level, the operator all tasks.

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::call::WaitMode;
use brigade_model::command::{
    Caller, ClientCaller, ClientControl, CloseCommand, Command, GivenAnswer, MarkRead,
    ReadInboxCommand, Recipient, SetLimitsCommand, StopTarget,
};
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::TaskKind;

use crate::support::*;

struct Family {
    env: Env,
    parent: TaskNo,
    sibling: TaskNo,
    child: TaskNo,
    grandchild: TaskNo,
}

fn family() -> Family {
    let mut env = Env::new();
    let parent = env.spawn(agent().named("Parent One"));
    let sibling = env.spawn(agent().named("Sibling"));
    let child = env.spawn_child(parent, agent().named("Child"));
    let grandchild = env.spawn_child(child, agent());
    Family { env, parent, sibling, child, grandchild }
}

/// Tries every action on a task, as one caller.
fn try_all(env: &mut Env, caller: &Caller, no: TaskNo) -> Vec<Result<(), RefusalKind>> {
    let task = || TaskRef::from(no);
    let kind = |result: SubmitResult<()>| result.map_err(|refusal| refusal.kind);
    let limits =
        SetLimitsCommand { caller: caller.clone(), task: Some(task()), limits: Limits::default() };
    vec![
        kind(env.send(caller.clone(), Recipient::Task(task())).map(drop)),
        kind(env.submit(&Command::SetLimits(limits)).map(drop)),
        kind(env.answer(caller.clone(), no, GivenAnswer::Reply(json("yes"))).map(drop)),
        kind(env.resume(caller.clone(), no).map(drop)),
        kind(env.stop(caller.clone(), StopTarget::Task(task())).map(drop)),
    ]
}

#[test]
fn a_forbidden_call_changes_nothing() {
    let Family { mut env, parent, sibling, child, grandchild } = family();
    let outside = [
        (env.by(sibling), child),
        (env.by(sibling), parent),
        (env.by(parent), grandchild),
        (env.by(parent), sibling),
        (env.by(child), parent),
        (env.by(parent), parent),
        (client("me"), child),
        (client("other"), grandchild),
    ];
    for (caller, no) in outside {
        let expect = vec![Err(RefusalKind::Forbidden); 5];
        assert_eq!(try_all(&mut env, &caller, no), expect, "{caller:?} on {no:?}");
    }
    env.states(&[
        (parent, "running"),
        (sibling, "running"),
        (child, "running"),
        (grandchild, "running"),
    ]);
}

#[test]
fn forbidden_and_not_found_are_different_answers() {
    let Family { mut env, parent, sibling, .. } = family();
    let nobody = TaskNo::new(99).unwrap();
    let caller = env.by(parent);
    assert_eq!(try_all(&mut env, &caller, nobody), vec![Err(RefusalKind::NotFound); 5]);
    let stop = env.stop(caller.clone(), StopTarget::Task(nobody.into()));
    refused(stop, RefusalKind::NotFound, "there is no task 99");
    let stop = env.stop(caller, StopTarget::Task(sibling.into()));
    refused(stop, RefusalKind::Forbidden, "agent:2 is not yours");
}

#[test]
fn the_operator_sees_all() {
    let Family { mut env, parent, grandchild, .. } = family();
    env.send(operator(), Recipient::Task(grandchild.into())).unwrap();
    env.stop(operator(), StopTarget::Task(grandchild.into())).unwrap();
    env.states(&[(parent, "running"), (grandchild, "stopping")]);
}

#[test]
fn a_client_waits_at_top_level_only() {
    let Family { mut env, parent, child, .. } = family();
    let waited = env.collect(client("me"), &[child.into()], WaitMode::Any);
    refused(waited, RefusalKind::Forbidden, "not yours");
    env.collect(client("other"), &[parent.into()], WaitMode::Any).unwrap();
}

#[test]
fn a_task_cannot_collect_and_parks_instead() {
    let Family { mut env, parent, child, .. } = family();
    let caller = env.by(parent);
    let waited = env.collect(caller, &[child.into()], WaitMode::Any);
    refused(waited, RefusalKind::Invalid, "parking a call");
}

#[test]
fn a_name_is_looked_up_among_the_tasks_that_the_caller_sees() {
    let Family { mut env, parent, child, .. } = family();
    let named =
        |name: &str| TaskRef { selector: TaskSelector::Name(name.parse().unwrap()), run: None };
    let caller = env.by(parent);
    let stop = env.stop(caller.clone(), StopTarget::Task(named("Sibling")));
    refused(stop, RefusalKind::NotFound, "no task here is called");
    env.stop(caller, StopTarget::Task(named("child"))).unwrap();
    assert_eq!(env.state(child), "stopping");
}

#[test]
fn a_name_that_several_tasks_have_is_a_conflict_for_the_operator() {
    let mut env = Env::new();
    let [one, two] = [0; 2].map(|_| env.spawn(agent()));
    env.spawn_child(one, job().named("Cook"));
    env.spawn_child(two, job().named("Cook"));
    let cook = TaskRef { selector: TaskSelector::Name("Cook".parse().unwrap()), run: None };
    let stop = env.stop(operator(), StopTarget::Task(cook));
    refused(stop, RefusalKind::Conflict, "job:3, job:4; say which");
}

#[test]
fn a_kind_in_an_address_must_match() {
    let Family { mut env, child, .. } = family();
    let wrong =
        TaskRef { selector: TaskSelector::KindAndNumber(TaskKind::Process, child), run: None };
    let stop = env.stop(operator(), StopTarget::Task(wrong));
    refused(stop, RefusalKind::NotFound, "3 is agent:3");
}

#[test]
fn an_unknown_run_is_not_found() {
    let Family { mut env, parent, .. } = family();
    for run in [0, 2] {
        let task = TaskRef { run: Some(RunNo(run)), ..parent.into() };
        let waited = env.collect(operator(), &[task], WaitMode::Any);
        refused(waited, RefusalKind::NotFound, "its latest is 1");
    }
}

#[test]
fn a_task_cannot_change_its_session() {
    let Family { mut env, parent, .. } = family();
    let caller = env.by(parent);
    let set = SetLimitsCommand { caller: caller.clone(), task: None, limits: Limits::default() };
    refused(env.submit(&Command::SetLimits(set)), RefusalKind::Forbidden, "session's limits");
    let close = CloseCommand { caller: caller.clone(), reason: None };
    refused(env.submit(&Command::Close(close)), RefusalKind::Forbidden, "close its session");
    let read = ReadInboxCommand { caller, mark_read: MarkRead::Nothing };
    refused(env.submit(&Command::ReadInbox(read)), RefusalKind::Forbidden, "its own inbox");
}

#[test]
fn an_attempt_that_is_over_controls_nothing() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let child = env.spawn_child(parent, agent());
    let old = env.by(parent);
    env.recover(parent, brigade_model::command::RecoveryFinding::Crash);
    env.advance(0);
    assert_ne!(env.by(parent), old);
    assert_eq!(try_all(&mut env, &old, child), vec![Err(RefusalKind::Ended); 5]);
    assert_eq!(env.state(child), "running");
}

#[test]
fn a_client_controls_only_tasks_that_it_started() {
    let Family { mut env, parent, .. } = family();
    let operators = env.try_spawn(operator(), agent()).expect("the operator may").no;
    let kept = env.spawn_child(operators, agent().kept());
    env.succeed(operators);
    for (caller, no) in [(client("other"), parent), (client("me"), operators), (client("me"), kept)]
    {
        let expect = vec![Err(RefusalKind::Forbidden); 5];
        assert_eq!(try_all(&mut env, &caller, no), expect, "{caller:?} on {no:?}");
        env.collect(caller, &[no.into()], WaitMode::Any).expect("every client may wait");
    }
    env.states(&[(parent, "running"), (kept, "running")]);
    let stop = env.stop(client("other"), StopTarget::Task(parent.into()));
    refused(stop, RefusalKind::Forbidden, "agent:1 was started by the client me");
    let send = env.send(client("me"), Recipient::Task(kept.into()));
    refused(send, RefusalKind::Forbidden, "was started by the operator");
    let send = env.send(client("me"), Recipient::Task(kept.into()));
    refused(send, RefusalKind::Forbidden, "`brigade send agent:6 MESSAGE`");
    let resumed = env.resume(client("me"), operators);
    refused(resumed, RefusalKind::Forbidden, "`shared = true`");
}

#[test]
fn a_message_of_a_client_to_all_reaches_its_own_tasks() {
    let Family { mut env, parent, sibling, .. } = family();
    let others = env.try_spawn(client("other"), agent()).expect("it starts").no;
    assert_eq!(env.send(client("other"), Recipient::Children).unwrap().len(), 1);
    let stopped = env.stop(client("other"), StopTarget::Children).unwrap();
    assert_eq!(stopped.tasks, 1);
    env.states(&[(others, "stopping"), (parent, "running"), (sibling, "running")]);
}

#[test]
fn a_client_closes_a_session_without_tasks_of_others() {
    let Family { mut env, parent, sibling, .. } = family();
    let close = |caller| Command::Close(CloseCommand { caller, reason: None });
    let closed = env.submit(&close(client("other")));
    refused(closed, RefusalKind::Forbidden, "agent:1 runs here, started by the client me");
    env.states(&[(parent, "running"), (sibling, "running")]);
    env.submit(&close(client("me"))).expect("all of it is its own");
    env.states(&[(parent, "stopping"), (sibling, "stopping")]);
}

#[test]
fn clients_that_share_control_each_others_tasks() {
    let Family { mut env, parent, .. } = family();
    let other = || {
        let control = ClientControl::Shared;
        Caller::Client(ClientCaller { control, ..ClientCaller::from("other") })
    };
    env.send(other(), Recipient::Task(parent.into())).expect("it is shared");
    env.stop(other(), StopTarget::Task(parent.into())).expect("it is shared");
    assert_eq!(env.state(parent), "stopping");
}

#[test]
fn a_kept_task_belongs_to_the_starter_of_the_task_that_kept_it() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let kept = env.spawn_child(parent, agent().kept());
    env.succeed(parent);
    env.tree.take_dirty();
    env.stop(client("me"), StopTarget::Task(kept.into())).expect("the client started its parent");
    assert_eq!(env.state(kept), "stopping");
}
