//! What a model call may cost.

use brigade_agent::{AgentExit, ToolEffect, ToolReply};
use brigade_llm::{ModelErrorKind, TokenUsage};
use brigade_model::ids::RunNo;
use brigade_model::limits::{Money, Remaining, RemainingBudgets, Usage};
use serde_json::json;

use crate::paper::{PaperTool, Play, Stage, call, reply, say, text_of};

fn granted(tokens: u64, money: u64) -> Option<Usage> {
    Some(Usage { tokens, money: Money(money) })
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_as_long_as_the_tokens_and_the_money_that_are_left() {
    for grants in [granted(306, u64::MAX), granted(u64::MAX, 306)] {
        let stage = Stage::new([say("Soup.")]);
        stage.host.lock().grants = grants;
        stage.run().await;
        // The question itself is about six tokens.
        assert_eq!(stage.model.requests()[0].max_output, 300);
    }
}

#[tokio::test(start_paused = true)]
async fn a_summary_costs_no_more_than_was_granted() {
    let results = (0..5).map(|n| ToolReply::text(format!("{n}{}", "x".repeat(500))));
    let tool = PaperTool::new("dig", ToolEffect::Pure, results);
    let mut plays = vec![reply(vec![call("dig", json!({}))]); 5];
    plays.extend([say("SUMMARY."), say("Dug.")]);
    let mut stage = Stage::new(plays).tool(tool);
    stage.agent.context_window = 1_000;
    stage.agent.max_output = 5_000;
    stage.host.lock().grants = granted(2_000, u64::MAX);
    assert_eq!(stage.run().await, AgentExit::Finished);
    for request in stage.model.requests() {
        assert!(request.max_output <= 2_000, "{}", request.max_output);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_set_aside_for_a_call_that_failed_is_settled() {
    let stage = Stage::new([Play::Fail(ModelErrorKind::Auth)]);
    assert!(matches!(stage.run().await, AgentExit::Failed { .. }));
    assert_eq!(stage.host.lock().charged, [Usage::NONE]);
}

/// Nine bytes of words are about three tokens, and so is what was asked with the prompt: six.
#[tokio::test(start_paused = true)]
async fn what_had_come_of_a_reply_that_was_cut_off_is_charged() {
    let stage = Stage::new([Play::Cut("Soup, I..")]);
    assert!(matches!(stage.run().await, AgentExit::Failed { .. }));
    assert_eq!(stage.host.lock().charged, granted(9, 9).into_iter().collect::<Vec<_>>());
    let Play::Say(mut reply) = say("Soup.") else { panic!("it says something") };
    reply.usage = TokenUsage { input: 100, output: 10, ..TokenUsage::default() };
    let stage = Stage::new([Play::Again("Soup, I..", reply)]);
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(stage.host.lock().charged, granted(119, 119).into_iter().collect::<Vec<_>>());
}

fn left(tokens: u64) -> RemainingBudgets {
    RemainingBudgets {
        tokens: Some(Remaining { amount: tokens, limit: 50_000, shared: false }),
        ..RemainingBudgets::default()
    }
}

fn digging(plays: impl IntoIterator<Item = Play>) -> Stage {
    let results = (0..9).map(|n| ToolReply::text(format!("hole {n}")));
    Stage::new(plays).tool(PaperTool::new("dig", ToolEffect::Pure, results))
}

fn dig() -> Play {
    reply(vec![call("dig", json!({}))])
}

#[tokio::test(start_paused = true)]
async fn the_model_is_told_once_what_is_left_before_its_next_call() {
    let stage = digging([dig(), dig(), dig(), say("Dug.")]);
    stage.host.lock().left = [left(40_000), left(12_000), left(11_000), left(9_000)].into();
    assert_eq!(stage.run().await, AgentExit::Finished);
    let told: Vec<usize> = stage
        .model
        .requests()
        .iter()
        .map(|request| text_of(request).matches("<note from=\"brigade\">").count())
        .collect();
    assert_eq!(told, [0, 1, 1, 2]);
    let second = text_of(&stage.model.requests()[1]);
    let words = "12,000 tokens of 50,000 tokens left for you and all that you start.";
    assert!(second.contains(words), "{second}");
    // A warning costs no write of its own: it goes with the reply to it.
    assert_eq!(stage.host.labels().iter().filter(|label| *label == "budget").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_goes_on_is_not_told_again_what_it_knows() {
    let stage = digging([dig(), Play::Fail(ModelErrorKind::Auth)]);
    stage.host.lock().left = [left(12_000)].into();
    assert!(matches!(stage.run().await, AgentExit::Failed { .. }));
    let again = digging([say("Dug.")]);
    again.host.lock().journal.clone_from(&stage.host.lock().journal);
    again.host.lock().left = [left(11_000)].into();
    assert_eq!(again.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    let asked = text_of(&again.model.requests()[0]);
    assert_eq!(asked.matches("<note from=\"brigade\">").count(), 1, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_new_run_is_told_of_its_own_budget_and_to_go_on() {
    let stage = digging([dig(), say("Half.")]);
    stage.host.lock().left = [left(12_000)].into();
    assert_eq!(stage.run().await, AgentExit::Finished);
    let again = digging([say("Dug.")]);
    again.host.lock().journal.clone_from(&stage.host.lock().journal);
    again.host.lock().left = [left(8_000)].into();
    assert_eq!(again.begin(RunNo(2), Vec::new()).await, AgentExit::Finished);
    let asked = text_of(&again.model.requests()[0]);
    let (_, run) = asked.rsplit_once("assistant: Half.").expect("the first run");
    assert!(run.contains("Go on with your task."), "{asked}");
    assert!(run.contains("8,000 tokens of 50,000"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn the_last_reply_is_known_to_be_the_last() {
    let mut stage = digging([dig(), dig(), say("Dug.")]);
    stage.agent.stop_policy.max_steps = 20;
    assert_eq!(stage.run().await, AgentExit::Finished);
    let last = stage.model.requests().last().map(|request| text_of(request)).unwrap();
    assert!(!last.contains("<note"), "there are many left: {last}");
    let mut stage = digging([dig(), dig(), say("Dug.")]);
    stage.agent.stop_policy.max_steps = 3;
    assert_eq!(stage.run().await, AgentExit::Finished);
    let last = stage.model.requests().last().map(|request| text_of(request)).unwrap();
    assert!(last.contains("This is the last reply that you may give."), "{last}");
}
