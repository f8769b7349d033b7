//! Agents that delegate.

use crate::support::{playing, run, spawn, transcript, words};

#[tokio::test(start_paused = true)]
async fn a_sub_agents_result_comes_by_itself() {
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
    assert_eq!(words(&boss.wait().await.unwrap()), "Found: three mushrooms.");
    let said = transcript(&runtime, &boss).await;
    assert!(
        said.contains("<result task=\"agent:2\" name=\"North\" outcome=\"succeeded\">"),
        "{said}"
    );
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
    assert_eq!(words(&run(&runtime, "Boss", "look").await), "There is nothing.");
}

#[tokio::test(start_paused = true)]
async fn several_are_waited_for_and_a_question_is_answered() {
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
    let ending = boss.wait().await.unwrap();
    assert_eq!(ending.outcome.word(), "succeeded", "{}", transcript(&runtime, &boss).await);
    assert_eq!(words(&ending), "Both are back.");
}
