//! Agents that run commands: real ones.

use std::time::Duration;

use brigade_runtime::{ProcessOptions, Runtime, Session};
use tempfile::TempDir;

use crate::support::{script, words};

async fn playing(text: &str) -> (TempDir, Session) {
    let folder = TempDir::new().unwrap();
    let options = ProcessOptions::new(folder.path());
    let builder = Runtime::builder().processes(options).agents(script(text));
    let runtime = builder.start().await.unwrap();
    (folder, runtime.session("test").await.unwrap())
}

async fn run(session: &Session) -> String {
    let agent = session.spawn(brigade_runtime::NewTask::agent("go").name("A")).await.unwrap();
    let patience = Duration::from_secs(60);
    let ending = agent.wait_within(patience).await.unwrap();
    let said = session.transcript((&agent).into()).await.unwrap().unwrap();
    words(&ending.unwrap_or_else(|| panic!("it did not end:\n{said}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_foreground_returns_its_output() {
    let text = "agent A
turn
  call run_process {\"command\": \"echo soup; exit 3\"}
turn
  when failed (exit code 3)
  say It failed, as it should.
";
    let (_folder, session) = playing(text).await;
    assert_eq!(run(&session).await, "It failed, as it should.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_command_moves_to_the_background_and_is_heard_of() {
    let text = "agent A
turn
  call run_process {\"command\": \"sleep 2; echo late\", \"timeout_secs\": 1}
turn
  when goes on in the background as process:2
  say I wait for it.
turn
  when late
  say It came.
";
    let (_folder, session) = playing(text).await;
    assert_eq!(run(&session).await, "It came.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_written_to_read_and_stopped() {
    let text = "agent A
turn
  call run_process {\"command\": \"while read line; do echo got $line; done; sleep 100\", \"name\": \"Echo\", \"background\": true}
turn
  when process:2 has started
  call send_message {\"to\": \"Echo\", \"message\": \"hello\"}
turn
  when on its way
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
    let (_folder, session) = playing(text).await;
    assert_eq!(run(&session).await, "It is gone.");
}
