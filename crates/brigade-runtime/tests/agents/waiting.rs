//! Waits of agents: their results, their refusals, and their memory.

use std::time::Duration;

use brigade_model::command::GivenAnswer;
use brigade_model::ids::Millis;
use brigade_model::json::Json;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::{NewTask, Runtime};
use brigade_store::{MemoryStore, Retention};
use brigade_testkit::TestRuntime;
use tokio::time::Instant;

use crate::support::{final_message, playing, reply, run, script, spawn, transcript, until_idle};

#[tokio::test(start_paused = true)]
async fn a_wait_for_any_lists_the_running_tasks() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
  call spawn_agent {\"name\": \"South\", \"task\": \"Look.\"}
turn
  when has started
  call wait_tasks {}
turn
  when mushrooms
  when Still running:
  when agent:3 \"South\" running
  call wait_tasks {}
turn
  when plums
  say Both.

agent North
turn
  delay 1s
  say mushrooms

agent South
turn
  delay 100s
  say plums
",
    )
    .await;
    assert_eq!(final_message(&run(&runtime, "Boss", "look").await), "Both.");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_lists_the_tasks_and_takes_nothing() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
turn
  when has started
  call wait_tasks {\"wait_secs\": 0}
turn
  when The time is up. No result was taken.
  when agent:2 \"North\" running
  call wait_tasks {}
turn
  when mushrooms
  say Found.

agent North
turn
  delay 100s
  say mushrooms
",
    )
    .await;
    let before = Instant::now();
    assert_eq!(final_message(&run(&runtime, "Boss", "look").await), "Found.");
    assert_eq!(before.elapsed().as_secs(), 100, "0 returns at once, and the result came after");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_no_number_of_seconds_is_refused() {
    let runtime = playing(
        "agent A
turn
  call wait_tasks {\"wait_secs\": -1}
  call wait_tasks {\"wait_secs\": 0.5}
  call wait_tasks {\"wait_secs\": 1e12}
  call wait_tasks {\"wait_secs\": \"soon\"}
turn
  when is negative
  when is not whole
  when is not a sensible number
  when the argument `wait_secs`
  say Refused.
",
    )
    .await;
    assert_eq!(final_message(&run(&runtime, "A", "wait").await), "Refused.");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_others_cannot_be_waited_for_stopped_or_written_to() {
    let runtime = playing(
        "agent Other
turn
  delay 50s
  say Untouched.

agent A
turn
  call wait_tasks {\"tasks\": [\"agent:99\"]}
  call wait_tasks {\"tasks\": [\"agent:1\"]}
  call stop_task {\"task\": \"agent:1\"}
  call send_message {\"to\": \"agent:1\", \"message\": \"hello\"}
  call read_output {\"task\": \"agent:1\"}
turn
  say Tried.
",
    )
    .await;
    let other = spawn(&runtime, "Other", "work").await;
    let agent = spawn(&runtime, "A", "try").await;
    agent.wait().await.unwrap();
    let transcript_text = transcript(&runtime, &agent).await;
    assert!(transcript_text.contains("not found: there is no task 99"), "{transcript_text}");
    assert_eq!(
        transcript_text.matches("forbidden: agent:1 is not yours").count(),
        4,
        "{transcript_text}"
    );
    assert_eq!(final_message(&other.wait().await.unwrap()), "Untouched.");
}

#[tokio::test(start_paused = true)]
async fn inbox_items_of_one_step_are_delivered_together() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
  call spawn_agent {\"name\": \"South\", \"task\": \"Look.\"}
turn
  when has started
  delay 60s
  call list_tasks {}
turn
  when north
  when south
  say Both.

agent *
turn
  when north
  say north
turn
  delay 5s
  say north and south
",
    )
    .await;
    let boss = spawn(&runtime, "Boss", "look").await;
    assert_eq!(final_message(&boss.wait().await.unwrap()), "Both.");
    let transcript_text = transcript(&runtime, &boss).await;
    assert_eq!(transcript_text.matches("\n[inbox]\n").count(), 1, "{transcript_text}");
    assert_eq!(transcript_text.matches("<result ").count(), 2, "{transcript_text}");
}

#[tokio::test(start_paused = true)]
async fn collected_results_are_delivered_though_their_task_was_pruned() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
turn
  when has started
  call wait_tasks {\"tasks\": [\"North\"]}
  call ask_parent {\"question\": \"Anything else?\"}
turn
  when three mushrooms
  say Found three.

agent North
turn
  delay 5s
  say three mushrooms
",
    )
    .await;
    let boss = spawn(&runtime, "Boss", "look").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let retention = Retention { ended: Millis(1), events: Millis(u64::MAX) };
    assert_eq!(runtime.runtime.prune(&retention).await.unwrap().tasks, 1, "North is gone");
    runtime.session.answer(boss.no(), reply("No.")).await.unwrap();
    assert_eq!(final_message(&boss.wait().await.unwrap()), "Found three.");
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_after_a_restart() {
    let text = "agent A
turn
  call ask_parent {\"question\": \"Which side?\"}
turn
  when The answer: left
  say Left it is.
";
    let store = std::sync::Arc::new(MemoryStore::new());
    let first = TestRuntime::on_store(store.clone(), |builder| builder.agents(script(text))).await;
    let no = spawn(&first, "A", "choose").await.no();
    until_idle(&first).await;
    let TestRuntime { runtime, session, .. } = first;
    assert_eq!(session.get(no).await.unwrap().row.state.label(), "waiting");
    drop(session);
    runtime.shutdown().await.unwrap();
    let second = TestRuntime::on_store(store, |builder| builder.agents(script(text))).await;
    second.session.answer(no, reply("left")).await.unwrap();
    let run_results = second.session.wait_all([no]).await.unwrap();
    assert_eq!(final_message(&run_results[0]), "Left it is.");
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_once() {
    let text = "agent A
turn
  call ask_parent {\"question\": \"Which side?\"}
turn
  when The answer: left
  say Left it is.
";
    let runtime = playing(text).await;
    let agent = spawn(&runtime, "A", "choose").await;
    until_idle(&runtime).await;
    runtime.session.answer(agent.no(), reply("left")).await.unwrap();
    let again = runtime.session.answer(agent.no(), reply("right")).await.unwrap_err();
    assert!(matches!(again.kind, RefusalKind::NotFound | RefusalKind::Ended), "{again}");
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Left it is.");
}

/// A number at which anything held by each agent would be noticed.
const MANY: usize = 10_000;

#[tokio::test]
async fn ten_thousand_suspended_agents_hold_nothing_and_wake_one_by_one() {
    let text = "agent *
turn
  call ask_parent {\"question\": \"Which side?\"}
turn
  when The answer: left
  say Left it is.
";
    let runtime = Runtime::builder().agents(script(text)).start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let tasks = (0..MANY).map(|_| NewTask::agent("choose"));
    let agents: Vec<_> = session.spawn_all(tasks).await.unwrap();
    let agents: Vec<_> = agents.into_iter().map(Result::unwrap).collect();
    let waiting =
        || session.list().iter().filter(|task| task.row.state.label() == "waiting").count();
    while waiting() < MANY {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while alive() > before {
        tokio::task::yield_now().await;
    }
    for at in [MANY - 1, 7, MANY / 2] {
        session.answer(agents[at].no(), reply("left")).await.unwrap();
        assert_eq!(final_message(&agents[at].wait().await.unwrap()), "Left it is.");
    }
    assert_eq!(waiting(), MANY - 3, "nobody else was woken");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_a_value_of_json() {
    // The operator's answer need not be text.
    let text = "agent A\nturn\n call ask_parent {\"question\": \"How many?\"}\nturn\n when The answer: 3\n say Three.\n";
    let runtime = playing(text).await;
    let agent = spawn(&runtime, "A", "count").await;
    until_idle(&runtime).await;
    let three = GivenAnswer::Reply(Json::of(&3).unwrap());
    runtime.session.answer(agent.no(), three).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Three.");
}
