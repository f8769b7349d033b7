//! Permission requests of a program: decided by rules first, then by the operator.

use brigade_agent::permission::PermissionRules;
use brigade_model::approval::ApprovalVerdict;
use brigade_model::call::CallCompletion;
use brigade_model::ids::TaskNo;
use brigade_runtime::TaskHandle;

use crate::support::{World, answer, eventually};

async fn spawn_with_rules(world: &World, rules: serde_json::Value) -> TaskHandle<String> {
    spawn_vendor(world, "claude", "touch the proof", rules).await
}

async fn spawn_vendor(
    world: &World,
    vendor: &str,
    task: &str,
    rules: serde_json::Value,
) -> TaskHandle<String> {
    let rules: PermissionRules = serde_json::from_value(rules).unwrap();
    world.session.spawn(world.agent(vendor, task).permissions(rules)).await.unwrap()
}

async fn decide(world: &World, verdict: ApprovalVerdict) {
    world.session.approve(TaskNo::new(1).unwrap(), None, verdict).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_decide_without_a_person() {
    let world = World::open().await;
    let agent = spawn_with_rules(&world, serde_json::json!({})).await;
    assert_eq!(answer(&agent.wait().await.unwrap()), "Touched.");
    assert!(world.work().join("proof").exists());
    let world = World::open().await;
    let rules = serde_json::json!({ "deny": ["run_process(touch *)"] });
    let agent = spawn_with_rules(&world, rules).await;
    agent.wait().await.unwrap();
    assert!(!world.work().join("proof").exists());
    let answers = world.read_vendor_file("answers");
    assert!(answers.contains("deny") && answers.contains("not permitted"), "{answers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_rule_waits_for_the_operator() {
    for (verdict, exists) in [
        (ApprovalVerdict::AllowOnce, true),
        (ApprovalVerdict::Deny { reason: "not today".into() }, false),
    ] {
        let world = World::open().await;
        let agent = spawn_with_rules(&world, serde_json::json!({ "ask": ["run_process"] })).await;
        eventually(async || world.session.approvals().len() == 1).await;
        assert!(!world.work().join("proof").exists());
        decide(&world, verdict).await;
        agent.wait().await.unwrap();
        assert_eq!(world.work().join("proof").exists(), exists);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_outlives_the_runtime_and_is_answered_once() {
    let world = World::open().await;
    let agent = spawn_with_rules(&world, serde_json::json!({ "ask": ["run_process"] })).await;
    let no = agent.no();
    eventually(async || world.session.approvals().len() == 1).await;
    drop(agent);
    let world = world.restart().await;
    eventually(async || world.session.approvals().len() == 1).await;
    decide(&world, ApprovalVerdict::AllowOnce).await;
    let results = world.session.wait_all([no]).await.unwrap();
    assert_eq!(answer(&results[0]), "Touched.");
    assert_eq!(world.read_vendor_file("answers").lines().count(), 1);
    assert_eq!(world.read_vendor_file("starts").lines().count(), 1);
}

/// Returns the number of open requests in each stored state of a turn.
async fn stored_requests(world: &World) -> Vec<usize> {
    let first = TaskNo::new(1).unwrap();
    let journal = world.store.journal(world.session.id(), first).await.unwrap();
    let states = journal.iter().filter_map(|entry| match &*entry.completion {
        CallCompletion::Value(value) => value.decode::<serde_json::Value>().ok(),
        _ => None,
    });
    states.filter_map(|state| Some(state.get("open_requests")?.as_object()?.len())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_of_one_line_are_stored_together_and_both_answered() {
    let world = World::open().await;
    let rules = serde_json::json!({ "ask": ["run_process"] });
    let agent = spawn_vendor(&world, "batch", "touch two proofs", rules).await;
    eventually(async || world.session.approvals().len() == 2).await;
    // A crash between the two would otherwise lose the second one.
    let counts = stored_requests(&world).await;
    assert!(counts.contains(&2) && !counts.contains(&1), "{counts:?}");
    let calls: Vec<_> = world.session.approvals().iter().map(|pending| pending.call).collect();
    let world = world.restart().await;
    eventually(async || world.session.approvals().len() == 2).await;
    let first = TaskNo::new(1).unwrap();
    let deny = ApprovalVerdict::Deny { reason: "not today".into() };
    for (call, verdict) in calls.into_iter().zip([ApprovalVerdict::AllowOnce, deny]) {
        world.session.approve(first, Some(call), verdict).await.unwrap();
    }
    let results = world.session.wait_all([agent.no()]).await.unwrap();
    assert_eq!(answer(&results[0]), "Asked twice.");
    let answers = world.read_vendor_file("answers");
    let is_answered = |id: &str, behavior: &str| {
        answers.lines().any(|line| line.contains(id) && line.contains(behavior))
    };
    assert!(is_answered("req-1", "allow") && is_answered("req-2", "not today"), "{answers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_withdrawn_needs_no_approval_and_gets_no_answer() {
    let world = World::open().await;
    let rules = serde_json::json!({ "ask": ["run_process"] });
    let agent = spawn_vendor(&world, "claude", "change your mind", rules).await;
    eventually(async || world.session.approvals().len() == 1).await;
    world.open_gate();
    eventually(async || world.session.approvals().is_empty()).await;
    assert!(!world.is_ended(1).await);
    std::fs::write(world.vendor_file("second-gate"), "").unwrap();
    assert_eq!(answer(&agent.wait().await.unwrap()), "It is not needed.");
    assert_eq!(world.read_vendor_file("answers"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_very_large_arguments_is_denied_with_a_reason() {
    for rules in [serde_json::json!({}), serde_json::json!({ "ask": ["run_process"] })] {
        let world = World::open().await;
        let agent = spawn_vendor(&world, "claude", "ask for much", rules).await;
        assert_eq!(answer(&agent.wait().await.unwrap()), "Asked.");
        let answers = world.read_vendor_file("answers");
        assert!(answers.contains("deny") && answers.contains("at most 262144"), "{answers}");
    }
}
