//! The cost of model calls: grants, charges and budget warnings.

use brigade_agent::{AgentExit, ToolEffect, ToolReply};
use brigade_llm::{ModelErrorKind, TokenUsage};
use brigade_model::ids::RunNo;
use brigade_model::limits::{Money, Remaining, RemainingBudgets, Usage};
use serde_json::json;

use crate::fakes::{FakeTool, ScriptedReply, TestAgent, call, reply, say, text_of};

fn granted(tokens: u64, money: u64) -> Option<Usage> {
    Some(Usage { tokens, money: Money(money) })
}

#[tokio::test(start_paused = true)]
async fn the_length_of_a_reply_is_bounded_by_the_granted_tokens_and_money() {
    for grants in [granted(306, u64::MAX), granted(u64::MAX, 306)] {
        let test = TestAgent::new([say("Soup.")]);
        test.host.lock().grants = grants;
        test.run().await;
        // The request itself has about six tokens.
        assert_eq!(test.model.requests()[0].max_output, 300);
    }
}

#[tokio::test(start_paused = true)]
async fn a_summary_costs_no_more_than_the_grant() {
    let results = (0..5).map(|n| ToolReply::text(format!("{n}{}", "x".repeat(500))));
    let tool = FakeTool::new("dig", ToolEffect::Pure, results);
    let mut replies = vec![reply(vec![call("dig", json!({}))]); 5];
    replies.extend([say("SUMMARY."), say("Dug.")]);
    let mut test = TestAgent::new(replies).tool(tool);
    test.agent.context_window = 1_000;
    test.agent.max_output = 5_000;
    test.host.lock().grants = granted(2_000, u64::MAX);
    assert_eq!(test.run().await, AgentExit::Finished);
    for request in test.model.requests() {
        assert!(request.max_output <= 2_000, "{}", request.max_output);
    }
}

#[tokio::test(start_paused = true)]
async fn the_reservation_of_a_failed_model_call_is_released() {
    let test = TestAgent::new([ScriptedReply::Failed(ModelErrorKind::Auth)]);
    assert!(matches!(test.run().await, AgentExit::Failed { .. }));
    assert_eq!(test.host.lock().charged, [Usage::NONE]);
}

/// The nine bytes of text are about three tokens, the request with its prompt about six.
#[tokio::test(start_paused = true)]
async fn the_streamed_part_of_a_reply_that_was_cut_off_is_charged() {
    let test = TestAgent::new([ScriptedReply::CutOff("Soup, I..")]);
    assert!(matches!(test.run().await, AgentExit::Failed { .. }));
    assert_eq!(test.host.lock().charged, granted(9, 9).into_iter().collect::<Vec<_>>());
    let ScriptedReply::Whole(mut reply) = say("Soup.") else { panic!("a whole reply") };
    reply.usage = TokenUsage { input: 100, output: 10, ..TokenUsage::default() };
    let test = TestAgent::new([ScriptedReply::Restarted("Soup, I..", reply)]);
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(test.host.lock().charged, granted(119, 119).into_iter().collect::<Vec<_>>());
}

fn remaining(tokens: u64) -> RemainingBudgets {
    RemainingBudgets {
        tokens: Some(Remaining { amount: tokens, limit: 50_000, shared: false }),
        ..RemainingBudgets::default()
    }
}

fn digging(replies: impl IntoIterator<Item = ScriptedReply>) -> TestAgent {
    let results = (0..9).map(|n| ToolReply::text(format!("hole {n}")));
    TestAgent::new(replies).tool(FakeTool::new("dig", ToolEffect::Pure, results))
}

fn dig() -> ScriptedReply {
    reply(vec![call("dig", json!({}))])
}

#[tokio::test(start_paused = true)]
async fn the_model_is_warned_once_of_each_threshold_before_its_next_call() {
    let test = digging([dig(), dig(), dig(), say("Dug.")]);
    test.host.lock().remaining =
        [remaining(40_000), remaining(12_000), remaining(11_000), remaining(9_000)].into();
    assert_eq!(test.run().await, AgentExit::Finished);
    let warnings: Vec<usize> = test
        .model
        .requests()
        .iter()
        .map(|request| text_of(request).matches("<note from=\"brigade\">").count())
        .collect();
    assert_eq!(warnings, [0, 1, 1, 2]);
    let second = text_of(&test.model.requests()[1]);
    let expected = "12,000 tokens of 50,000 tokens left for you and all that you start.";
    assert!(second.contains(expected), "{second}");
    // A warning needs no commit of its own: it is committed with the reply.
    assert_eq!(test.host.labels().iter().filter(|label| *label == "budget warning").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_next_attempt_does_not_repeat_a_warning() {
    let test = digging([dig(), ScriptedReply::Failed(ModelErrorKind::Auth)]);
    test.host.lock().remaining = [remaining(12_000)].into();
    assert!(matches!(test.run().await, AgentExit::Failed { .. }));
    let again = digging([say("Dug.")]);
    again.host.lock().journal.clone_from(&test.host.lock().journal);
    again.host.lock().remaining = [remaining(11_000)].into();
    assert_eq!(again.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    let request = text_of(&again.model.requests()[0]);
    assert_eq!(request.matches("<note from=\"brigade\">").count(), 1, "{request}");
}

#[tokio::test(start_paused = true)]
async fn a_later_run_gets_its_own_warnings_and_the_resume_prompt() {
    let test = digging([dig(), say("Half.")]);
    test.host.lock().remaining = [remaining(12_000)].into();
    assert_eq!(test.run().await, AgentExit::Finished);
    let again = digging([say("Dug.")]);
    again.host.lock().journal.clone_from(&test.host.lock().journal);
    again.host.lock().remaining = [remaining(8_000)].into();
    assert_eq!(again.run_attempt(RunNo(2), Vec::new()).await, AgentExit::Finished);
    let request = text_of(&again.model.requests()[0]);
    let (_, run) = request.rsplit_once("assistant: Half.").expect("the first run");
    assert!(run.contains("Go on with your task."), "{request}");
    assert!(run.contains("8,000 tokens of 50,000"), "{request}");
}

#[tokio::test(start_paused = true)]
async fn the_model_is_warned_of_its_last_reply() {
    let mut test = digging([dig(), dig(), say("Dug.")]);
    test.agent.stop_policy.max_steps = 20;
    assert_eq!(test.run().await, AgentExit::Finished);
    let last = test.model.requests().last().map(|request| text_of(request)).unwrap();
    assert!(!last.contains("<note"), "many steps remain: {last}");
    let mut test = digging([dig(), dig(), say("Dug.")]);
    test.agent.stop_policy.max_steps = 3;
    assert_eq!(test.run().await, AgentExit::Finished);
    let last = test.model.requests().last().map(|request| text_of(request)).unwrap();
    assert!(last.contains("This is the last reply that you may give."), "{last}");
}
