//! Agents that run real processes.

use std::time::Duration;

use brigade_agent::permission::PermissionRules;
use brigade_model::address::TaskRef;
use brigade_model::task::StoredTask;
use brigade_runtime::{NewTask, ProcessOptions, Runtime, Session};
use tempfile::TempDir;

use crate::support::{FunctionTool, everything, final_message, script};

async fn playing(text: &str) -> (TempDir, Runtime, Session) {
    let dir = TempDir::new().unwrap();
    let options = ProcessOptions::new(dir.path());
    let builder = Runtime::builder().processes(options).agents(script(text));
    let runtime = builder.start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    (dir, runtime, session)
}

async fn run(session: &Session) -> String {
    let agent = session.spawn(NewTask::agent("go").name("A")).await.unwrap();
    let timeout = Duration::from_secs(60);
    let run_result = agent.wait_within(timeout).await.unwrap();
    let transcript_text = session.transcript((&agent).into()).await.unwrap().unwrap();
    final_message(&run_result.unwrap_or_else(|| panic!("it did not end:\n{transcript_text}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_in_the_foreground_returns_its_output() {
    let text = "agent A
turn
  call run_process {\"command\": \"echo soup; exit 3\"}
turn
  when failed (exit code 3)
  say It failed, as it should.
";
    let (_folder, _runtime, session) = playing(text).await;
    assert_eq!(run(&session).await, "It failed, as it should.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_process_moves_to_the_background_and_its_result_is_delivered() {
    let text = "agent A
turn
  call run_process {\"command\": \"sleep 2; echo late\", \"wait_secs\": 1}
turn
  when process:2 did not end within 1 second
  say I wait for it.
turn
  when late
  say It came.
";
    let (_folder, _runtime, session) = playing(text).await;
    assert_eq!(run(&session).await, "It came.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gets_input_is_read_and_stopped() {
    let text = "agent A
turn
  call run_process {\"command\": \"while read line; do echo got $line; done; sleep 100\", \"name\": \"Echo\", \"background\": true}
turn
  when process:2 has started
  call send_message {\"to\": \"Echo\", \"message\": \"hello\"}
turn
  when was sent
  call run_process {\"command\": \"sleep 1\"}
turn
  when exit code 0
  call read_output {\"task\": \"Echo\", \"pattern\": \"^got\"}
turn
  when got hello
  call stop_task {\"task\": \"Echo\", \"reason\": \"enough\"}
turn
  when cancelled
  say It is gone.
turn
  when being stopped
  say Wait for its end.
";
    let (_folder, _runtime, session) = playing(text).await;
    assert_eq!(run(&session).await, "It is gone.");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_utf8_is_rendered() {
    let text = "agent A
turn
  call run_process {\"command\": \"printf 'soup \\\\377\\\\376 ready'\"}
turn
  when soup
  when ready
  call read_output {\"task\": \"process:2\"}
turn
  when soup
  when ready
  say Odd soup.
";
    let (_folder, _runtime, session) = playing(text).await;
    assert_eq!(run(&session).await, "Odd soup.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_parent_reaches_its_processes() {
    let text = "agent A
turn
  call run_process {\"command\": \"sleep 1000\", \"background\": true}
turn
  say I wait for it.
";
    let (_folder, runtime, session) = playing(text).await;
    let agent = session.spawn(NewTask::agent("go").name("A")).await.unwrap();
    while agent.get().await.unwrap().state.label() != "waiting" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    agent.stop(None).await.unwrap();
    assert_eq!(agent.wait().await.unwrap().outcome.to_string(), "cancelled");
    let all = everything(&runtime, &session).await;
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|StoredTask { row, .. }| row.state.label() == "cancelled"), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_outlives_its_agent_starts_no_agent_with_more_permissions() {
    let text = "agent A
turn
  call run_process {\"command\": \"sleep 1000\", \"background\": true, \"keep\": true}
turn
  say I leave it.

agent B
turn
  call bake {}
turn
  when no tool \"bake\"
  say I may not.
";
    let dir = TempDir::new().unwrap();
    let bake = || async { Ok(brigade_agent::ToolReply::text("baked")) };
    let options =
        script(text).tool(FunctionTool::new("bake", brigade_agent::ToolEffect::Pure, bake));
    let processes = ProcessOptions::new(dir.path());
    let runtime = Runtime::builder().processes(processes).agents(options).start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    let rules = PermissionRules { deny: vec!["bake".parse().unwrap()], ..PermissionRules::all() };
    let agent = session.spawn(NewTask::agent("go").name("A").permissions(rules)).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "I leave it.");
    let StoredTask { no, row } =
        session.get("process:2".parse::<TaskRef>().unwrap()).await.unwrap();
    assert_eq!((row.state.label(), row.owner.task()), ("running", None), "it is the session's now");
    let id = brigade_runtime::TaskId { session: session.id(), no };
    let inside = runtime.task_session(id, row.attempt).await.unwrap();
    let child = inside.spawn(NewTask::agent("go").name("B")).await.unwrap();
    let operator = runtime.operator_session(session.id()).await.unwrap();
    let mut run_results = operator.wait_all([child.no()]).await.unwrap();
    assert_eq!(final_message(&run_results.pop().unwrap()), "I may not.");
    operator.stop(no, None).await.unwrap();
    // The directory must not be removed before the process has ended.
    operator.wait_all([no]).await.unwrap();
}
