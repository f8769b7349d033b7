//! Memory: tasks that are evicted, tasks that stay, and tasks that are loaded again.

use brigade_model::action::Action;
use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_model::call::WaitMode;
use brigade_model::command::{AnswerCommand, Command, GivenAnswer, SpawnCommand};
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::needs::{NeededRow, needs};
use brigade_model::refusal::RefusalKind;
use brigade_model::task::StoredTask;
use brigade_model::task_tree::{KeyMark, TaskTree};

use crate::support::*;

fn committed(env: &mut Env) -> Vec<TaskNo> {
    env.tree.take_dirty();
    env.tree.evict()
}

#[test]
fn an_ended_task_is_evicted_after_it_was_collected_and_stored() {
    let mut env = Env::new();
    let no = env.spawn(job());
    assert_eq!(committed(&mut env), [], "it lives");
    env.succeed(no);
    assert_eq!(committed(&mut env), [], "its result is wanted");
    env.collected(client("me"), &[]);
    assert_eq!(env.tree.evict(), [], "it is not stored yet");
    assert_eq!(committed(&mut env), [no]);
    assert_eq!(env.tree.loaded_count(), 0);
}

#[test]
fn a_child_stays_until_its_parent_has_collected_it_or_ended() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let [collected, uncollected] = [0; 2].map(|_| env.spawn_child(parent, job()));
    env.succeed(collected);
    env.succeed(uncollected);
    assert_eq!(committed(&mut env), []);
    env.park(parent, 1, wait_for(&[collected], WaitMode::All));
    assert_eq!(committed(&mut env), [collected]);
    env.succeed(parent);
    assert_eq!(committed(&mut env), [uncollected]);
}

#[test]
fn the_key_of_an_evicted_task_stays_taken() {
    let mut env = Env::new();
    let no = env.spawn(job().keyed("soup"));
    let row = env.row(no).clone();
    env.succeed(no);
    let ended = env.row(no).clone();
    env.collected(client("me"), &[]);
    committed(&mut env);
    let spawn = |spec| {
        Command::Spawn(SpawnCommand {
            caller: client("me"),
            spec: std::sync::Arc::new(spec),
            call: None,
        })
    };
    assert_eq!(needs(&env.tree, &spawn(job().keyed("soup"))), [NeededRow::Task(no)]);
    env.tree.insert_loaded(StoredTask::new(no, ended));
    assert_eq!(env.spawn(job().keyed("soup")), no);
    refused(
        env.submit(&spawn(agent().keyed("soup"))),
        RefusalKind::Conflict,
        "with another request",
    );
    let mut fresh = TaskTree::from_row(env.tree.row().clone());
    let key = row.spec.key.as_ref().unwrap();
    fresh.insert_key(KeyMark::new(row.owner, RunNo::FIRST, key, no));
    fresh.finish_loading();
    assert_eq!(needs(&fresh, &spawn(job().keyed("soup"))), [NeededRow::Task(no)]);
}

#[test]
fn a_lingering_slot_is_counted_after_its_parent_ended() {
    let mut env = Env::limited(Limits { running: Some(2), ..Limits::default() });
    let parent = env.spawn(job());
    let child = env.spawn_child(parent, closure().grace(1));
    env.stop_task(child);
    env.advance(1);
    env.advance(5_000);
    env.succeed(parent);
    env.collected(client("me"), &[]);
    assert_eq!(committed(&mut env), [], "the slot is counted along its owners");
    env.spawn(job());
    let last = env.spawn(job());
    assert_eq!(env.state(last), "queued");
    env.succeed(child);
    assert_eq!(env.state(last), "running", "the slot came back");
    let mut evicted = committed(&mut env);
    evicted.sort();
    assert_eq!(evicted, [parent, child]);
}

#[test]
fn a_child_that_was_loaded_before_its_parent_is_still_stopped_with_it() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    env.succeed(child);
    env.succeed(parent);
    let rows = [child, parent].map(|no| (no, env.row(no).clone()));
    let mut loaded = TaskTree::from_row(env.tree.row().clone());
    for (no, row) in rows {
        loaded.insert_loaded(StoredTask::new(no, row));
    }
    env.tree = loaded;
    env.resume(operator(), parent).unwrap();
    env.resume(operator(), child).unwrap();
    assert_eq!(env.stop_task(parent).tasks, 2);
    env.states(&[(parent, "stopping"), (child, "stopping")]);
}

#[test]
fn a_stale_caller_is_looked_up_before_it_is_refused() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let caller = env.by(no);
    env.succeed(no);
    env.collected(client("me"), &[]);
    let row = env.row(no).clone();
    committed(&mut env);
    let spec = std::sync::Arc::new(job());
    let spawn = Command::Spawn(SpawnCommand { caller: caller.clone(), spec, call: None });
    assert_eq!(needs(&env.tree, &spawn), [NeededRow::Task(no)]);
    env.tree.insert_loaded(StoredTask::new(no, row));
    refused(env.submit(&spawn), RefusalKind::Ended, "it has succeeded");
}

#[test]
fn a_stopped_waiting_task_is_released() {
    let mut env = Env::new();
    let no = env.spawn(closure());
    env.park(no, 1, brigade_model::call::ConditionRequest::Message { timeout: None, name: None });
    env.stop_task(no);
    assert_eq!(env.acted(|action| *action == Action::Release { no }), 1);
}

#[test]
fn many_finished_tasks_use_no_memory() {
    let mut env = Env::new();
    for _ in 0..1_000 {
        let no = env.spawn(job().named("Cook"));
        env.succeed(no);
        env.collected(client("me"), &[]);
        committed(&mut env);
    }
    assert_eq!((env.tree.loaded_count(), env.tree.alive_count()), (0, 0));
    assert_eq!(env.tree.next_due(), None);
}

#[test]
fn a_client_decides_for_a_named_descendant_with_and_without_the_digest() {
    let env = Env::new();
    let verdict = ApprovalVerdict::AllowOnce;
    let shown = CallDigest::try_from("0".repeat(32)).unwrap();
    for answer in [
        GivenAnswer::Verdict(verdict.clone()),
        GivenAnswer::ShownVerdict { shown, verdict: verdict.clone() },
    ] {
        let task: TaskRef = "Cook".parse().unwrap();
        let TaskSelector::Name(name) = task.selector.clone() else { panic!("{task} is a name") };
        let caller = client("me");
        let answer =
            Command::Answer(AnswerCommand { caller, task, call: None, answer, caller_call: None });
        assert_eq!(needs(&env.tree, &answer), [NeededRow::Named { owner: None, name }]);
    }
}
