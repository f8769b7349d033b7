//! Conversations that become too long.

use brigade_agent::{AgentExit, ToolEffect, ToolReply};
use brigade_llm::{ChatMessage, ModelErrorKind};
use brigade_model::ids::RunNo;
use serde_json::json;

use crate::paper::{PaperTool, Play, Stage, call, reply, say, text_of};

/// Steps with results of so many bytes each, then plays.
fn long(steps: usize, bytes: usize, then: Vec<Play>) -> Stage {
    let results = (0..steps).map(|n| ToolReply::text(format!("{n}{}", "x".repeat(bytes))));
    let tool = PaperTool::new("dig", ToolEffect::Pure, results);
    let mut plays = vec![reply(vec![call("dig", json!({}))]); steps];
    plays.extend(then);
    Stage::new(plays).tool(tool)
}

/// Results follow the calls that they belong to.
fn check_pairs(messages: &[ChatMessage]) {
    for (at, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::Results(results) => {
                let Some(ChatMessage::Assistant(said)) = at.checked_sub(1).map(|at| &messages[at])
                else {
                    panic!("results without their calls at {at}")
                };
                assert_eq!(said.calls().count(), results.len());
            }
            ChatMessage::Assistant(said) if said.calls().count() > 0 => {
                assert!(matches!(messages.get(at + 1), Some(ChatMessage::Results(_))), "at {at}");
            }
            _ => {}
        }
    }
    assert!(matches!(messages.first(), Some(ChatMessage::User(_))), "it begins with the task");
}

#[tokio::test(start_paused = true)]
async fn near_the_limit_the_beginning_is_summed_up_and_the_end_is_kept() {
    let mut stage = long(5, 500, vec![say("SUMMARY: agent:7 digs."), say("Dug.")]);
    stage.agent.context_window = 1_000;
    stage.agent.max_output = 100;
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(stage.host.words(), "Dug.");
    let labels = stage.host.labels();
    assert_eq!(labels.iter().filter(|label| *label == "summary").count(), 1, "{labels:?}");
    let requests = stage.model.requests();
    requests.iter().for_each(|request| check_pairs(&request.messages));
    let last = text_of(&requests[6]);
    assert!(last.starts_with("user: make soup\n\n[What was said and done"), "{last}");
    assert!(last.contains("SUMMARY: agent:7 digs.") && last.contains("list_tasks"), "{last}");
    assert!(last.contains("4xxx"), "the end is kept: {last}");
    assert!(last.len() < 2_000, "{}", last.len());
}

#[tokio::test(start_paused = true)]
async fn what_was_summed_up_is_the_same_when_it_is_built_again() {
    let mut stage = long(5, 500, vec![say("SUMMARY."), say("Dug.")]);
    stage.agent.context_window = 1_000;
    stage.agent.max_output = 100;
    stage.run().await;
    let before = stage.model.requests()[6].messages.clone();
    let mut again = Stage::new([say("Dug.")]);
    again.agent.context_window = 1_000;
    let journal = stage.host.lock().journal.clone();
    again.host.lock().journal = journal[..journal.len() - 1].to_vec();
    again.begin(RunNo::FIRST, Vec::new()).await;
    assert_eq!(again.model.requests()[0].messages, before);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_begins_with_summing_up_still_begins() {
    let mut stage = long(5, 500, vec![say("First.")]);
    stage.agent.max_output = 100;
    stage.run().await;
    let mut again = Stage::new([say("SUMMARY."), say("Second.")]);
    again.agent.context_window = 1_000;
    again.agent.max_output = 100;
    again.host.lock().journal = stage.host.lock().journal.clone();
    assert_eq!(again.begin(RunNo(2), Vec::new()).await, AgentExit::Finished);
    assert_eq!(again.host.words(), "Second.");
    assert!(text_of(&again.model.requests()[1]).contains("Go on with your task."));
}

#[tokio::test(start_paused = true)]
async fn where_there_is_nothing_to_sum_up_the_model_is_asked_all_the_same() {
    let mut stage = Stage::new([say("Soup.")]);
    stage.agent.task = "x".repeat(2_700).into();
    stage.agent.context_window = 1_000;
    stage.agent.max_output = 50;
    assert_eq!(stage.run().await, AgentExit::Finished);
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_finds_too_long_is_summed_up() {
    let mut stage =
        long(3, 600, vec![Play::Fail(ModelErrorKind::TooLong), say("SUMMARY."), say("Dug.")]);
    stage.agent.context_window = 2_000;
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert!(text_of(&stage.model.requests()[5]).contains("SUMMARY."));
}

#[tokio::test(start_paused = true)]
async fn what_stays_too_long_ends_the_run_truthfully() {
    let mut stage = long(3, 600, vec![Play::Fail(ModelErrorKind::TooLong)]);
    stage.agent.context_window = 2_000;
    let AgentExit::Failed { failure, .. } = stage.run().await else { panic!("it fails") };
    assert!(failure.to_string().contains("cannot be summed up"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn results_larger_than_the_window_are_summed_up_in_part() {
    let tool = PaperTool::new("dig", ToolEffect::Pure, [ToolReply::text("x".repeat(60_000))]);
    let calls = (0..20).map(|_| call("dig", json!({}))).collect();
    let mut stage = Stage::new([reply(calls), say("SUMMARY."), say("Dug.")]).tool(tool);
    stage.agent.context_window = 100_000;
    assert_eq!(stage.run().await, AgentExit::Finished);
    for request in stage.model.requests() {
        let bytes = text_of(&request).len();
        assert!(bytes / 3 < 100_000, "{bytes} bytes do not fit");
    }
}
