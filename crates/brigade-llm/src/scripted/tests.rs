//! Tests of the order of turns and of the parts of a reply.

use futures_util::StreamExt;
use serde_json::json;

use super::*;
use crate::conversation::{ChatMessage, ToolArguments, ToolResult};
use crate::model::{StopReason, TokenUsage};
use crate::testing::request_with;

fn scripted(text: &str) -> ScriptedModel {
    ScriptedModel::new(Script::parse("story", text).unwrap_or_else(|error| panic!("{error}")))
}

async fn parts(
    model: &ScriptedModel,
    agent: &str,
    messages: &[ChatMessage],
) -> Vec<Result<ReplyPart, ModelError>> {
    model.call(Arc::new(request_with(agent, messages.to_vec()))).collect().await
}

async fn reply(model: &ScriptedModel, agent: &str, messages: &[ChatMessage]) -> ModelReply {
    match parts(model, agent, messages).await.pop() {
        Some(Ok(ReplyPart::Finished(reply))) => *reply,
        other => panic!("{other:?}"),
    }
}

async fn reply_text(model: &ScriptedModel, messages: &[ChatMessage]) -> String {
    reply(model, "a", messages).await.message.text()
}

fn assistant_message(reply: ModelReply) -> ChatMessage {
    ChatMessage::Assistant(Arc::new(reply.message))
}

fn results(reply: &ModelReply, text: &str) -> ChatMessage {
    let results = reply.message.calls().map(|call| ToolResult {
        id: call.id.clone(),
        name: call.name.clone(),
        text: text.into(),
        failed: false,
    });
    ChatMessage::Results(results.collect())
}

const BOSS: &str = r#"
# A boss who waits for a helper.
agent a
usage input=10 output=5

turn
  think Somebody
  think must do it.
  say I ask.
  call spawn_agent {"task": "look", "name": "Helper"}
  call list_tasks

turn
  when agent:2 succeeded
  say It is done.
  usage input=30 output=1 cached=20

turn
  repeat
  call wait_tasks {
    "timeout_secs": 1
  }

agent *
turn
  say Any.
"#;

#[tokio::test]
async fn a_turn_has_its_texts_calls_and_usage() {
    let model = scripted(BOSS);
    let parts = parts(&model, "a", &[ChatMessage::user("go")]).await;
    let [Ok(thought), Ok(text), Ok(first), Ok(second), Ok(ReplyPart::Finished(reply))] = &parts[..]
    else {
        panic!("{parts:?}")
    };
    assert_eq!(thought, &ReplyPart::Reasoning("Somebody\nmust do it.".to_owned()));
    assert_eq!(text, &ReplyPart::Text("I ask.".to_owned()));
    assert_eq!(first, &ReplyPart::Call { name: "spawn_agent".to_owned() });
    assert_eq!(second, &ReplyPart::Call { name: "list_tasks".to_owned() });
    let calls: Vec<_> = reply.message.calls().map(|call| call.arguments.clone()).collect();
    let expect = json!({"task": "look", "name": "Helper"});
    assert_eq!(calls, [ToolArguments::Json(expect), ToolArguments::Json(json!({}))]);
    assert_eq!(reply.usage, TokenUsage { input: 10, output: 5, ..TokenUsage::default() });
    assert_eq!(reply.stop, StopReason::EndOfTurn);
}

#[tokio::test]
async fn the_next_turn_follows_from_the_conversation_alone() {
    let model = scripted(BOSS);
    let mut messages = vec![ChatMessage::user("go")];
    let first = reply(&model, "a", &messages).await;
    messages.extend([assistant_message(first.clone()), results(&first, "agent:2 was started")]);
    for _ in 0..3 {
        let waiting = reply(&model, "a", &messages).await;
        assert_eq!(waiting.message.calls().next().map(|call| &*call.name), Some("wait_tasks"));
        assert_eq!(
            waiting,
            reply(&scripted(BOSS), "a", &messages).await,
            "the same turn from another model"
        );
        messages.extend([assistant_message(waiting.clone()), results(&waiting, "still running")]);
    }
    messages.push(ChatMessage::user("agent:2 succeeded: found"));
    let last = reply(&model, "a", &messages).await;
    assert_eq!(last.message.text(), "It is done.");
    assert_eq!(last.usage.cached, 20);
}

#[tokio::test]
async fn calls_have_distinct_ids() {
    let model = scripted(BOSS);
    let mut messages = vec![ChatMessage::user("go")];
    let mut ids = std::collections::HashSet::new();
    for _ in 0..4 {
        let next = reply(&model, "a", &messages).await;
        for call in next.message.calls() {
            assert!(ids.insert(call.id.clone()), "{} twice", call.id);
        }
        messages.extend([assistant_message(next.clone()), results(&next, "running")]);
    }
    assert_eq!(ids.len(), 5);
}

#[tokio::test]
async fn a_conversation_without_its_beginning_continues() {
    let model = scripted("agent a\nturn\nsay one\nturn\ncall x\nturn\nsay three");
    let second = reply(&model, "a", &[assistant_message(reply(&model, "a", &[]).await)]).await;
    let messages =
        [ChatMessage::user("a summary"), assistant_message(second.clone()), results(&second, "ok")];
    assert_eq!(reply_text(&model, &messages).await, "one", "a missing reply counts as unspoken");
    let messages = [
        assistant_message(second.clone()),
        results(&second, "ok"),
        assistant_message(crate::testing::reply("one")),
    ];
    assert_eq!(reply_text(&model, &messages).await, "three");
}

#[tokio::test]
async fn equal_turns_are_played_in_order() {
    let model = scripted("agent a\nturn\nsay ok\nturn\nsay ok\nturn\nsay end");
    let mut messages = vec![];
    for expect in ["ok", "ok", "end"] {
        let next = reply(&model, "a", &messages).await;
        assert_eq!(next.message.text(), expect);
        messages.extend([assistant_message(next), ChatMessage::user("go on")]);
    }
}

#[tokio::test]
async fn a_section_is_found_by_name_before_pattern() {
    let model = scripted(
        "agent *\nturn\nsay any\nagent worker-*\nturn\nsay w\nagent worker-1\nturn\nsay one",
    );
    for (agent, expect) in [("worker-1", "one"), ("worker-2", "w"), ("x", "any")] {
        assert_eq!(reply(&model, agent, &[]).await.message.text(), expect, "{agent}");
    }
}

#[tokio::test]
async fn a_script_without_a_matching_turn_is_an_error() {
    let model = scripted("agent a\nturn\nwhen sun\nsay yes");
    let parts = parts(&model, "a", &[ChatMessage::user("rain")]).await;
    let [Err(error)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!(error.kind, ModelErrorKind::Invalid);
    assert_eq!(
        error.message,
        "story: `agent a` has no further turn that matches the conversation of \"a\" after 0 replies; \
         the last input is \"rain\""
    );
    let parts = self::parts(&model, "b", &[]).await;
    let expect = "story: the script has no section for \"b\"; add `agent b` or `agent *`";
    assert_eq!(parts[0].as_ref().unwrap_err().message, expect);
}

#[tokio::test]
async fn faults_are_played_before_the_reply() {
    let model = scripted(
        "agent *\nturn\n  fault 429 after 2s x2\n  fault 500\n  fault garbage\n  say at last",
    );
    for agent in ["a", "b"] {
        let mut kinds = Vec::new();
        for _ in 0..4 {
            let error = parts(&model, agent, &[]).await.remove(0).unwrap_err();
            kinds.push((error.kind, error.status, error.retry_after));
        }
        let limited = (ModelErrorKind::RateLimited, Some(429), Some(Duration::from_secs(2)));
        let server = (ModelErrorKind::Server, Some(500), None);
        assert_eq!(kinds, [limited, limited, server, (ModelErrorKind::Garbage, None, None)]);
        assert_eq!(reply(&model, agent, &[]).await.message.text(), "at last");
    }
}

#[tokio::test]
async fn a_cut_reply_ends_after_its_number_of_words() {
    let model = scripted("agent a\nturn\n  fault cut 2\n  say one two three");
    let cut = parts(&model, "a", &[]).await;
    let words: Vec<_> = cut[..2].iter().map(|part| part.clone().unwrap()).collect();
    assert_eq!(words, [ReplyPart::Text("one ".to_owned()), ReplyPart::Text("two ".to_owned())]);
    assert_eq!(cut[2].as_ref().unwrap_err().kind, ModelErrorKind::Connection);
    assert_eq!(reply_text(&model, &[]).await, "one two three");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_can_be_dropped() {
    let model = scripted("agent a\nturn\n  fault hang\n  say now");
    let hung = tokio::time::timeout(Duration::from_secs(3600), parts(&model, "a", &[])).await;
    assert!(hung.is_err());
    assert_eq!(reply_text(&model, &[]).await, "now");
}

#[tokio::test(start_paused = true)]
async fn delays_and_pace_take_time() {
    let model = scripted("agent a\nturn\n  delay 5s\n  pace 1s\n  say one two three");
    let started = tokio::time::Instant::now();
    let parts = parts(&model, "a", &[]).await;
    assert_eq!(started.elapsed().as_secs(), 8);
    assert_eq!(parts.len(), 4);
}

#[tokio::test]
async fn replies_may_be_truncated_or_malformed() {
    let model = scripted("agent a\nturn\nsay half a\nstop length\nturn\nmalformed x {\"a\": ");
    let first = reply(&model, "a", &[]).await;
    assert_eq!(first.stop, StopReason::Length);
    let second = reply(&model, "a", &[assistant_message(first)]).await;
    let call = second.message.calls().next().unwrap();
    assert!(matches!(call.arguments, ToolArguments::Malformed { .. }));
}

#[tokio::test]
async fn with_retry_faults_become_restarts() {
    let model = scripted("agent a\nturn\n  fault 503 x2\n  fault cut 1\n  say one two");
    let options = crate::RetryOptions { min_pause: Duration::ZERO, ..Default::default() };
    let retry = crate::RetryModel::wrap(Arc::new(model), options);
    let parts: Vec<_> = retry.call(Arc::new(request_with("a", vec![]))).collect().await;
    assert!(matches!(parts[1], Ok(ReplyPart::Restarted { .. })), "{parts:?}");
    assert!(matches!(parts.last(), Some(Ok(ReplyPart::Finished(_)))));
}

#[test]
fn the_example_in_the_guide_parses() {
    let docs = include_str!("../../../../docs/scripted-model.md");
    let example = docs.split("```script\n").nth(1).unwrap().split("```").next().unwrap();
    Script::parse("docs/scripted-model.md", example).unwrap();
}

#[test]
fn a_script_is_loaded_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("story.script");
    let error = Script::load(&path).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
    std::fs::write(&path, "agent a\nturn\nsay hi").unwrap();
    assert!(Script::load(&path).unwrap().find_section("a").is_some());
}
