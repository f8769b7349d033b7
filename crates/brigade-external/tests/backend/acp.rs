//! An agent that speaks the Agent Client Protocol, with a runtime and a program.

use brigade_agent::permission::PermissionRules;
use brigade_model::approval::ApprovalVerdict;
use brigade_model::call::Condition;
use brigade_model::command::GivenAnswer;
use brigade_model::ids::TaskNo;
use brigade_model::json::Json;
use brigade_model::limits::{Money, Usage};
use serde_json::json;

use crate::support::{World, answer, eventually, failure};

/// Counts the lines of the program's input that contain this text.
fn count_input(world: &World, text: &str) -> usize {
    world.read_vendor_file("input").lines().filter(|line| line.contains(text)).count()
}

/// Waits until the program has its prompt.
async fn wait_for_prompt(world: &World) {
    eventually(async || count_input(world, "session/prompt") == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_the_next_turn_of_the_same_session() {
    let world = World::open().await;
    let agent = world.spawn("acp", "begin").await;
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 1.");
    agent.send("go on").await.unwrap();
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 2.");
    assert_eq!(count_input(&world, "session/new"), 1);
    assert_eq!(count_input(&world, "session/resume"), 1);
    let used = world.task(1).await.row.usage();
    assert_eq!(used, Usage { tokens: 220, money: Money(2_000) });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_resume_is_given_its_task_again() {
    let world = World::open().await;
    let agent = world.spawn("acp-forgetful", "begin").await;
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 1.");
    agent.send("go on").await.unwrap();
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 1.");
    assert_eq!(count_input(&world, "session/new"), 2);
    assert_eq!(count_input(&world, "in a session that cannot be resumed"), 1);
    let used = world.task(1).await.row.usage();
    assert_eq!(used, Usage { tokens: 220, money: Money(2_000) });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_runtime_goes_on_in_mid_turn() {
    let world = World::open().await;
    let agent = world.spawn("acp", "wait for the gate").await;
    let no = agent.no();
    wait_for_prompt(&world).await;
    drop(agent);
    let world = world.restart().await;
    world.open_gate();
    let results = world.session.wait_all([no]).await.unwrap();
    assert_eq!(answer(&results[0]), "The gate is open.");
    assert_eq!(world.read_vendor_file("starts").lines().count(), 1);
    assert_eq!(count_input(&world, "session/prompt"), 1);
    let used = world.task(1).await.row.usage();
    assert_eq!(used, Usage { tokens: 110, money: Money(1_000) });
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_reach_the_calls_of_the_agent() {
    for (rules, exists) in [(json!({}), true), (json!({ "deny": ["run_process(touch *)"] }), false)]
    {
        let world = World::open().await;
        let rules: PermissionRules = serde_json::from_value(rules).unwrap();
        let task = world.agent("acp", "touch the proof").permissions(rules);
        let agent = world.session.spawn(task).await.unwrap();
        assert_eq!(answer(&agent.wait().await.unwrap()), "Touched.");
        assert_eq!(world.work().join("proof").exists(), exists);
        let option = if exists { "yes" } else { "no" };
        assert!(world.read_vendor_file("answers").contains(&format!("\"optionId\":\"{option}\"")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_outlives_the_runtime_and_is_answered_once() {
    let world = World::open().await;
    let rules: PermissionRules = serde_json::from_value(json!({ "ask": ["run_process"] })).unwrap();
    let task = world.agent("acp", "touch the proof").permissions(rules);
    let agent = world.session.spawn(task).await.unwrap();
    let no = agent.no();
    eventually(async || world.session.approvals().len() == 1).await;
    drop(agent);
    let world = world.restart().await;
    eventually(async || world.session.approvals().len() == 1).await;
    assert!(!world.work().join("proof").exists());
    let first = TaskNo::new(1).unwrap();
    world.session.approve(first, None, ApprovalVerdict::AllowOnce).await.unwrap();
    let results = world.session.wait_all([no]).await.unwrap();
    assert_eq!(answer(&results[0]), "Touched.");
    assert!(world.work().join("proof").exists());
    assert_eq!(world.read_vendor_file("answers").lines().count(), 1);
    assert_eq!(world.read_vendor_file("starts").lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_did_not_end_well_is_a_failure() {
    let world = World::open().await;
    let cases = [
        ("too much", "it reached its limit of tokens"),
        ("log in", "is not logged in"),
        ("vanish", "without a closing event"),
        ("leave a child", "killed by signal 9"),
    ];
    for (task, expected) in cases {
        let text = failure(&world.run("acp", task).await);
        assert!(text.contains(expected), "{task}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_stays_after_its_turn_is_stopped_and_its_answer_decides() {
    let world = World::open().await;
    let in_vain = world.spawn("acp", "linger in vain").await;
    assert_eq!(answer(&world.run("acp", "linger").await), "I stay.");
    let text = failure(&in_vain.wait().await.unwrap());
    assert!(text.contains("the oven is cold"), "{text}");
    assert!(world.is_ended(3).await && world.is_ended(4).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_program() {
    let world = World::open().await;
    let agent = world.spawn("acp", "hang").await;
    wait_for_prompt(&world).await;
    world.session.stop(&agent, None).await.unwrap();
    agent.wait().await.unwrap();
    assert!(world.is_ended(2).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_outlives_the_runtime_and_is_answered_once() {
    let world = World::open().await;
    let agent = world.spawn("acp", "ask me").await;
    let no = agent.no();
    let is_asked = async |world: &World| {
        let row = world.task(1).await.row;
        row.parked_calls.iter().any(|call| matches!(call.condition, Condition::Question { .. }))
    };
    eventually(async || is_asked(&world).await).await;
    drop(agent);
    let world = world.restart().await;
    eventually(async || is_asked(&world).await).await;
    let reply = GivenAnswer::Reply(Json::of("the blue ones").unwrap());
    world.session.answer(no, reply).await.unwrap();
    let results = world.session.wait_all([no]).await.unwrap();
    assert_eq!(answer(&results[0]), "Asked.");
    let answers = world.read_vendor_file("answers");
    assert_eq!(answers.matches(r#""content":{"plates":"the blue ones"}"#).count(), 1, "{answers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_prompt_without_a_reply_is_sent_again() {
    let world = World::open().await;
    let agent = world.spawn("acp", "think for ever").await;
    wait_for_prompt(&world).await;
    world.session.interrupt(&agent, "quick").await.unwrap();
    assert_eq!(answer(&agent.wait().await.unwrap()), "Heard both.");
    let prompts = world.read_vendor_file("input");
    let last = prompts.lines().rfind(|line| line.contains("session/prompt")).unwrap();
    assert!(last.contains("think for ever") && last.contains("quick"), "{last}");
}
