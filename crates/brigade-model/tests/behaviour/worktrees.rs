//! Git worktrees of tasks: stored before the work starts, released after the end.

use brigade_model::action::Action;
use brigade_model::command::{AttemptReport, Command, ReleaseWorktreeCommand};
use brigade_model::event::Event;
use brigade_model::ids::TaskNo;
use brigade_model::refusal::RefusalKind;
use brigade_model::spec::TaskSpec;
use brigade_model::worktree::{Worktree, WorktreeState};

use crate::support::*;

fn worktree(serial: u32) -> Worktree {
    Worktree {
        path: format!("/state/worktrees/s/1-{serial}").into(),
        branch: "brigade/soup/1".into(),
        base: "abc".into(),
        repository: "/soup/.git".into(),
        git_dir: "/soup/.git/worktrees/1".into(),
        origin: "/soup".into(),
        subdirectory: "".into(),
        serial,
        state: WorktreeState::InUse,
    }
}

fn with_worktree(spec: TaskSpec) -> TaskSpec {
    TaskSpec { worktree: true, ..spec }
}

fn report(worktree: Worktree) -> AttemptReport {
    AttemptReport::Worktree(Box::new(worktree))
}

fn release(no: TaskNo, serial: u32, state: WorktreeState) -> Command {
    Command::ReleaseWorktree(ReleaseWorktreeCommand { no, serial, state })
}

fn state(env: &Env, no: TaskNo) -> Option<WorktreeState> {
    env.row(no).worktree().map(|worktree| worktree.state)
}

#[test]
fn a_worktree_is_stored_once_and_released_once() {
    let mut env = Env::new();
    let task = env.spawn(with_worktree(process()));
    env.clear();
    env.report(task, report(worktree(1)));
    assert_eq!(env.row(task).worktree(), Some(&worktree(1)));
    let events = env.events.len();
    env.report(task, report(worktree(1)));
    assert_eq!(env.events.len(), events, "a repeat changes nothing");
    refused(env.submit(&release(task, 1, WorktreeState::Kept)), RefusalKind::Conflict, "alive");
    env.succeed(task);
    refused(env.submit(&release(task, 2, WorktreeState::Kept)), RefusalKind::NotFound, "no such");
    env.submit(&release(task, 1, WorktreeState::Kept)).unwrap();
    assert_eq!(state(&env, task), Some(WorktreeState::Kept));
    let events = env.events.len();
    env.submit(&release(task, 1, WorktreeState::Kept)).unwrap();
    env.submit(&release(task, 1, WorktreeState::InUse)).unwrap();
    assert_eq!(env.events.len(), events, "a repeat changes nothing");
    assert_eq!(env.row(task).worktree().unwrap().kept(), Some(true));
}

#[test]
fn only_a_task_that_was_started_with_a_worktree_has_one() {
    let mut env = Env::new();
    let task = env.spawn(process());
    refused(env.try_report(task, report(worktree(1))), RefusalKind::Invalid, "without a worktree");
    env.succeed(task);
    refused(env.submit(&release(task, 1, WorktreeState::Kept)), RefusalKind::NotFound, "no such");
}

#[test]
fn a_later_run_starts_with_the_worktree_of_the_earlier_one() {
    let mut env = Env::new();
    let task = env.spawn(with_worktree(agent()));
    env.report(task, report(worktree(1)));
    env.succeed(task);
    env.submit(&release(task, 1, WorktreeState::Kept)).unwrap();
    env.clear();
    env.resume(operator(), task).unwrap();
    let start = env.actions.iter().find_map(|action| match action {
        Action::Start(start) => Some(start),
        _ => None,
    });
    let known = start.unwrap().worktree.as_deref().unwrap();
    assert_eq!((known.serial, known.state), (1, WorktreeState::Kept));
    env.report(task, report(worktree(1)));
    assert_eq!(state(&env, task), Some(WorktreeState::InUse));
}

#[test]
fn the_same_key_with_and_without_a_worktree_is_a_conflict() {
    let mut env = Env::new();
    env.spawn(process().keyed("k"));
    let repeated = env.try_spawn(operator(), with_worktree(process().keyed("k")));
    refused(repeated, RefusalKind::Conflict, "worktree");
}

#[test]
fn rows_and_events_of_earlier_versions_have_no_worktree() {
    let spec = serde_json::to_value(process()).unwrap();
    assert!(spec.get("worktree").is_none(), "{spec}");
    assert!(!serde_json::from_value::<TaskSpec>(spec).unwrap().has_worktree());
    let set = Event::WorktreeSet { no: TaskNo::new(1).unwrap(), worktree: Box::new(worktree(1)) };
    let stored = serde_json::to_string(&set).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&stored).unwrap(), set);
}
