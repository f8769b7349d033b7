//! Turns: what is said, called, told and heard.

use std::time::Duration;

use brigade_agent::{AgentExit, ToolEffect, ToolReply};
use brigade_llm::ChatMessage;
use brigade_model::call::{CallCompletion, Condition, ConditionRequest, ParkedCall};
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use serde_json::json;

use crate::paper::{PaperTool, Play, Stage, call, message, question, reply, say, text_of};

#[tokio::test(start_paused = true)]
async fn an_interrupting_message_cuts_the_model_short_and_is_heard_next() {
    let stage = Stage::new([Play::Hang, say("Soup, then.")]);
    let run = stage.run();
    let interrupt = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.host.lock().news.push_back(message("Make soup, not stew."));
        stage.host.interrupted.notify_one();
    };
    let (exit, ()) = tokio::join!(run, interrupt);
    assert_eq!(exit, AgentExit::Finished);
    assert_eq!(stage.host.labels(), ["news", "model"]);
    let asked = stage.model.requests();
    assert!(text_of(&asked[1]).contains("Make soup, not stew."));
    assert_eq!(stage.host.lock().charged.len(), 2, "what was cut short is settled too");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_that_was_heard_of_already_costs_nothing() {
    let stage = Stage::new([say("Soup.")]);
    stage.host.interrupted.notify_one();
    assert_eq!(stage.run().await, AgentExit::Finished);
    let charged = stage.host.lock().charged.clone();
    assert!(charged[0].is_none(), "{charged:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_happen_twice_is_not_repeated_after_a_crash() {
    let pay = || PaperTool::new("pay", ToolEffect::Once, [ToolReply::text("paid")]);
    let plays = || [reply(vec![call("pay", json!({}))]), say("Done.")];
    let stage = Stage::new(plays()).tool(pay());
    stage.run().await;
    assert_eq!(stage.host.labels(), ["model", "begun", "result", "model"]);
    // Cut between the beginning and the result.
    let tool = pay();
    let calls = tool.calls.clone();
    let again = Stage::new([say("Done.")]).tool(tool);
    again.host.lock().journal = stage.host.lock().journal[..2].to_vec();
    assert_eq!(again.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert_eq!(calls.lock().unwrap().len(), 0);
    assert!(text_of(&again.model.requests()[0]).contains("its effect is unknown"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_happen_twice_may_wait_and_goes_on_with_its_answer() {
    let asked = ConditionRequest::ClientTool { request: Json::null() };
    let parks = ToolReply::Park { asked, effect: None };
    let pay = || PaperTool::new("pay", ToolEffect::Once, [parks.clone(), ToolReply::text("paid")]);
    let plays = || [reply(vec![call("pay", json!({}))]), say("Done.")];
    let approved = || (CallIndex(3), CallCompletion::Elapsed);
    let stage = Stage::new(plays()).tool(pay());
    stage.host.lock().answers.push_back(approved());
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(stage.host.labels(), ["model", "begun", "wait", "result", "model"]);
    assert!(text_of(&stage.model.requests()[1]).contains("paid"));
    // The same, built anew after the answer.
    let tool = PaperTool::new("pay", ToolEffect::Once, [ToolReply::text("paid")]);
    let again = Stage::new([say("Done.")]).tool(tool);
    again.host.lock().journal = stage.host.lock().journal[..3].to_vec();
    assert_eq!(again.begin(RunNo::FIRST, Vec::new()).await, AgentExit::Finished);
    assert!(text_of(&again.model.requests()[0]).contains("paid"));
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_wait_for_news_of_its_own() {
    let parks = ToolReply::Park { asked: ConditionRequest::Inbox, effect: None };
    let tool = PaperTool::new("listen", ToolEffect::Recorded, [parks, ToolReply::text("listened")]);
    let stage = Stage::new([reply(vec![call("listen", json!({}))]), say("Done.")]).tool(tool);
    stage.host.lock().answers.push_back((CallIndex(3), CallCompletion::Inbox(message("hello"))));
    assert_eq!(stage.run().await, AgentExit::Finished);
    let before = text_of(&stage.model.requests()[1]);
    assert!(before.contains("listened") && !before.contains("hello"), "{before}");
    let again = Stage::new([say("Done.")]);
    let journal = stage.host.lock().journal.clone();
    again.host.lock().journal = journal[..journal.len() - 1].to_vec();
    again.begin(RunNo::FIRST, Vec::new()).await;
    assert_eq!(text_of(&again.model.requests()[0]), before);
}

#[tokio::test(start_paused = true)]
async fn news_that_came_while_the_journal_was_read_is_told_once() {
    let stage = Stage::new([say("Heard.")]);
    let news = CallCompletion::Inbox(message("the soup boils"));
    let said = Stage::new([say("I wait.")]);
    said.run().await;
    {
        let mut inner = stage.host.lock();
        inner.journal = said.host.lock().journal.clone();
        inner.write(CallIndex(1), "news", news.clone().into());
        inner.answers.push_back((CallIndex(1), news));
    }
    let open = vec![ParkedCall { index: CallIndex(1), condition: Condition::Inbox }];
    assert_eq!(stage.begin(RunNo::FIRST, open).await, AgentExit::Finished);
    let text = text_of(&stage.model.requests()[0]);
    assert_eq!(text.matches("the soup boils").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_it_says_last_is_its_result_and_not_what_a_tool_returned() {
    let tool = PaperTool::new("look", ToolEffect::Pure, [ToolReply::text("tool output")]);
    let stage = Stage::new([reply(vec![call("look", json!({}))]), say("My words.")]).tool(tool);
    stage.run().await;
    assert_eq!(stage.host.words(), "My words.");
}

#[tokio::test(start_paused = true)]
async fn the_same_call_with_other_results_is_no_loop() {
    let results = (0..9).map(|n| ToolReply::text(format!("result {n}")));
    let tool = PaperTool::new("wait", ToolEffect::Pure, results);
    let mut plays = vec![reply(vec![call("wait", json!({}))]); 9];
    plays.push(say("All are back."));
    let stage = Stage::new(plays).tool(tool);
    assert_eq!(stage.run().await, AgentExit::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_stops_is_stopped() {
    let results = (0..300).map(|n| ToolReply::text(format!("result {n}")));
    let tool = PaperTool::new("dig", ToolEffect::Pure, results);
    let stage = Stage::new([reply(vec![call("dig", json!({}))])]).tool(tool);
    let AgentExit::Failed { failure, .. } = stage.run().await else { panic!("it ends") };
    assert_eq!(failure, Failure::MaxSteps { steps: 200 });
}

#[tokio::test(start_paused = true)]
async fn an_empty_reply_is_no_result() {
    let stage = Stage::new([reply(Vec::new()), say("Soup.")]);
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(stage.host.words(), "Soup.");
    let sent = &stage.model.requests()[1].messages;
    let empty = |message: &ChatMessage| matches!(message, ChatMessage::Assistant(said) if said.content.is_empty());
    assert!(!sent.iter().any(empty), "{sent:?}");
    let never = Stage::new([reply(Vec::new())]);
    let AgentExit::Failed { failure, .. } = never.run().await else { panic!("it fails") };
    assert!(failure.to_string().contains("no usable result"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn progress_has_the_last_words_and_no_more() {
    let tool = PaperTool::new("look", ToolEffect::Pure, [ToolReply::text("x")]);
    let long = brigade_llm::ContentBlock::Text("word ".repeat(50_000).into());
    let mut calls = vec![long];
    calls.extend((0..200).map(|_| call("look", json!({}))));
    let stage = Stage::new([reply(calls), say("Done.")]).tool(tool);
    stage.run().await;
    for progress in &stage.host.lock().progress {
        let size = progress.last_text.len() + progress.activity.len();
        assert!(size < 1_000, "{size} bytes of progress");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_passed_over_is_reminded_of_once() {
    let stage = Stage::new([say("I wait for it.")]);
    stage.host.lock().news.push_back(question("Which side?"));
    stage.host.lock().not_done = 2;
    assert_eq!(stage.run().await, AgentExit::Suspended);
    assert_eq!(stage.host.labels(), ["news", "model", "note", "model"]);
    assert!(text_of(&stage.model.requests()[1]).contains("without an answer for task 2"));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_dealt_with_is_not_reminded_of() {
    let tool = PaperTool::new("send", ToolEffect::Pure, [ToolReply::text("answered")]);
    let stage = Stage::new([reply(vec![call("send", json!({}))]), say("I wait.")]).tool(tool);
    stage.host.lock().news.push_back(question("Which side?"));
    stage.host.lock().not_done = 1;
    assert_eq!(stage.run().await, AgentExit::Suspended);
    assert_eq!(stage.host.labels(), ["news", "model", "result", "model"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_once() {
    let parks =
        ToolReply::Park { asked: ConditionRequest::Message { patience: None }, effect: None };
    let tool = PaperTool::new("listen", ToolEffect::Recorded, [parks]);
    let stage = Stage::new([reply(vec![call("listen", json!({}))]), say("Done.")]).tool(tool);
    stage.host.lock().answers.push_back((CallIndex(3), CallCompletion::Elapsed));
    assert_eq!(stage.run().await, AgentExit::Finished);
    assert_eq!(stage.host.lock().parked.len(), 1);
    assert!(text_of(&stage.model.requests()[1]).contains("a second time"));
}
