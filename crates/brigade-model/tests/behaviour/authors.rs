//! Authors: an event names who caused it, and nobody else.

use brigade_model::approval::ApprovalVerdict;
use brigade_model::command::{Command, GivenAnswer, SpawnCommand, StopCommand, StopTarget};
use brigade_model::event::{Event, EventRecord};
use brigade_model::event_author::CallerOrigin;
use brigade_model::limits::Limits;
use brigade_model::transition::{CommandOutputs, SubmittedCommand, handle_command_into};

use crate::support::*;

/// Returns the name of an event and its author.
fn named(record: &EventRecord) -> (String, String) {
    let name = match serde_json::to_value(&record.event) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        other => panic!("not an event: {other:?}"),
    };
    (name, record.by.as_ref().map(ToString::to_string).unwrap_or_default())
}

/// Returns the events since the last `clear`, with their authors.
fn authors(env: &Env) -> Vec<(String, String)> {
    env.events.iter().map(|record| named(record)).collect()
}

#[track_caller]
fn check_authors(env: &Env, expect: &[(&str, &str)]) {
    let got = authors(env);
    let got: Vec<_> = got.iter().map(|(name, by)| (name.as_str(), by.as_str())).collect();
    assert_eq!(got, expect);
}

#[test]
fn only_decided_events_have_an_author() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let first = env.try_spawn(client("codex"), job()).unwrap().no;
    let second = env.spawn(job());
    assert_eq!(env.state(second), "queued");
    env.clear();
    env.try_spawn(client("codex"), job()).unwrap();
    check_authors(&env, &[("spawned", "client codex")]);
    env.clear();
    env.stop_task(first);
    check_authors(&env, &[("stop_requested", "operator")]);
    env.clear();
    // The report of the performer frees the slot. Nobody ordered the start of the second task.
    env.aborted(first);
    let got = authors(&env);
    assert!(got.iter().any(|(name, _)| name == "ended"), "{got:?}");
    assert!(got.iter().any(|(name, _)| name == "started"), "{got:?}");
    assert!(got.iter().all(|(_, by)| by.is_empty()), "{got:?}");
}

#[test]
fn a_stopped_subtree_is_a_consequence() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let child = env.spawn_child(top, agent());
    env.clear();
    env.stop_task(top);
    let authored: Vec<_> = env.events.iter().filter(|record| record.by.is_some()).collect();
    assert_eq!(authored.len(), 1, "{authored:?}");
    assert!(matches!(authored[0].event, Event::StopRequested { no, .. } if no == top));
    assert_eq!(env.state(child), "stopping");
    assert!(env.events.len() > 1, "the stop of the child is an event too");
}

#[test]
fn a_waiting_task_ends_with_the_stop_itself() {
    let mut env = Env::new();
    let task = env.spawn(agent());
    env.park(task, 1, approval_of("rm -rf x"));
    assert_eq!(env.state(task), "waiting");
    env.clear();
    env.stop_task(task);
    assert_eq!(authors(&env)[0], ("ended".to_owned(), "operator".to_owned()));
}

#[test]
fn an_approval_names_who_decided_it() {
    let mut env = Env::new();
    let agent = env.try_spawn(client("codex"), agent()).unwrap().no;
    env.park(agent, 1, approval_of("rm -rf x"));
    env.clear();
    env.answer(client("codex"), agent, GivenAnswer::Verdict(ApprovalVerdict::AllowOnce)).unwrap();
    let decided = env.events.iter().find(|record| named(record).0 == "approval_decided").unwrap();
    assert_eq!(decided.by.as_ref().unwrap().to_string(), "client codex");
    let woken = env.events.iter().find(|record| named(record).0 == "started").unwrap();
    assert_eq!(woken.by, None, "the next attempt is a consequence");
}

#[test]
fn a_task_that_acts_is_the_author() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    env.clear();
    env.spawn_child(parent, agent());
    check_authors(&env, &[("spawned", &format!("task {parent}"))]);
}

#[test]
fn a_refused_command_has_no_events_and_no_author() {
    let mut env = Env::new();
    let theirs = env.try_spawn(client("claude"), job()).unwrap().no;
    env.clear();
    assert!(env.stop(client("codex"), StopTarget::Task(theirs.into())).is_err());
    assert!(env.events.is_empty());
}

#[test]
fn the_origin_of_a_command_is_a_label() {
    let mut env = Env::new();
    let spec = std::sync::Arc::new(job());
    let command = Command::Spawn(SpawnCommand { caller: client("codex"), spec, call: None });
    let origin = CallerOrigin::new("operator");
    let mut outputs = CommandOutputs::default();
    let submitted = SubmittedCommand { command: &command, origin: Some(&origin) };
    handle_command_into(&mut env.tree, submitted, env.now, &mut outputs).unwrap();
    assert_eq!(named(&outputs.events[0]), ("spawned".into(), "client codex, operator".into()));
    // An origin gives no authority.
    let theirs = env.spawn(job());
    let stop = Command::Stop(StopCommand {
        caller: client("codex"),
        target: StopTarget::Task(theirs.into()),
        reason: None,
        grace: None,
        call: None,
    });
    let submitted = SubmittedCommand { command: &stop, origin: Some(&origin) };
    let before = outputs.events.len();
    assert!(handle_command_into(&mut env.tree, submitted, env.now, &mut outputs).is_err());
    assert_eq!(outputs.events.len(), before);
}
