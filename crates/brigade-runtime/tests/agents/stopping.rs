//! A stop, wherever an agent is when it comes.

use std::sync::Arc;
use std::time::Duration;

use brigade_store::MemoryStore;
use brigade_testkit::{CrashStore, TestRuntime};

use crate::support::{STORY, everything, paused, script, spawn};

/// Stops the boss of the story after so many commits. Returns how many there were.
fn stopped_after(commits: u64) -> u64 {
    paused().block_on(async {
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
        let runtime = TestRuntime::on(store.clone(), |builder| builder.agents(script(STORY))).await;
        let before = alive();
        let boss = spawn(&runtime, "Boss", "look").await;
        let is_over = async || !boss.get().await.unwrap().is_living();
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
        let ending = boss.wait_within(Duration::from_secs(60)).await.unwrap();
        let ending = ending.unwrap_or_else(|| panic!("stopped after {commits} it does not end"));
        assert_ne!(ending.outcome.word(), "failed", "after {commits}: {}", ending.outcome);
        for (no, row) in everything(&runtime.runtime, &runtime.session).await {
            assert!(!row.is_living(), "after {commits} task {no} is {}", row.state.word());
            assert!(row.reserved().is_none(), "after {commits} task {no} has set something aside");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(alive(), before, "after {commits} something runs on");
        store.commits()
    })
}

#[test]
fn a_stop_takes_effect_wherever_it_comes() {
    let all = stopped_after(u64::MAX);
    assert!(all > 20, "{all} commits");
    for commits in 3..all {
        stopped_after(commits);
    }
}
