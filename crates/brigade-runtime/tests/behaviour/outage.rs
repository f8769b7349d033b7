//! Slow and failing stores, and state that only the process holds.

use std::sync::Arc;

use brigade_model::call::WaitMode;
use brigade_model::limits::Limits;
use brigade_runtime::{Job, JobContext, JobError, NewTask, WaitResult};
use brigade_sqlite::SqliteStore;
use brigade_store::{MemoryStore, Store};
use brigade_testkit::{CrashStore, CutMode, CutPoint, SlowStore, TestRuntime};
use tokio_util::sync::CancellationToken;

use crate::faulty_store::FaultyStore;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_result_that_is_being_delivered_at_the_timeout_is_not_lost() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let gate = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    let session = test.session.clone();
    let waits = session.wait_within(vec![(&task).into()], WaitMode::All, SECOND);
    let (waited, ()) = tokio::join!(eventually(waits), async {
        until_idle().await;
        gate.cancel();
        // The end is stored at once; the commit of the collection takes longer than the timeout.
        store.slow_after(1, 5 * SECOND);
        tokio::time::sleep(10 * SECOND).await;
    });
    let uncollected = eventually(test.session.wait_uncollected(WaitMode::All)).await.unwrap();
    match waited.unwrap() {
        WaitResult::Ended(run_results) => {
            assert_eq!(run_results.len(), 1);
            assert!(uncollected.is_empty(), "delivered twice");
        }
        WaitResult::TimedOut(_) => assert_eq!(uncollected.len(), 1, "delivered to nobody"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_commit_is_not_acknowledged_or_performed_before_it_is_stored() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    store.slow_after(0, 5 * SECOND);
    let ran = Tally::default();
    let runs = ran.clone();
    let task = NewTask::closure("runs", |_| async move {
        runs.add();
        Ok::<_, JobError>(())
    });
    let start = tokio::time::Instant::now();
    let (spawned, ()) = tokio::join!(test.session.spawn(task), async {
        tokio::time::sleep(4 * SECOND).await;
        assert!(test.session.list().is_empty(), "not seen before it is stored");
        assert_eq!(ran.get(), 0, "not performed before it is stored");
    });
    spawned.unwrap();
    assert_eq!(start.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_queued_closure_survives_a_commit_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(dir.path().join(name)).unwrap())
    };
    let story = async |store: Arc<CrashStore>| {
        let test = TestRuntime::on_store(store.clone(), |b| b).await;
        test.session.set_limits(Limits { running: Some(1), ..Limits::default() }).await.unwrap();
        let gate = CancellationToken::new();
        let first = test.session.spawn(behind(&gate)).await.unwrap();
        let queued = test.session.spawn(returns("my turn")).await.unwrap();
        let before = store.commits();
        let _ = first.send("in between").await;
        gate.cancel();
        assert_eq!(*outcome(&queued).await, succeeded("\"my turn\""));
        before
    };
    let commit = story(CrashStore::new(open("whole"), None)).await;
    let cut = CutPoint { commit, durable: false, mode: CutMode::Fail };
    story(CrashStore::new(open("cut"), Some(cut))).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_beside_a_spawn_that_could_not_be_stored_does_not_hang() {
    let story = async |store: Arc<CrashStore>| {
        let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(1024)).await;
        let before = store.commits();
        let tasks = [returns(1)];
        let (spawned, waited) = tokio::join!(
            test.session.spawn_all(tasks),
            eventually(test.session.wait_uncollected(WaitMode::All))
        );
        (before, spawned.unwrap()[0].is_ok(), waited)
    };
    let (commit, spawned, waited) =
        story(CrashStore::new(Arc::new(MemoryStore::new()), None)).await;
    assert!(spawned && waited.unwrap().len() == 1, "both came in one batch");
    let cut = CutPoint { commit, durable: false, mode: CutMode::Fail };
    let store = CrashStore::new(Arc::new(MemoryStore::new()), Some(cut));
    let (_, spawned, waited) = story(store).await;
    assert!(!spawned);
    assert!(waited.is_err() || waited.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_report_is_not_lost_when_the_shutdown_comes_with_a_failing_commit() {
    let story = async |cut: Option<CutPoint>| {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let crashing = CrashStore::new(inner.clone(), cut);
        let store = SlowStore::new(crashing.clone());
        let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(1024)).await;
        let gate = CancellationToken::new();
        let task = test.session.spawn(behind(&gate)).await.unwrap();
        until_idle().await;
        let next = crashing.commits() + 1;
        // While the loop stores this, the report and the shutdown request arrive together.
        store.slow_after(0, 5 * SECOND);
        let (sent, shut_down) = tokio::join!(task.send("keeps the store busy"), async {
            gate.cancel();
            until_idle().await;
            test.runtime.clone().shutdown().await
        });
        sent.unwrap();
        shut_down.unwrap();
        let row = inner.task(test.session.id(), task.no()).await.unwrap().unwrap();
        (next, row.ended().map(|ended| ended.outcome.clone()))
    };
    let (commit, outcome) = story(None).await;
    assert_eq!(*outcome.unwrap(), succeeded("\"through\""));
    let (_, outcome) = story(Some(CutPoint { commit, durable: false, mode: CutMode::Fail })).await;
    assert_eq!(*outcome.unwrap(), succeeded("\"through\""));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_and_replies_stay_true() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let steps = Tally::default();
    let counted = steps.clone();
    let test = TestRuntime::on_store(store.clone(), |b| {
        b.job(Job::new("naps"), move |ctx: JobContext, (): ()| {
            let steps = counted.clone();
            async move {
                ctx.step("one", || async { Ok::<_, JobError>(steps.add()) }).await?;
                ctx.sleep(10 * SECOND).await?;
                let two = ctx.step("two", || async { Ok::<_, JobError>(steps.add()) }).await?;
                Ok::<_, JobError>(two)
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("naps", ())).await.unwrap();
    let (ended, refusal) = tokio::join!(eventually(task.wait()), async {
        tokio::time::sleep(5 * SECOND).await;
        store.set_away(true);
        let spawn = test.session.spawn(forever());
        let (spawned, ()) = tokio::join!(eventually(spawn), async {
            tokio::time::sleep(10 * SECOND).await;
            assert_eq!(state(&test.session, task.no()).await, "waiting", "as it was stored");
            store.set_away(false);
        });
        spawned
    });
    refused(refusal, UNAVAILABLE, "it is away");
    assert_eq!(test.session.row().last_task, Some(number(1)), "a refused spawn did not happen");
    let ended = ended.unwrap();
    assert_eq!(*ended.outcome, succeeded("1"));
    assert!(!ended.collected_before);
    assert_eq!(steps.get(), 2, "each step once");
}

#[tokio::test(start_paused = true)]
async fn the_commits_of_a_shutdown_are_retried() {
    let story = async |cut: Option<CutPoint>| {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let store = CrashStore::new(inner.clone(), cut);
        let test = TestRuntime::on_store(store.clone(), |b| b).await;
        let task = test.session.spawn(forever()).await.unwrap();
        until_idle().await;
        let next = store.commits();
        test.runtime.clone().shutdown().await.unwrap();
        assert!(store.commits() > next, "the shutdown stores something");
        let row = inner.task(test.session.id(), task.no()).await.unwrap().unwrap();
        (next, row.state.label())
    };
    let (commit, word) = story(None).await;
    assert_eq!(word, "failed", "a closure is lost with its process");
    let (_, word) = story(Some(CutPoint { commit, durable: false, mode: CutMode::Fail })).await;
    assert_eq!(word, "failed", "no task is stored as running that does not run");
}

#[tokio::test(start_paused = true)]
async fn a_due_timer_does_not_retry_a_full_store_without_pause() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| {
        b.job(Job::new("naps"), |ctx: JobContext, (): ()| async move {
            ctx.sleep(10 * SECOND).await?;
            Ok::<_, JobError>("rested")
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("naps", ())).await.unwrap();
    until_idle().await;
    store.set_full(true);
    tokio::time::sleep(20 * SECOND).await;
    let refused = store.refused();
    assert!((10..=110).contains(&refused), "{refused} tries in ten seconds");
    store.set_full(false);
    assert_eq!(*outcome(&task).await, succeeded("\"rested\""));
}

/// The store is back before the second slice could be sent.
#[tokio::test(start_paused = true)]
async fn a_batch_whose_first_part_is_not_stored_is_not_sent_in_part() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(1024)).await;
    let task = test.session.spawn(forever()).await.unwrap();
    store.set_full(true);
    let is_back = async {
        while store.refused() == 0 {
            tokio::task::yield_now().await;
        }
        store.set_full(false);
    };
    let messages = (0..600).map(|n| (task.no().into(), n));
    let (sent, ()) = tokio::join!(test.session.send_all(messages), is_back);
    let sent = sent.unwrap();
    assert_eq!(sent.len(), 600);
    for reply in sent {
        refused(reply, UNAVAILABLE, "");
    }
    let next = test.session.send(task.no(), "first").await.unwrap();
    assert_eq!(next.0, 1, "no message was stored before");
}
