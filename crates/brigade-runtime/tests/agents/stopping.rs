//! Stops of agents at every point of their work.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::Millis;
use brigade_model::limits::{LimitKind, Limits};
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::task::StoredTask;
use brigade_runtime::NewTask;
use brigade_store::MemoryStore;
use brigade_testkit::{CrashStore, TestRuntime};

use crate::support::{STORY, everything, failure, paused, playing, script, spawn, until_idle};

/// Stops the boss of the story after this many commits. Returns the number of commits.
fn stopped_after(commits: u64) -> u64 {
    paused().block_on(async {
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
        let runtime =
            TestRuntime::on_store(store.clone(), |builder| builder.agents(script(STORY))).await;
        let before = alive();
        let boss = spawn(&runtime, "Boss", "look").await;
        let is_over = async || !boss.get().await.unwrap().is_alive();
        for turn in 0u64.. {
            if store.commits() >= commits || is_over().await {
                break;
            }
            tokio::task::yield_now().await;
            // Now and then time must pass too.
            if turn % 200 == 199 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        boss.stop(Some("enough")).await.unwrap();
        let run_result = boss.wait_within(Duration::from_secs(60)).await.unwrap();
        let run_result =
            run_result.unwrap_or_else(|| panic!("stopped after {commits} it does not end"));
        assert_ne!(run_result.outcome.label(), "failed", "after {commits}: {}", run_result.outcome);
        for StoredTask { no, row } in everything(&runtime.runtime, &runtime.session).await {
            assert!(!row.is_alive(), "after {commits} task {no} is {}", row.state.label());
            assert!(row.reserved().is_none(), "after {commits} task {no} has set something aside");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(alive(), before, "after {commits} something runs on");
        store.commits()
    })
}

#[test]
fn a_stop_takes_effect_after_every_commit() {
    let all = stopped_after(u64::MAX);
    assert!(all > 20, "{all} commits");
    for commits in 3..all {
        stopped_after(commits);
    }
}

/// A boss that sends a message and waits for its child, which may spend or last too much.
const RESTING: &str = "agent Boss
turn
  say So far: two mushrooms.
  call spawn_agent {\"name\": \"Helper\", \"task\": \"Look.\", \"wait\": true}
agent Helper
usage input=100 output=6000
turn
  delay 5s
  call list_tasks {}
turn
  say Never.
";

#[tokio::test(start_paused = true)]
async fn a_suspended_agent_that_is_ended_keeps_its_last_message() {
    let runtime = playing(RESTING).await;
    let so_far = Some("So far: two mushrooms.".to_owned());
    let boss = spawn(&runtime, "Boss", "go").await;
    until_idle(&runtime).await;
    assert_eq!(boss.get().await.unwrap().state.label(), "waiting");
    boss.stop(None).await.unwrap();
    let run_result = boss.wait().await.unwrap();
    let Outcome::Cancelled(cancelled) = &*run_result.outcome else {
        panic!("{}", run_result.outcome)
    };
    assert_eq!(cancelled.partial.as_ref().map(|partial| partial.decode().unwrap()), so_far);

    let limits = Limits { tokens: Some(5_000), ..Limits::default() };
    let boss = runtime.session.spawn(NewTask::agent("go").name("Boss").limits(limits)).await;
    let run_result = boss.unwrap().wait().await.unwrap();
    assert_eq!(
        failure(&run_result),
        (Failure::Budget { limit: LimitKind::Tokens }, so_far.clone())
    );

    let hurried = NewTask::agent("go").name("Boss").deadline(Duration::from_secs(2));
    let run_result = runtime.session.spawn(hurried).await.unwrap().wait().await.unwrap();
    assert_eq!(failure(&run_result), (Failure::Timeout { after: Millis(2_000) }, so_far));
}

#[tokio::test(start_paused = true)]
async fn a_long_last_message_is_truncated() {
    let runtime = playing(&RESTING.replace("mushrooms", &"many ".repeat(200))).await;
    let boss = spawn(&runtime, "Boss", "go").await;
    until_idle(&runtime).await;
    boss.stop(None).await.unwrap();
    let run_result = boss.wait().await.unwrap();
    let Outcome::Cancelled(cancelled) = &*run_result.outcome else {
        panic!("{}", run_result.outcome)
    };
    let partial: String = cancelled.partial.as_ref().unwrap().decode().unwrap();
    assert!(partial.starts_with("So far: two many many ") && partial.len() < 400, "{partial}");
    assert!(
        partial.ends_with("\n[The message is truncated: 300 of 1013 bytes are shown.]"),
        "{partial}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_running_agent_that_is_stopped_keeps_its_last_message() {
    let text =
        "agent A\nturn\n  say Half.\n  call list_tasks {}\nturn\n  fault hang\n  say Never.\n";
    let runtime = playing(text).await;
    let agent = spawn(&runtime, "A", "go").await;
    until_idle(&runtime).await;
    agent.stop(None).await.unwrap();
    let run_result = agent.wait().await.unwrap();
    let Outcome::Cancelled(cancelled) = &*run_result.outcome else {
        panic!("{}", run_result.outcome)
    };
    assert_eq!(cancelled.partial.as_ref().unwrap().as_str(), "\"Half.\"");
}

#[tokio::test(start_paused = true)]
async fn a_model_call_that_is_cut_off_by_a_stop_is_charged() {
    let text =
        format!("agent A\nturn\n  say {}\n  delay 600s\n  say Never.\n", "Well, ".repeat(50));
    let runtime = playing(&text).await;
    // Without a budget nothing is reserved.
    for (limit, least) in [(Some(1_000_000), 8_000), (None, 0)] {
        let limits = Limits { tokens: limit, ..Limits::default() };
        let task = NewTask::agent(&"Cook. ".repeat(500)).name("A").limits(limits);
        let agent = runtime.session.spawn(task).await.unwrap();
        until_idle(&runtime).await;
        let set_aside = agent.get().await.unwrap().reserved().tokens;
        assert!(set_aside >= least && (set_aside == 0) == limit.is_none(), "{set_aside}");
        agent.stop(None).await.unwrap();
        agent.wait().await.unwrap();
        let row = agent.get().await.unwrap();
        // A thousand tokens for the task and a hundred for the reply; the system prompt is about as
        // long as the task.
        assert!((1_100..4_000).contains(&row.usage().tokens), "{:?}", row.usage());
        assert!(row.unknown_usage().is_none() && row.reserved().is_none());
    }
}
