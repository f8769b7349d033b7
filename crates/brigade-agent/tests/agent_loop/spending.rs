//! What a model call may cost.

use brigade_agent::{Effect, Exit, Outcome};
use brigade_llm::ErrorKind;
use brigade_model::limits::{Money, Usage};
use serde_json::json;

use crate::paper::{PaperTool, Play, Stage, call, reply, say};

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
    let results = (0..5).map(|n| Outcome::text(format!("{n}{}", "x".repeat(500))));
    let tool = PaperTool::new("dig", Effect::Pure, results);
    let mut plays = vec![reply(vec![call("dig", json!({}))]); 5];
    plays.extend([say("SUMMARY."), say("Dug.")]);
    let mut stage = Stage::new(plays).tool(tool);
    stage.agent.window = 1_000;
    stage.agent.max_output = 5_000;
    stage.host.lock().grants = granted(2_000, u64::MAX);
    assert_eq!(stage.run().await, Exit::Finished);
    for request in stage.model.requests() {
        assert!(request.max_output <= 2_000, "{}", request.max_output);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_set_aside_for_a_call_that_failed_is_settled() {
    let stage = Stage::new([Play::Fail(ErrorKind::Auth)]);
    assert!(matches!(stage.run().await, Exit::Failed { .. }));
    assert_eq!(stage.host.lock().charged, [Usage::NONE]);
}
