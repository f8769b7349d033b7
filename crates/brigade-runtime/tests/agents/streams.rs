//! Streams of agents: their text, usage, approvals and client tool calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use brigade_agent::permission::PermissionRules;
use brigade_agent::{AgentOutput, AgentOverrides, ClientTool, ToolEffect, ToolReply};
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::approval::ApprovalVerdict;
use brigade_model::limits::Usage;
use brigade_model::refusal::Refusal;
use brigade_runtime::{AgentOptions, NewTask, OneModel, PendingApproval, TaskHandle};
use brigade_testkit::TestRuntime;
use futures_util::FutureExt;
use futures_util::{StreamExt, TryStreamExt};

use crate::support::*;

const STEPS: &str = "agent A
turn
  say I look first.
  call look {}
turn
  when leeks
  say Leek soup.
";

fn look() -> FunctionTool {
    FunctionTool::new("look", ToolEffect::Pure, || async { Ok(ToolReply::text("leeks")) })
}

#[tokio::test(start_paused = true)]
async fn the_text_of_an_agent_comes_with_its_steps_and_tool_calls() {
    let options = script(STEPS).tool(look());
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "cook").await;
    let outputs: Vec<AgentOutput> = agent.text().try_collect().await.unwrap();
    let second = outputs.iter().position(|it| *it == AgentOutput::Step { step: 2 }).unwrap();
    let (first, second) = outputs.split_at(second);
    assert_eq!(first[0], AgentOutput::Step { step: 1 });
    assert_eq!(text_of(first), "I look first.");
    assert_eq!(text_of(second), "Leek soup.");
    let [.., call, result] = first else { panic!("{first:?}") };
    let AgentOutput::ToolCall { id, name, arguments } = call else { panic!("{call:?}") };
    assert_eq!((&**name, &**arguments), ("look", "{}"));
    let (id, name) = (id.clone(), name.clone());
    let text = "leeks".into();
    assert_eq!(*result, AgentOutput::ToolResult { id, name, text, failed: false });
}

#[tokio::test(start_paused = true)]
async fn a_reader_after_the_end_reads_each_run_from_the_journal() {
    let options = script(STEPS).tool(look());
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let agent = spawn(&runtime, "A", "cook").await;
    let live: Vec<AgentOutput> = agent.text().try_collect().await.unwrap();
    agent.wait().await.unwrap();
    let stored: Vec<AgentOutput> = agent.text().try_collect().await.unwrap();
    assert_eq!(text_of(&stored), text_of(&live));
    let others = |outputs: &[AgentOutput]| -> Vec<AgentOutput> {
        outputs.iter().filter(|output| output.text().is_none()).cloned().collect()
    };
    assert_eq!(others(&stored), others(&live));
}

#[tokio::test(start_paused = true)]
async fn a_stream_dropped_half_way_can_be_opened_again_and_a_shutdown_ends_it() {
    let (runtime, agent, go) = agent_with_a_slow_tool(STEPS).await;
    let mut output = agent.text();
    assert_eq!(output.next().await.unwrap().unwrap(), AgentOutput::Step { step: 1 });
    drop(output);
    until_idle(&runtime).await;
    // The agent still runs, so its output is there from the start.
    let mut again = agent.text();
    assert_eq!(again.next().await.unwrap().unwrap(), AgentOutput::Step { step: 1 });
    let first_step = again.by_ref().take_while(|output| {
        let is_call = matches!(output, Ok(AgentOutput::ToolCall { .. }));
        std::future::ready(!is_call)
    });
    let first_step: Vec<AgentOutput> = first_step.try_collect().await.unwrap();
    assert_eq!(text_of(&first_step), "I look first.");
    go.notify_one();
    let following: Vec<AgentOutput> = again.try_collect().await.unwrap();
    assert_eq!(text_of(&following), "Leek soup.");

    let (runtime, agent, _go) = agent_with_a_slow_tool(STEPS).await;
    let output = agent.text();
    until_idle(&runtime).await;
    let shut_down = runtime.runtime.clone();
    let (outputs, stored) = tokio::join!(output.try_collect::<Vec<_>>(), shut_down.shutdown());
    stored.unwrap();
    assert_eq!(text_of(&outputs.unwrap()), "I look first.");
}

#[tokio::test(start_paused = true)]
async fn the_usage_of_an_agent_and_of_its_descendants_is_told_apart() {
    let text = "agent Boss\nusage input=1000 output=100\nturn\n call spawn_agent {\"name\": \"North\", \"task\": \
                \"Look.\", \"wait\": true}\nturn\n say Done.\nagent North\nusage input=10 output=1\nturn\n say \
                Seen.\n";
    let runtime = playing(text).await;
    let agent = spawn(&runtime, "Boss", "go").await;
    agent.wait().await.unwrap();
    let usage = agent.usage().await.unwrap();
    assert_eq!(usage.own.tokens, 2200);
    assert_eq!(usage.descendants.tokens, 11);
    assert_eq!(usage.total().tokens, 2211);
    assert_eq!((usage.reserved, usage.unknown), (Usage::NONE, Usage::NONE));
}

const ASKING: &str = "agent *
turn
  call look {}
turn
  when leeks
  say Looked.
turn
  say Denied.
";

fn asking() -> PermissionRules {
    PermissionRules { ask: vec!["look".parse().unwrap()], ..PermissionRules::all() }
}

async fn spawn_asking(runtime: &TestRuntime, name: &str) -> TaskHandle<String> {
    let task = NewTask::agent("go").name(name).permissions(asking());
    runtime.session.spawn(task).await.unwrap()
}

async fn asking_runtime() -> TestRuntime {
    let options = script(ASKING).tool(look());
    TestRuntime::new(|builder| builder.agents(options)).await
}

#[tokio::test(start_paused = true)]
async fn approvals_that_are_pending_and_later_ones_are_decided_once_each() {
    let runtime = asking_runtime().await;
    let before = spawn_asking(&runtime, "Before").await;
    until_idle(&runtime).await;
    assert_eq!(runtime.session.approvals().len(), 1);
    let shown = Arc::new(Mutex::new(Vec::new()));
    let seen = shown.clone();
    let guard = runtime.session.on_approval(move |waiting: PendingApproval| {
        seen.lock().unwrap().push(waiting.task);
        async move {
            Ok::<_, Refusal>(match waiting.row.name.as_ref().map(|name| name.as_str()) {
                Some("Denied") => ApprovalVerdict::Deny { reason: "not today".into() },
                _ => ApprovalVerdict::AllowOnce,
            })
        }
    });
    assert_eq!(before.result().await.unwrap(), "Looked.");
    let later = spawn_asking(&runtime, "Later").await;
    let denied = spawn_asking(&runtime, "Denied").await;
    assert_eq!(later.result().await.unwrap(), "Looked.");
    assert_eq!(denied.result().await.unwrap(), "Denied.");
    let mut numbers = shown.lock().unwrap().clone();
    numbers.sort();
    assert_eq!(numbers, [before.no(), later.no(), denied.no()]);
    drop(guard);
    spawn_asking(&runtime, "After").await;
    until_idle(&runtime).await;
    assert_eq!(runtime.session.approvals().len(), 1, "the function is not registered any more");
    assert_eq!(shown.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_function_that_fails_or_panics_leaves_the_approval_pending() {
    let runtime = asking_runtime().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let _guard = runtime.session.on_approval(move |waiting: PendingApproval| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match waiting.row.name.as_ref().map(|name| name.as_str()) {
                Some("Fails") => Err("no idea"),
                Some("Panics") => panic!("on purpose"),
                _ => Ok(ApprovalVerdict::AllowOnce),
            }
        }
    });
    let fails = spawn_asking(&runtime, "Fails").await;
    let panics = spawn_asking(&runtime, "Panics").await;
    let works = spawn_asking(&runtime, "Works").await;
    assert_eq!(works.result().await.unwrap(), "Looked.");
    until_idle(&runtime).await;
    let pending: Vec<_> = runtime.session.approvals().iter().map(|it| it.task).collect();
    assert_eq!(pending, [fails.no(), panics.no()]);
    assert_eq!(calls.load(Ordering::SeqCst), 3, "each is asked about once");
    for waiting in runtime.session.approvals() {
        let verdict = ApprovalVerdict::AllowOnce;
        let session = &runtime.session;
        let digest = waiting.digest();
        session.approve_shown(waiting.task, Some(waiting.call), digest, verdict).await.unwrap();
    }
    assert_eq!(fails.result().await.unwrap(), "Looked.");
    assert_eq!(panics.result().await.unwrap(), "Looked.");
}

#[tokio::test(start_paused = true)]
async fn the_approval_stream_leaves_out_what_was_decided_before_it_was_read() {
    let runtime = asking_runtime().await;
    let mut approvals = runtime.session.approval_stream();
    let first = spawn_asking(&runtime, "First").await;
    let second = spawn_asking(&runtime, "Second").await;
    until_idle(&runtime).await;
    runtime.session.approve(&first, None, ApprovalVerdict::AllowOnce).await.unwrap();
    let waiting = approvals.next().await.unwrap().unwrap();
    assert_eq!(waiting.task, second.no());
    // Another stream is independent of this one, and starts with what is pending.
    drop(approvals);
    let mut again = runtime.session.approval_stream();
    assert_eq!(again.next().await.unwrap().unwrap().task, second.no());
    runtime.runtime.clone().shutdown().await.unwrap();
    assert!(again.next().await.is_none());
}

fn with_client_tool() -> AgentOverrides {
    let parameters = serde_json::json!({ "type": "object" });
    let tool = ClientTool { name: "open".into(), description: "Opens.".into(), parameters };
    AgentOverrides { client_tools: vec![tool], ..AgentOverrides::default() }
}

#[tokio::test(start_paused = true)]
async fn client_tool_calls_that_are_pending_and_later_ones_are_executed() {
    let text =
        "agent *\nturn\n call open {\"file\": \"soup.md\"}\nturn\n when is open\n say Read.\n";
    let model = ScriptedModel::new(Script::parse("test", text).unwrap());
    let options = AgentOptions::new(OneModel(Arc::new(model))).model("scripted");
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let spawn = |name: &'static str| {
        let task = NewTask::agent("show it").name(name).overrides(&with_client_tool());
        runtime.session.spawn(task)
    };
    let before = spawn("Before").await.unwrap();
    until_idle(&runtime).await;
    let mut calls = runtime.session.client_calls();
    assert_eq!(calls.next().await.unwrap().unwrap().task, before.no());
    // Another client sees the task, but must not execute its tools.
    let other = runtime.runtime.client_session(runtime.session.id(), "other").await.unwrap();
    assert_eq!(other.list().len(), 1);
    assert!(other.client_calls().next().now_or_never().is_none(), "it waits");
    let _guard = runtime.session.on_client_call(|waiting| async move {
        let file = waiting.request.arguments["file"].as_str().unwrap_or_default().to_owned();
        Ok::<_, Refusal>(format!("{file} is open"))
    });
    assert_eq!(before.result().await.unwrap(), "Read.");
    let later = spawn("Later").await.unwrap();
    assert_eq!(later.result().await.unwrap(), "Read.");
    runtime.runtime.clone().shutdown().await.unwrap();
    assert!(calls.next().await.is_none(), "the later call has its result already");
}
