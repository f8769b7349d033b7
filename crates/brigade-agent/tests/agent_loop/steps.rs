//! Steps: messages, tool calls, parked calls, interrupts and the end of a turn.

use std::time::Duration;

use brigade_agent::{AgentExit, AgentOutput, ToolEffect, ToolReply, replay_output};
use brigade_llm::ChatMessage;
use brigade_model::call::{CallCompletion, Condition, ConditionRequest, ParkedCall};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use serde_json::json;

use crate::fakes::{
    FakeTool, ScriptedReply, TestAgent, call, message, question, reply, say, text_of,
};

#[tokio::test(start_paused = true)]
async fn an_interrupting_message_ends_the_model_call_and_is_read_next() {
    let test = TestAgent::new([ScriptedReply::Pending, say("Soup, then.")]);
    let run = test.run();
    let interrupt = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        test.host.lock().inbox.push_back(message("Make soup, not stew."));
        test.host.interrupted.notify_one();
    };
    let (exit, ()) = tokio::join!(run, interrupt);
    assert_eq!(exit, AgentExit::Finished);
    assert_eq!(test.host.labels(), ["inbox", "model reply"]);
    let requests = test.model.requests();
    assert!(text_of(&requests[1]).contains("Make soup, not stew."));
    assert_eq!(test.host.lock().charged.len(), 2, "the interrupted call is charged too");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_whose_message_was_read_already_costs_nothing() {
    let test = TestAgent::new([say("Soup.")]);
    test.host.interrupted.notify_one();
    assert_eq!(test.run().await, AgentExit::Finished);
    let charged = test.host.lock().charged.clone();
    assert!(charged[0].is_none(), "{charged:?}");
}

/// The grant of a step may be older than a pause of the process.
#[tokio::test(start_paused = true)]
async fn a_model_or_tool_is_not_called_without_a_lease() {
    for (held_looks, model_calls) in [(0, 0), (1, 1)] {
        let tool = FakeTool::new("look", ToolEffect::Idempotent, [ToolReply::text("a pot")]);
        let tool_calls = tool.calls.clone();
        let replies = [reply(vec![call("look", json!({}))]), say("Done.")];
        let test = TestAgent::new(replies).tool(tool);
        test.host.lock().held_looks = Some(held_looks);
        assert!(matches!(test.run().await, AgentExit::Refused(_)));
        assert_eq!(test.model.requests().len(), model_calls);
        assert_eq!(tool_calls.lock().unwrap().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unrepeatable_call_is_not_repeated_after_a_crash() {
    let pay = || FakeTool::new("pay", ToolEffect::Once, [ToolReply::text("paid")]);
    let replies = || [reply(vec![call("pay", json!({}))]), say("Done.")];
    let test = TestAgent::new(replies()).tool(pay());
    test.run().await;
    assert_eq!(test.host.labels(), ["model reply", "tool started", "tool result", "model reply"]);
    // A crash between the start and the result.
    let tool = pay();
    let calls = tool.calls.clone();
    let again = TestAgent::new([say("Done.")]).tool(tool);
    again.host.lock().journal = test.host.lock().journal[..2].to_vec();
    assert_eq!(again.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(calls.lock().unwrap().len(), 0);
    assert!(text_of(&again.model.requests()[0]).contains("its effect is unknown"));
}

#[tokio::test(start_paused = true)]
async fn an_unrepeatable_call_may_park_and_is_resumed_with_its_completion() {
    let asked = ConditionRequest::ClientTool { request: Json::null() };
    let park = ToolReply::Park { condition: asked, effect: None };
    let pay = || FakeTool::new("pay", ToolEffect::Once, [park.clone(), ToolReply::text("paid")]);
    let replies = || [reply(vec![call("pay", json!({}))]), say("Done.")];
    let completion = (CallIndex(3), CallCompletion::Elapsed);
    let test = TestAgent::new(replies()).tool(pay());
    test.host.lock().completions.push_back(completion);
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(
        test.host.labels(),
        ["model reply", "tool started", "wait", "tool result", "model reply"]
    );
    assert!(text_of(&test.model.requests()[1]).contains("paid"));
    // The next attempt, after the completion.
    let tool = FakeTool::new("pay", ToolEffect::Once, [ToolReply::text("paid")]);
    let again = TestAgent::new([say("Done.")]).tool(tool);
    again.host.lock().journal = test.host.lock().journal[..3].to_vec();
    assert_eq!(again.run_attempt(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert!(text_of(&again.model.requests()[0]).contains("paid"));
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_park_on_the_inbox() {
    let park = ToolReply::Park { condition: ConditionRequest::Inbox, effect: None };
    let tool = FakeTool::new("listen", ToolEffect::Recorded, [park, ToolReply::text("listened")]);
    let test = TestAgent::new([reply(vec![call("listen", json!({}))]), say("Done.")]).tool(tool);
    test.host.lock().completions.push_back((CallIndex(3), CallCompletion::Inbox(message("hello"))));
    assert_eq!(test.run().await, AgentExit::Finished);
    let before = text_of(&test.model.requests()[1]);
    assert!(before.contains("listened") && !before.contains("hello"), "{before}");
    let again = TestAgent::new([say("Done.")]);
    let journal = test.host.lock().journal.clone();
    again.host.lock().journal = journal[..journal.len() - 1].to_vec();
    again.run_attempt(RunNo::FIRST, Vec::new()).await;
    assert_eq!(text_of(&again.model.requests()[0]), before);
}

#[tokio::test(start_paused = true)]
async fn an_inbox_that_arrives_while_the_journal_is_read_is_delivered_once() {
    let test = TestAgent::new([say("Noted.")]);
    let batch = CallCompletion::Inbox(message("the soup boils"));
    let first = TestAgent::new([say("I wait.")]);
    first.run().await;
    {
        let mut inner = test.host.lock();
        inner.journal = first.host.lock().journal.clone();
        inner.write(CallIndex(1), EntryLabel::Inbox, batch.clone().into());
        inner.completions.push_back((CallIndex(1), batch));
    }
    let parked = vec![ParkedCall { index: CallIndex(1), condition: Condition::Inbox }];
    assert_eq!(test.run_attempt(RunNo::FIRST, parked).await, AgentExit::Finished);
    let text = text_of(&test.model.requests()[0]);
    assert_eq!(text.matches("the soup boils").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_result_is_the_final_message_and_not_a_tool_result() {
    let tool = FakeTool::new("look", ToolEffect::Pure, [ToolReply::text("tool output")]);
    let test = TestAgent::new([reply(vec![call("look", json!({}))]), say("My words.")]).tool(tool);
    test.run().await;
    assert_eq!(test.host.result_text(), "My words.");
}

#[tokio::test(start_paused = true)]
async fn the_same_call_with_different_results_is_no_loop() {
    let results = (0..9).map(|n| ToolReply::text(format!("result {n}")));
    let tool = FakeTool::new("wait", ToolEffect::Pure, results);
    let mut replies = vec![reply(vec![call("wait", json!({}))]); 9];
    replies.push(say("All are back."));
    let test = TestAgent::new(replies).tool(tool);
    assert_eq!(test.run().await, AgentExit::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_run_fails_at_the_step_limit() {
    let results = (0..300).map(|n| ToolReply::text(format!("result {n}")));
    let tool = FakeTool::new("dig", ToolEffect::Pure, results);
    let test = TestAgent::new([reply(vec![call("dig", json!({}))])]).tool(tool);
    let AgentExit::Failed { failure, .. } = test.run().await else { panic!("it ends") };
    assert_eq!(failure, Failure::MaxSteps { steps: 200 });
}

#[tokio::test(start_paused = true)]
async fn an_empty_reply_is_no_result() {
    let test = TestAgent::new([reply(Vec::new()), say("Soup.")]);
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(test.host.result_text(), "Soup.");
    let sent = &test.model.requests()[1].messages;
    let is_empty = |message: &ChatMessage| matches!(message, ChatMessage::Assistant(reply) if reply.content.is_empty());
    assert!(!sent.iter().any(is_empty), "{sent:?}");
    let never = TestAgent::new([reply(Vec::new())]);
    let AgentExit::Failed { failure, .. } = never.run().await else { panic!("it fails") };
    assert!(failure.to_string().contains("no usable result"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn progress_reports_are_short() {
    let tool = FakeTool::new("look", ToolEffect::Pure, [ToolReply::text("x")]);
    let long = brigade_llm::ContentBlock::Text("word ".repeat(50_000).into());
    let mut calls = vec![long];
    calls.extend((0..200).map(|_| call("look", json!({}))));
    let test = TestAgent::new([reply(calls), say("Done.")]).tool(tool);
    test.run().await;
    for progress in &test.host.lock().progress {
        let size = progress.last_text.len() + progress.activity.len();
        assert!(size < 1_000, "{size} bytes of progress");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ignored_question_causes_one_reminder() {
    let test = TestAgent::new([say("I wait for it.")]);
    test.host.lock().inbox.push_back(question("Which side?"));
    test.host.lock().refused_ends = 2;
    assert_eq!(test.run().await, AgentExit::Suspended);
    assert_eq!(test.host.labels(), ["inbox", "model reply", "note", "model reply"]);
    assert!(text_of(&test.model.requests()[1]).contains("without an answer for task 2"));
}

#[tokio::test(start_paused = true)]
async fn a_question_followed_by_a_call_causes_no_reminder() {
    let tool = FakeTool::new("send", ToolEffect::Pure, [ToolReply::text("answered")]);
    let test = TestAgent::new([reply(vec![call("send", json!({}))]), say("I wait.")]).tool(tool);
    test.host.lock().inbox.push_back(question("Which side?"));
    test.host.lock().refused_ends = 1;
    assert_eq!(test.run().await, AgentExit::Suspended);
    assert_eq!(test.host.labels(), ["inbox", "model reply", "tool result", "model reply"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_parks_only_once() {
    let park = ToolReply::Park {
        condition: ConditionRequest::Message { timeout: None, name: None },
        effect: None,
    };
    let tool = FakeTool::new("listen", ToolEffect::Recorded, [park]);
    let test = TestAgent::new([reply(vec![call("listen", json!({}))]), say("Done.")]).tool(tool);
    test.host.lock().completions.push_back((CallIndex(3), CallCompletion::Elapsed));
    assert_eq!(test.run().await, AgentExit::Finished);
    assert_eq!(test.host.lock().parked.len(), 1);
    assert!(text_of(&test.model.requests()[1]).contains("a second time"));
}

#[tokio::test(start_paused = true)]
async fn observers_get_results_in_the_order_of_their_commits() {
    let tool = |name| FakeTool::new(name, ToolEffect::Pure, [ToolReply::text("done")]);
    let calls = vec![call("wash", json!({})), call("peel", json!({})), call("chop", json!({}))];
    let test = TestAgent::new([reply(calls), say("Done.")]);
    let test = test.tool(tool("wash")).tool(tool("peel")).tool(tool("chop"));
    test.host.lock().slow_commits = true;
    assert_eq!(test.run().await, AgentExit::Finished);
    let stored = replay_output(test.host.lock().journal.clone(), RunNo::FIRST);
    let results = |outputs: &[AgentOutput]| -> Vec<AgentOutput> {
        let is_result = |output: &&AgentOutput| matches!(output, AgentOutput::ToolResult { .. });
        outputs.iter().filter(is_result).cloned().collect()
    };
    assert_eq!(results(&stored).len(), 3);
    assert_eq!(results(&test.host.lock().outputs), results(&stored));
}
