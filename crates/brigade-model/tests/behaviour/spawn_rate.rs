//! Spawn rates: a subtree grows no faster than its holder allows.

use brigade_model::ids::{Millis, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::refusal::RefusalKind;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::task::StoredTask;
use brigade_model::task_tree::TaskTree;

use crate::support::*;

fn rated(rate: &str) -> Limits {
    Limits { spawn_rate: Some(rate.parse().expect("a rate")), ..Limits::default() }
}

fn too_fast(env: &mut Env, owner: TaskNo, part: &str) {
    let caller = env.by(owner);
    refused(env.try_spawn(caller, job()), RefusalKind::Limit, part);
}

#[test]
fn a_burst_is_allowed_and_then_one_spawn_per_share_of_the_span() {
    let mut env = Env::new();
    let no = env.spawn(job().limited(rated("3/min")));
    for _ in 0..3 {
        env.spawn_child(no, job());
    }
    let events = env.events.len();
    too_fast(&mut env, no, "the spawn rate of job:1 is reached: 3/min; try again in 20 seconds");
    assert_eq!(env.events.len(), events, "a refusal changes nothing");
    env.advance(19_999);
    too_fast(&mut env, no, "try again in 1 ms");
    env.advance(1);
    env.spawn_child(no, job());
    too_fast(&mut env, no, "try again in 20 seconds");
    // After a pause, a whole burst is allowed again, and no more.
    env.advance(600_000);
    for _ in 0..3 {
        env.spawn_child(no, job());
    }
    too_fast(&mut env, no, "try again in 20 seconds");
}

#[test]
fn a_rate_applies_to_all_descendants_of_its_holder_together() {
    let mut env = Env::limited(rated("4/min"));
    let a = env.spawn(job());
    let b = env.spawn(job());
    let child = env.spawn_child(a, job());
    env.spawn_child(b, job());
    too_fast(&mut env, child, "the spawn rate of the session");
    refused(env.try_spawn(operator(), job()), RefusalKind::Limit, "the spawn rate of the session");
}

#[test]
fn the_same_key_is_the_same_task_and_counts_as_one_spawn() {
    let mut env = Env::limited(rated("1/h"));
    let no = env.spawn(job().keyed("k"));
    assert_eq!(env.spawn(job().keyed("k")), no);
    refused(
        env.try_spawn(operator(), job().keyed("other")),
        RefusalKind::Limit,
        "try again in 60 minutes",
    );
}

/// Loads the session from its stored rows alone.
fn reloaded(tree: &TaskTree) -> TaskTree {
    let mut loaded = TaskTree::from_row(tree.row().clone());
    for (no, row) in tree.rows() {
        loaded.insert_loaded(StoredTask::new(no, row.clone()));
    }
    loaded.finish_loading();
    loaded
}

#[test]
fn the_spawn_meter_survives_a_restart() {
    let mut env = Env::limited(rated("2/min"));
    let no = env.spawn(job().limited(rated("1/min")));
    env.spawn_child(no, job());
    env.tree = reloaded(&env.tree);
    too_fast(&mut env, no, "the spawn rate of job:1 is reached: 1/min; try again in 60 seconds");
    refused(env.try_spawn(operator(), job()), RefusalKind::Limit, "2/min; try again in 30 seconds");
}

#[test]
fn a_rate_of_zero_allows_no_spawn() {
    let mut env = Env::new();
    let none = SpawnRate { count: 0, per: Millis(1_000) };
    let limits = Limits { spawn_rate: Some(none), ..Limits::default() };
    let no = env.spawn(job().limited(limits));
    env.advance(1_000_000);
    too_fast(&mut env, no, "no task may be started under it");
}
