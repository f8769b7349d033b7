//! Agents that delegate.

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::{ToolEffect, ToolReply};
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::limits::Limits;
use brigade_model::task::StoredTask;
use brigade_runtime::{AgentOptions, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::{
    FunctionTool, Narrow, everything, final_message, playing, run, script, spawn, transcript,
};

#[tokio::test(start_paused = true)]
async fn the_result_of_a_sub_agent_is_delivered_without_a_wait() {
    let runtime = playing(
        "agent Boss
turn
  say I send somebody.
  call spawn_agent {\"name\": \"North\", \"task\": \"Look in the north.\"}
turn
  when has started
  say On its way.
turn
  when three mushrooms
  say Found: three mushrooms.

agent North
turn
  delay 5s
  say North: three mushrooms.
",
    )
    .await;
    let boss = spawn(&runtime, "Boss", "find mushrooms").await;
    assert_eq!(final_message(&boss.wait().await.unwrap()), "Found: three mushrooms.");
    let transcript_text = transcript(&runtime, &boss).await;
    assert!(
        transcript_text.contains("<result task=\"agent:2\" name=\"North\" outcome=\"succeeded\">"),
        "{transcript_text}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_slot_of_the_runtime_is_enough_for_agents_that_await_sub_agents() {
    let options = script(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look in the north.\"}
  call spawn_agent {\"name\": \"South\", \"task\": \"Look in the south.\", \"wait\": true}
turn
  when two pears
  say I wait for North.
turn
  when a plum
  say Found fruit.

agent North
turn
  call spawn_agent {\"name\": \"Helper\", \"task\": \"Look up.\", \"wait\": true}
turn
  when a plum
  say North: a plum.

agent South
turn
  delay 5s
  say South: two pears.

agent Helper
turn
  delay 5s
  say Helper: a plum.
",
    );
    let runtime = TestRuntime::new(|builder| builder.agents(options).max_running(1)).await;
    let boss = spawn(&runtime, "Boss", "find fruit").await;
    let result = boss.wait_within(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(final_message(&result.expect("no agent blocks another")), "Found fruit.");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_sub_agent_returns_its_result() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\", \"wait\": true}
turn
  when nothing here
  say There is nothing.

agent North
turn
  delay 5s
  say nothing here
",
    )
    .await;
    assert_eq!(final_message(&run(&runtime, "Boss", "look").await), "There is nothing.");
}

#[tokio::test(start_paused = true)]
async fn several_sub_agents_are_waited_for_and_a_question_is_answered() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
  call spawn_agent {\"name\": \"South\", \"task\": \"Look.\"}
turn
  when agent:3 has started
  call wait_tasks {\"mode\": \"all\"}
turn
  when Which side
  call send_message {\"to\": \"North\", \"message\": \"The left one.\"}
turn
  when is answered
  call wait_tasks {\"mode\": \"all\"}
turn
  when left it is
  say Both are back.

agent North
turn
  call ask_parent {\"question\": \"Which side?\"}
turn
  when The answer: The left one.
  say left it is

agent South
turn
  delay 60s
  say right
",
    )
    .await;
    let boss = spawn(&runtime, "Boss", "look").await;
    let run_result = boss.wait().await.unwrap();
    assert_eq!(run_result.outcome.label(), "succeeded", "{}", transcript(&runtime, &boss).await);
    assert_eq!(final_message(&run_result), "Both are back.");
}

#[tokio::test(start_paused = true)]
async fn the_same_key_is_the_same_sub_agent_and_another_request_a_conflict() {
    let spawn_it = "call spawn_agent {\"name\": \"North\", \"task\": \"Look.\", \"key\": \"north\", \"wait\": true}";
    let runtime = playing(&format!(
        "agent Boss
turn
  {spawn_it}
turn
  when three mushrooms
  say Again.
  {spawn_it}
turn
  when three mushrooms
  call spawn_agent {{\"task\": \"Dig.\", \"key\": \"north\"}}
turn
  when conflict: the key \"north\" stands for task 2 with another request
  say One helper.

agent North
turn
  say three mushrooms
"
    ))
    .await;
    let boss = spawn(&runtime, "Boss", "look").await;
    assert_eq!(final_message(&boss.wait().await.unwrap()), "One helper.");
    let all = everything(&runtime.runtime, &runtime.session).await;
    assert_eq!(all.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_long_result_is_truncated_with_a_marker_and_can_be_read_on() {
    let long = format!("beginning {} the very end", "soup ".repeat(4_000));
    let runtime = playing(&format!(
        "agent Boss
turn
  call spawn_agent {{\"name\": \"North\", \"task\": \"Look.\", \"wait\": true}}
turn
  when beginning
  when Read on with read_output, task \"agent:2\"
  call read_output {{\"task\": \"agent:2\", \"max_bytes\": 50000, \"from\": 0}}
turn
  when the very end
  say I have read it.

agent North
turn
  say {long}
"
    ))
    .await;
    let boss = spawn(&runtime, "Boss", "look").await;
    assert_eq!(final_message(&boss.wait().await.unwrap()), "I have read it.");
    let transcript_text = transcript(&runtime, &boss).await;
    let mark = format!("[The result is truncated: 8192 of {} bytes are shown.", long.len());
    assert!(transcript_text.contains(&mark), "{mark}");
}

#[tokio::test(start_paused = true)]
async fn tasks_are_addressed_after_the_transcript_was_compacted() {
    let text = "agent Boss
turn
  when about to become too long
  say I have a helper, North.
turn
  when I have a helper, North.
  call list_tasks {}
turn
  when agent:2 \"North\"
  call send_message {\"to\": \"agent:2\", \"message\": \"Enough.\"}
turn
  when was sent
  say I wait.
turn
  when Stopped digging
  say It heard me.
turn
  when has started
  call big {}
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Dig.\"}

agent North
turn
  when Enough.
  say Stopped digging.
turn
  delay 60s
  call list_tasks {}
";
    let model = Arc::new(ScriptedModel::new(Script::parse("test", text).unwrap()));
    let big = FunctionTool::new("big", ToolEffect::Pure, || async {
        Ok(ToolReply::text("x".repeat(30_000)))
    });
    let options = AgentOptions::new(Narrow { model, window: 10_000 }).model("narrow").tool(big);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let boss = spawn(&runtime, "Boss", "dig").await;
    let run_result = boss.wait().await.unwrap();
    let transcript_text = transcript(&runtime, &boss).await;
    assert_eq!(
        run_result.outcome.label(),
        "succeeded",
        "{}\n{transcript_text}",
        run_result.outcome
    );
    assert_eq!(final_message(&run_result), "It heard me.");
    assert!(transcript_text.contains("\n[summary]\n"), "{transcript_text}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_the_parent_reaches_its_sub_agents() {
    let runtime = playing(
        "agent *
turn
  call spawn_agent {\"task\": \"deeper\"}
turn
  fault hang always
  say Never.
",
    )
    .await;
    let limits = Limits { depth: Some(3), ..Limits::default() };
    let task = NewTask::agent("dig").name("Boss").limits(limits);
    let boss = runtime.session.spawn(task).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(boss.stop(Some("enough")).await.unwrap().tasks, 4);
    assert_eq!(boss.wait().await.unwrap().outcome.label(), "cancelled");
    let all = everything(&runtime.runtime, &runtime.session).await;
    let labels: Vec<&str> = all.iter().map(|StoredTask { row, .. }| row.state.label()).collect();
    assert_eq!(labels, ["cancelled"; 4]);
}
