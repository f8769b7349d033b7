//! The scenes that each client plays.

use brigade_model::approval::ApprovalVerdict;
use brigade_model::ids::TaskNo;
use serde_json::{Value, json};

use crate::process_scan::find_leaders;
use crate::programs::Client;
use crate::support::{World, failure};

pub(crate) async fn a_turn_ends_with_its_text(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("begin the soup").await;
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "The soup is begun.");
    world.assert_no_process().await;
}

pub(crate) async fn a_call_is_in_the_transcript(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("touch the proof").await;
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "The call is over.");
    let transcript = world.transcript().await;
    assert!(world.work().join("proof").exists(), "{transcript}");
    for part in ["-> ", "touch proof", "touched", "The call is over."] {
        assert!(transcript.contains(part), "{part}: {transcript}");
    }
}

pub(crate) async fn tools_of_brigade_are_offered(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("list the tasks").await;
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "The tasks are listed.");
    world.assert_no_process().await;
}

pub(crate) async fn an_approval_allows_a_call(client: &Client) {
    let world = World::open(client).await;
    let rules = json!({ "ask": ["run_process"] });
    let agent = world.spawn_with_rules("touch the proof", rules).await;
    world.wait_for_approval().await;
    assert!(!world.work().join("proof").exists());
    decide(&world, ApprovalVerdict::AllowOnce).await;
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "The call is over.");
    assert!(world.work().join("proof").exists());
}

pub(crate) async fn an_approval_denies_a_call(client: &Client) {
    let world = World::open(client).await;
    let rules = json!({ "ask": ["run_process"] });
    let agent = world.spawn_with_rules("touch the proof", rules).await;
    world.wait_for_approval().await;
    decide(&world, ApprovalVerdict::Deny { reason: "not today".into() }).await;
    world.wait(&agent).await;
    assert!(!world.work().join("proof").exists());
    world.assert_no_process().await;
}

pub(crate) async fn a_rule_denies_a_call(client: &Client) {
    let world = World::open(client).await;
    let rules = json!({ "deny": ["run_process(touch *)"] });
    let agent = world.spawn_with_rules("touch the proof", rules).await;
    world.wait(&agent).await;
    assert!(!world.work().join("proof").exists());
    assert!(world.session.approvals().is_empty());
}

pub(crate) async fn an_approval_outlives_the_runtime(client: &Client) {
    let world = World::open(client).await;
    let rules = json!({ "ask": ["run_process"] });
    let agent = world.spawn_with_rules("touch the proof", rules).await;
    let no = agent.no();
    world.wait_for_approval().await;
    drop(agent);
    let world = world.restart().await;
    world.wait_for_approval().await;
    assert!(!world.work().join("proof").exists());
    decide(&world, ApprovalVerdict::AllowOnce).await;
    let results = world.session.wait_all([no]).await.unwrap();
    world.expect_answer(&results[0], "The call is over.");
    assert!(world.work().join("proof").exists());
    world.assert_no_process().await;
}

/// A client that does not ask starts with less access if a rule forbids processes.
pub(crate) async fn rules_limit_the_access(client: &Client) {
    let world = World::open(client).await;
    touch_in_vain(&world, json!({ "deny": ["run_process", "write_file"] })).await;
}

/// A client that may edit files gets no shell, or does not start.
pub(crate) async fn rules_forbid_commands(client: &Client) {
    let world = World::open(client).await;
    touch_in_vain(&world, json!({ "deny": ["run_process"] })).await;
}

/// Checks that a client under these rules touches no file, or is refused as it cannot be limited.
async fn touch_in_vain(world: &World, rules: Value) {
    match world.try_spawn("touch the proof", rules).await {
        Ok(agent) => {
            world.wait(&agent).await;
            assert!(!world.work().join("proof").exists(), "{}", world.transcript().await);
        }
        Err(refusal) => assert!(refusal.message.contains("cannot be limited"), "{refusal}"),
    }
}

pub(crate) async fn tools_of_brigade_need_no_access(client: &Client) {
    let world = World::open(client).await;
    let rules = json!({ "deny": ["run_process", "write_file"] });
    let agent = world.spawn_with_rules("list the tasks", rules).await;
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "The tasks are listed.");
}

pub(crate) async fn a_message_is_the_next_turn_of_the_same_session(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("begin the soup").await;
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "The soup is begun.");
    world.assert_charged_once(1).await;
    agent.send("go on with the soup").await.unwrap();
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "I remember the soup.");
    world.assert_charged_once(2).await;
    world.assert_no_process().await;
}

/// A client whose sessions cannot be resumed gets its task again.
pub(crate) async fn a_message_repeats_the_task(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("begin the soup").await;
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "The soup is begun.");
    agent.send("go on with the soup").await.unwrap();
    let result = world.wait(&agent).await;
    world.expect_answer(&result, "I was told of the soup.");
    world.assert_no_process().await;
}

pub(crate) async fn a_stop_leaves_no_process(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("hang for ever").await;
    world.wait_for_file("waiting").await;
    assert!(!find_leaders(&world.home()).is_empty());
    agent.stop(None).await.unwrap();
    let result = world.wait(&agent).await;
    assert_eq!(result.outcome.label(), "cancelled");
    world.assert_no_process().await;
}

pub(crate) async fn an_error_of_the_model_is_a_failure(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("be refused").await;
    let result = world.wait(&agent).await;
    let text = failure(&result);
    assert!(text.contains("the soup is refused"), "{text}");
    world.assert_no_process().await;
}

pub(crate) async fn a_killed_program_is_a_failure(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("hang for ever").await;
    world.wait_for_file("waiting").await;
    for leader in find_leaders(&world.home()) {
        kill(leader.pid);
    }
    let result = world.wait(&agent).await;
    let text = failure(&result);
    // Qwen Code restarts itself as a child, which outlives the leader and reports its stop.
    let expected = ["killed by signal 9", "it cancelled the turn"];
    assert!(expected.iter().any(|expected| text.contains(expected)), "{text}");
    world.assert_no_process().await;
}

pub(crate) async fn the_next_runtime_goes_on_in_mid_turn(client: &Client) {
    let world = World::open(client).await;
    let agent = world.spawn("wait for the gate").await;
    let no = agent.no();
    world.wait_for_file("waiting").await;
    let started: Vec<i32> = find_leaders(&world.home()).iter().map(|one| one.pid).collect();
    drop(agent);
    let world = world.restart().await;
    let found: Vec<i32> = find_leaders(&world.home()).iter().map(|one| one.pid).collect();
    assert_eq!(found, started, "the program goes on");
    std::fs::write(world.work().join("gate"), "").unwrap();
    let results = world.session.wait_all([no]).await.unwrap();
    world.expect_answer(&results[0], "The call is over.");
    let transcript = world.transcript().await;
    assert_eq!(transcript.matches("  -> ").count(), 1, "{transcript}");
    world.assert_no_process().await;
}

async fn decide(world: &World, verdict: ApprovalVerdict) {
    world.session.approve(TaskNo::new(1).unwrap(), None, verdict).await.unwrap();
}

fn kill(pid: i32) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}
