//! Compaction of conversations that are too long.

use brigade_agent::{AgentExit, ToolEffect, ToolReply};
use brigade_llm::{ChatMessage, ModelErrorKind};
use brigade_model::ids::RunNo;
use serde_json::json;

use crate::fakes::{FakeTool, ScriptedReply, TestAgent, call, reply, say, text_of};

/// Creates an agent that runs `steps` steps with results of `bytes` bytes each, then gets `then`.
fn long(steps: usize, bytes: usize, then: Vec<ScriptedReply>) -> TestAgent {
    let results = (0..steps).map(|n| ToolReply::text(format!("{n}{}", "x".repeat(bytes))));
    let tool = FakeTool::new("dig", ToolEffect::Pure, results);
    let mut replies = vec![reply(vec![call("dig", json!({}))]); steps];
    replies.extend(then);
    TestAgent::new(replies).tool(tool)
}

/// Checks that results follow the calls that they belong to.
fn check_pairs(messages: &[ChatMessage]) {
    for (index, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::Results(results) => {
                let previous = index.checked_sub(1).map(|index| &messages[index]);
                let Some(ChatMessage::Assistant(message)) = previous else {
                    panic!("results without their calls at {index}")
                };
                assert_eq!(message.calls().count(), results.len());
            }
            ChatMessage::Assistant(message) if message.calls().count() > 0 => {
                assert!(
                    matches!(messages.get(index + 1), Some(ChatMessage::Results(_))),
                    "at {index}"
                );
            }
            _ => {}
        }
    }
    assert!(matches!(messages.first(), Some(ChatMessage::User(_))), "it begins with the task");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_near_the_limit_is_compacted_and_its_end_is_kept() {
    let mut test = long(5, 500, vec![say("SUMMARY: agent:7 digs."), say("Dug.")]);
    test.agent.context_window = 1_000;
    test.agent.max_output = 100;
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(test.host.result_text(), "Dug.");
    let labels = test.host.labels();
    assert_eq!(labels.iter().filter(|label| *label == "summary").count(), 1, "{labels:?}");
    let requests = test.model.requests();
    requests.iter().for_each(|request| check_pairs(&request.messages));
    let last = text_of(&requests[6]);
    assert!(last.starts_with("user: make soup\n\n[Summary of the conversation"), "{last}");
    assert!(last.contains("SUMMARY: agent:7 digs.") && last.contains("list_tasks"), "{last}");
    assert!(last.contains("4xxx"), "the end is kept: {last}");
    assert!(last.len() < 2_000, "{}", last.len());
}

#[tokio::test(start_paused = true)]
async fn a_compacted_conversation_is_rebuilt_from_the_journal() {
    let mut test = long(5, 500, vec![say("SUMMARY."), say("Dug.")]);
    test.agent.context_window = 1_000;
    test.agent.max_output = 100;
    test.run().await;
    let before = test.model.requests()[6].messages.clone();
    let mut again = TestAgent::new([say("Dug.")]);
    again.agent.context_window = 1_000;
    let journal = test.host.lock().journal.clone();
    again.host.lock().journal = journal[..journal.len() - 1].to_vec();
    again.run_attempt(RunNo::FIRST, Vec::new()).await;
    assert_eq!(again.model.requests()[0].messages, before);
}

#[tokio::test(start_paused = true)]
async fn a_later_run_that_begins_with_a_compaction_still_gets_its_first_message() {
    let mut test = long(5, 500, vec![say("First.")]);
    test.agent.max_output = 100;
    test.run().await;
    let mut again = TestAgent::new([say("SUMMARY."), say("Second.")]);
    again.agent.context_window = 1_000;
    again.agent.max_output = 100;
    again.host.lock().journal = test.host.lock().journal.clone();
    assert_eq!(again.run_attempt(RunNo(2), Vec::new()).await, AgentExit::Finished);
    assert_eq!(again.host.result_text(), "Second.");
    assert!(text_of(&again.model.requests()[1]).contains("Go on with your task."));
}

#[tokio::test(start_paused = true)]
async fn a_long_conversation_without_a_part_to_compact_is_sent_as_it_is() {
    let mut test = TestAgent::new([say("Soup.")]);
    test.agent.task = "x".repeat(2_700).into();
    test.agent.context_window = 1_000;
    test.agent.max_output = 50;
    assert_eq!(test.run().await, AgentExit::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_the_provider_refuses_as_too_long_is_compacted() {
    let mut test = long(
        3,
        600,
        vec![ScriptedReply::Failed(ModelErrorKind::TooLong), say("SUMMARY."), say("Dug.")],
    );
    test.agent.context_window = 2_000;
    assert_eq!(test.run().await, AgentExit::Finished);
    assert!(text_of(&test.model.requests()[5]).contains("SUMMARY."));
}

#[tokio::test(start_paused = true)]
async fn a_failed_compaction_fails_the_run() {
    let mut test = long(3, 600, vec![ScriptedReply::Failed(ModelErrorKind::TooLong)]);
    test.agent.context_window = 2_000;
    let AgentExit::Failed { failure, .. } = test.run().await else { panic!("it fails") };
    assert!(failure.to_string().contains("cannot be summarized"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn results_larger_than_the_window_are_truncated_for_the_summary() {
    let tool = FakeTool::new("dig", ToolEffect::Pure, [ToolReply::text("x".repeat(60_000))]);
    let calls = (0..20).map(|_| call("dig", json!({}))).collect();
    let mut test = TestAgent::new([reply(calls), say("SUMMARY."), say("Dug.")]).tool(tool);
    test.agent.context_window = 100_000;
    assert_eq!(test.run().await, AgentExit::Finished);
    for request in test.model.requests() {
        let bytes = text_of(&request).len();
        assert!(bytes / 3 < 100_000, "{bytes} bytes do not fit");
    }
}
