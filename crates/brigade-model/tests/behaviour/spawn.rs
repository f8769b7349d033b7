//! Spawning: keys, names, addresses, lineage.

use std::collections::BTreeMap;
use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::call::CallCompletion;
use brigade_model::command::{Command, Recipient, SpawnCommand};
use brigade_model::event::Event;
use brigade_model::ids::{Attempt, CallIndex, Owner, RunNo, TaskNo};
use brigade_model::name::TaskName;
use brigade_model::refusal::RefusalKind;
use brigade_model::spec::TaskSpec;
use brigade_model::task::{SpawningAttempt, StoredTask};
use brigade_model::work::{AgentWork, CommandLine, EnvValue, ProcessWork, StdinSource, Work};

use crate::support::*;

#[test]
fn command_lines_that_no_system_could_execute_are_refused() {
    let shell = |text: &str| ProcessWork::new(CommandLine::Shell(text.into()));
    let program = |words: &[&str]| {
        ProcessWork::new(CommandLine::Program(words.iter().map(|word| (*word).into()).collect()))
    };
    let with = |name: &str, value: &str| ProcessWork {
        env: BTreeMap::from([(name.into(), EnvValue::Text(value.into()))]),
        ..shell("true")
    };
    let long = "x".repeat(ProcessWork::COMMAND_BYTES_MAX + 1);
    let table = [
        (shell(" "), "blank"),
        (shell("a\0b"), "NUL"),
        (shell(&long), "longer than"),
        (program(&[]), "no program"),
        (program(&["", "x"]), "no program"),
        (program(&["x", "\0"]), "NUL"),
        (ProcessWork { cwd: Some("here".into()), ..shell("true") }, "absolute"),
        (with("", "x"), "environment variable"),
        (with("A=B", "x"), "environment variable"),
        (with("A", "\0"), "NUL"),
        (with("BRIGADE_TASK", "job:1"), "Brigade's own"),
    ];
    for (work, expect) in table {
        let mut env = Env::new();
        let spec = TaskSpec::new(Work::Process(work));
        refused(env.try_spawn(operator(), spec), RefusalKind::Invalid, expect);
    }
}

#[test]
fn a_spawned_task_runs_at_once_and_is_listed() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    assert_eq!(env.state(no), "running");
    assert_eq!(env.row(no).address(no), "agent:1");
    let Some(Action::Start(start)) = env.actions.first() else { panic!("nothing was started") };
    // The instructions are committed with the task, so a task that exists has them.
    let Work::Agent(work) = &start.spec.work else { panic!("an agent was asked for") };
    assert_eq!(&*work.task, "make soup");
    assert_eq!(start.attempt, env.row(no).attempt);
}

#[test]
fn numbers_are_sequential_over_all_kinds_and_owners() {
    let mut env = Env::new();
    let first = env.spawn(agent());
    let second = env.spawn_child(first, process());
    let third = env.spawn(closure());
    let numbers = [first, second, third].map(TaskNo::get);
    assert_eq!(numbers, [1, 2, 3]);
    env.succeed(third);
    assert_eq!(env.spawn(job()).get(), 4, "a number is never reused");
}

#[test]
fn the_same_key_is_the_same_task() {
    let mut env = Env::new();
    let first = env.spawn(job().keyed("soup"));
    let again = env.try_spawn(client("me"), job().keyed("soup")).unwrap();
    assert!(again.existing);
    assert_eq!(again.no, first);
    env.succeed(first);
    let after_the_end = env.try_spawn(client("other"), job().keyed("soup")).unwrap();
    assert_eq!((after_the_end.no, after_the_end.existing), (first, true));
    assert_eq!(env.count(|event| matches!(event, Event::Spawned(_))), 1);
}

#[test]
fn the_same_key_with_another_request_is_a_conflict() {
    let mut env = Env::new();
    env.spawn(job().keyed("soup"));
    for other in
        [agent().keyed("soup"), job().keyed("soup").named("Cook"), job().keyed("soup").kept()]
    {
        refused(env.try_spawn(client("me"), other), RefusalKind::Conflict, "use another key");
    }
}

#[test]
fn a_conflict_names_the_differing_fields_without_values() {
    let base = || ProcessWork {
        env: BTreeMap::from([("PATH".into(), EnvValue::Text("/bin".into()))]),
        ..ProcessWork::new(CommandLine::Shell("true".into()))
    };
    let spec = |work| TaskSpec::new(Work::Process(work)).keyed("soup");
    let secret = |name: &str| (name.into(), EnvValue::Text("secret".into()));
    let table = [
        (spec(ProcessWork { command: CommandLine::Shell("secret".into()), ..base() }), "command"),
        (spec(ProcessWork { cwd: Some("/secret".into()), ..base() }), "working directory"),
        (
            spec(ProcessWork { env: [secret("TOKEN"), secret("PATH")].into(), ..base() }),
            "environment (PATH, TOKEN)",
        ),
        (spec(ProcessWork { stdin: StdinSource::Messages, ..base() }).named("Cook"), "input, name"),
        (spec(ProcessWork { output_cap: Some(1), ..base() }).kept(), "output cap, keep"),
        (agent().keyed("soup"), "kind"),
    ];
    for (other, differs) in table {
        let mut env = Env::new();
        env.spawn(spec(base()));
        let expect = format!("with another request, which differs in: {differs}; use another key");
        let refusal = env.try_spawn(operator(), other).unwrap_err();
        assert!(refusal.message.contains(&expect), "{refusal}");
        assert!(!refusal.message.contains("secret"), "{refusal}");
    }
}

#[test]
fn an_unattended_request_is_the_same_request() {
    let with = |unattended: bool, prompt: &str| {
        let work = AgentWork { unattended, ..AgentWork::new(prompt) };
        TaskSpec::new(Work::Agent(work)).keyed("soup")
    };
    let mut env = Env::new();
    let no = env.spawn(with(false, "make soup"));
    // The same key from a terminal and from a script is the same request.
    assert_eq!(env.spawn(with(true, "make soup")), no);
    let Work::Agent(kept) = &env.row(no).spec.work else { panic!("an agent was asked for") };
    assert!(!kept.unattended, "it stays as it was first requested");
    let other = env.try_spawn(operator(), with(true, "make bread"));
    refused(other, RefusalKind::Conflict, "differs in: prompt;");
}

#[test]
fn keys_belong_to_the_run_that_uses_them() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let other = env.spawn(agent());
    let child = env.spawn_child(parent, job().keyed("soup"));
    assert_ne!(env.spawn_child(other, job().keyed("soup")), child, "another parent, another task");
    assert_ne!(env.spawn(job().keyed("soup")), child, "the top level has keys of its own");
    env.succeed(child);
    env.succeed(parent);
    env.send_to(parent);
    assert_ne!(env.spawn_child(parent, job().keyed("soup")), child, "a new run, new keys");
}

#[test]
fn a_kept_child_does_not_bring_its_key_to_the_session() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let child = env.spawn_child(parent, job().keyed("soup").kept());
    env.succeed(parent);
    assert_eq!(env.row(child).owner, Owner::Session);
    let row = env.row(child).clone();
    let mut loaded = brigade_model::task_tree::TaskTree::from_row(env.tree.row().clone());
    loaded.insert_loaded(StoredTask::new(child, row));
    loaded.finish_loading();
    env.tree = loaded;
    assert_ne!(env.spawn(job().keyed("soup")), child);
}

#[test]
fn a_spawn_records_its_task_under_the_call() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let caller = env.by(parent);
    let spec = Arc::new(job().keyed("1/0/0"));
    let spawn = SpawnCommand { caller, spec, call: Some(CallIndex(7)) };
    env.submit(&Command::Spawn(spawn)).unwrap();
    let Some(CallCompletion::Spawned(spawned)) = env.completion(parent, 7) else {
        panic!("nothing recorded")
    };
    assert_eq!((spawned.no.get(), spawned.existing), (2, false));
    assert_eq!(env.row(spawned.no).call, Some(CallIndex(7)));
}

#[test]
fn two_spawns_of_one_name_give_one_task_and_one_refusal() {
    let mut env = Env::new();
    env.spawn(agent().named("Test Runner"));
    let second = env.try_spawn(client("me"), agent().named("test runner"));
    refused(second, RefusalKind::Conflict, "is taken by agent:1, which is running");
}

#[test]
fn a_name_is_free_again_after_the_end() {
    let mut env = Env::new();
    let first = env.spawn(agent().named("Cook"));
    env.succeed(first);
    let second = env.spawn(agent().named("Cook"));
    env.fail(second);
    env.spawn(agent().named("cook"));
}

#[test]
fn a_name_belongs_to_one_parent() {
    let mut env = Env::new();
    let one = env.spawn(agent());
    let two = env.spawn(agent().named("Cook"));
    env.spawn_child(one, job().named("Cook"));
    env.spawn_child(two, job().named("Cook"));
    let mut another = Env::new();
    another.spawn(agent().named("Cook"));
}

#[test]
fn a_name_means_the_alive_task_then_the_newest_ended_one() {
    let mut env = Env::new();
    let name = || {
        let name: TaskName = "Cook".parse().unwrap();
        Recipient::Task(brigade_model::address::TaskRef {
            selector: brigade_model::address::TaskSelector::Name(name),
            run: None,
        })
    };
    let first = env.spawn(agent().named("Cook"));
    env.succeed(first);
    let second = env.spawn(agent().named("cook"));
    env.send(client("me"), name()).unwrap();
    assert_eq!(env.unread(Owner::Task(second)), 1);
    env.succeed(second);
    env.send(client("me"), name()).unwrap();
    env.states(&[(first, "succeeded"), (second, "running")]);
}

#[test]
fn lineage_is_recorded() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, job());
    assert_eq!(env.row(parent).client, Some("me".into()));
    assert_eq!(env.row(child).owner, Owner::Task(parent));
    assert_eq!(env.row(child).owner_run, RunNo(1));
    assert_eq!(env.row(child).client, None);
}

#[test]
fn the_spawner_stays_known_when_a_task_passes_to_the_session() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let child = env.spawn_child(parent, agent().kept());
    env.succeed(parent);
    let row = env.row(child);
    assert_eq!(
        (row.owner, row.spawner),
        (Owner::Session, Some(SpawningAttempt { no: parent, attempt: Attempt(1) }))
    );
    assert_eq!(env.row(parent).spawner, None);
}

#[test]
fn nothing_starts_in_a_closed_session() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.close();
    refused(env.try_spawn(client("me"), job()), RefusalKind::Ended, "is closed");
    assert_eq!(env.state(no), "stopping");
    env.aborted(no);
    assert_eq!(env.count(|event| matches!(event, Event::SessionClosed)), 1);
}

#[test]
fn an_attempt_that_is_over_spawns_nothing() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let caller = env.by(parent);
    env.recover(parent, brigade_model::command::RecoveryFinding::Crash);
    refused(env.try_spawn(caller.clone(), job()), RefusalKind::Ended, "is over");
    env.advance(0);
    assert_eq!(env.state(parent), "running");
    refused(env.try_spawn(caller, job()), RefusalKind::Ended, "is over");
}
