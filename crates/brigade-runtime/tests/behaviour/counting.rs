//! Metrics count stored events, whichever commit fails.

use std::sync::Arc;

use brigade_model::refusal::RefusalKind;
use brigade_runtime::{Job, JobContext, JobError, NewTask, Runtime};
use brigade_store::MemoryStore;
use brigade_testkit::{CrashStore, CutMode, CutPoint, PausedClock, TestRuntime};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::support::*;

/// Runs a job with a child. Returns the metrics and the number of commits.
fn counted(cut: Option<CutPoint>) -> (Vec<String>, u64) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let store = CrashStore::new(Arc::new(MemoryStore::new()), cut);
    let mut reactor = tokio::runtime::Builder::new_current_thread();
    let reactor = reactor.enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || reactor.block_on(cook(store.clone())));
    let lines = recorder.handle().render();
    let counts = lines.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let counts = counts.filter(|line| !line.starts_with("brigade_commit_seconds"));
    let mut counts: Vec<String> = counts.map(str::to_owned).collect();
    counts.sort();
    (counts, store.commits())
}

async fn cook(store: Arc<CrashStore>) {
    let runtime = Runtime::builder()
        .shared_store(store)
        .clock(Arc::new(PausedClock::starting_at(TestRuntime::START)))
        .max_batch(1)
        .job(Job::new("cook"), |ctx: JobContext, (): ()| async move {
            let helper = ctx.spawn(NewTask::job("helper", ())).await?;
            ctx.wait_all([&helper]).await?;
            Ok::<_, JobError>(())
        })
        .job(Job::new("helper"), |_: JobContext, (): ()| async move {
            Err::<(), _>(JobError::new("the knife is blunt"))
        })
        .start()
        .await
        .unwrap();
    let session = again(async || runtime.session("test").await).await;
    let cook = NewTask::job("cook", ()).key("one");
    let cook = again(async || session.spawn(cook.clone()).await).await;
    again(async || cook.wait().await).await;
    let other = NewTask::job("helper", ()).key("one");
    // A refused spawn is not counted.
    refused(session.spawn(other).await, RefusalKind::Conflict, "key");
    runtime.record_gauges();
    runtime.shutdown().await.unwrap();
}

/// Repeats a call that failed, since the store fails once.
async fn again<T, E>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    match eventually(ask()).await {
        Ok(done) => done,
        Err(_) => eventually(ask()).await.ok().unwrap(),
    }
}

fn expected(failures: u32) -> Vec<String> {
    let mut expected = vec![
        format!("brigade_commit_failures_total {failures}"),
        r#"brigade_runs_ended_total{kind="job",outcome="failed",failure="error"} 1"#.to_owned(),
        r#"brigade_runs_ended_total{kind="job",outcome="succeeded",failure=""} 1"#.to_owned(),
        "brigade_inputs_waiting 0".to_owned(),
        r#"brigade_spawns_total{kind="job"} 2"#.to_owned(),
    ];
    let states = ["away", "closing", "queued", "running", "stopping", "waiting"];
    expected.extend(states.map(|state| format!("brigade_tasks{{state=\"{state}\"}} 0")));
    expected.sort();
    expected
}

#[test]
fn each_event_is_counted_once_whichever_commit_fails() {
    let (counts, commits) = counted(None);
    assert_eq!(counts, expected(0));
    assert!(commits > 5, "{commits} commits to cut at");
    for durable in [false, true] {
        for commit in 0..commits {
            let cut = CutPoint { commit, durable, mode: CutMode::Fail };
            assert_eq!(counted(Some(cut)).0, expected(1), "{cut:?}");
        }
    }
}
