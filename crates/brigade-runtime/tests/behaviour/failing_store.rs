//! A store that fails at any one commit: replies are true, and the story has the same result.

use std::sync::Arc;

use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::TaskNo;
use brigade_model::limits::Limits;
use brigade_model::outcome::Outcome;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::StoredTask;
use brigade_runtime::{Job, JobContext, JobError, NewTask, Runtime, RuntimeBuilder, Session};
use brigade_store::{EventQuery, MemoryStore, Store};
use brigade_testkit::{CrashStore, CutMode, CutPoint, PausedClock, TestRuntime};

use crate::support::*;

/// The result of one run of the story.
#[derive(Debug, PartialEq)]
struct StoryResult {
    outcome: Outcome,
    steps: usize,
    notes: Vec<String>,
    run_results: Vec<(TaskNo, String)>,
    tasks: Option<TaskNo>,
    messages: u64,
}

/// Registers a cook with two steps, a helper that it sends messages to, a sleep, and progress
/// notes.
fn jobs(b: RuntimeBuilder, steps: &Tally) -> RuntimeBuilder {
    let steps = steps.clone();
    b.job(Job::new("cook"), move |ctx: JobContext, (): ()| {
        let steps = steps.clone();
        async move {
            let one = ctx.step("one", || async { Ok::<_, JobError>(steps.add()) }).await?;
            let helper = ctx.spawn(NewTask::job("helper", ())).await?;
            ctx.send(&helper, "chop").await?;
            let received = ctx.receive().await?.body.to_string();
            ctx.wait_all([&helper]).await?;
            let (slept, lost) = tokio::join!(ctx.sleep(SECOND), ctx.receive_within(2 * SECOND));
            slept?;
            assert!(lost?.is_none());
            let two = ctx
                .step("two", || async {
                    ctx.progress("nearly").await?;
                    Ok::<_, JobError>(steps.add())
                })
                .await?;
            ctx.set_state("done").await?;
            Ok::<_, JobError>((one, received, two))
        }
    })
    .job(Job::new("helper"), |ctx: JobContext, (): ()| async move {
        let order = ctx.receive().await?;
        ctx.send_parent(order.body.decode::<String>()?).await?;
        Ok::<_, JobError>(())
    })
}

/// Repeats a call until the store takes it. Checks that a refusal changed nothing.
async fn insist<T, F>(session: Option<&Session>, durable: bool, mut ask: F) -> T
where
    F: AsyncFnMut() -> Result<T, Refusal>,
{
    for _ in 0..3 {
        let before = session.map(Session::row);
        match eventually(ask()).await {
            Ok(done) => return done,
            Err(refusal) => {
                assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal}");
                assert!(!durable, "it happened, and the caller was told that it had not");
                let after = session.map(Session::row);
                assert_eq!(
                    before.map(|row| row.last_task),
                    after.map(|row| row.last_task),
                    "unavailable means that nothing was changed"
                );
            }
        }
    }
    panic!("the store fails once only")
}

async fn run_story(cut: Option<CutPoint>) -> (StoryResult, u64) {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let store = CrashStore::new(inner.clone(), cut);
    let steps = Tally::default();
    let builder = Runtime::builder()
        .shared_store(store.clone())
        .clock(Arc::new(PausedClock::starting_at(TestRuntime::START)))
        .max_batch(1);
    let runtime = jobs(builder, &steps).start().await.unwrap();
    let durable = cut.is_some_and(|cut| cut.durable);
    let session = insist(None, durable, async || runtime.session("test").await).await;
    let cook =
        insist(Some(&session), durable, async || session.spawn(NewTask::job("cook", ())).await)
            .await;
    let run_result = insist(Some(&session), durable, async || cook.wait().await).await;
    assert!(!run_result.collected_before, "collected once, by the wait that was answered");
    let task = insist(Some(&session), durable, async || session.spawn(forever()).await).await;
    let stopped = insist(Some(&session), durable, async || task.stop(None).await).await;
    assert!(!stopped.already_stopped, "the stop that was answered is the first");
    let end = insist(Some(&session), durable, async || task.wait().await).await;
    assert_eq!(end.outcome.label(), "cancelled");
    let session_id = session.id();
    let row = session.row();
    runtime.shutdown().await.unwrap();

    let query =
        EventQuery { session: Some(session_id), after: FeedCursor::START, limit: usize::MAX };
    let items = inner.events(&query).await.unwrap().items;
    let mut notes = Vec::new();
    let mut run_results = Vec::new();
    for (at, item) in items.iter().enumerate() {
        assert_eq!(item.record.seq.0, at as u64 + 1, "no event is missing or doubled");
        match &item.record.event {
            Event::Progressed { note, .. } => notes.push(note.to_string()),
            Event::Ended { no, outcome, .. } => run_results.push((*no, outcome.to_string())),
            _ => {}
        }
    }
    let result = StoryResult {
        outcome: (*run_result.outcome).clone(),
        steps: steps.get(),
        notes,
        run_results,
        tasks: row.last_task,
        messages: row.last_message.0,
    };
    (result, store.commits())
}

#[tokio::test(start_paused = true)]
async fn the_story_ends_the_same_whichever_commit_fails() {
    let (expect, commits) = run_story(None).await;
    assert_eq!(expect.outcome, succeeded(r#"[0,"\"chop\"",1]"#));
    assert_eq!(expect.notes, ["\"nearly\""]);
    assert_eq!(expect.run_results.len(), 3);
    assert!(commits > 20, "{commits} commits to cut at");
    for durable in [false, true] {
        for commit in 0..commits {
            let cut = CutPoint { commit, durable, mode: CutMode::Fail };
            let (result, _) = run_story(Some(cut)).await;
            assert_eq!(result, expect, "{cut:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_could_not_be_stored_does_not_exist() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let cut = CutPoint { commit: 0, durable: false, mode: CutMode::Fail };
    let runtime =
        Runtime::builder().shared_store(CrashStore::new(inner, Some(cut))).start().await.unwrap();
    refused(runtime.session("test").await, UNAVAILABLE, "cut by the test");
    assert!(runtime.sessions().await.unwrap().is_empty());
    assert_eq!(runtime.cursor(), FeedCursor::START);
    let limits = Limits { width: Some(1), ..Limits::default() };
    let session = runtime.session_with("test", limits).await.unwrap();
    assert_eq!(session.row().limits, limits);
}

#[tokio::test(start_paused = true)]
async fn a_large_stop_continues_after_a_sweep_could_not_be_stored() {
    let census = Census::default();
    let run = async |cut: Option<CutPoint>| {
        let counted = census.clone();
        let wide = NewTask::closure("wide", move |ctx: JobContext| async move {
            for _ in 0..1_200 {
                let counted = counted.clone();
                let child = NewTask::closure("child", move |_| async move {
                    let _counted = counted.enter();
                    std::future::pending::<()>().await;
                    Ok::<_, JobError>(())
                });
                ctx.spawn(child.grace(3600 * SECOND)).await?;
            }
            std::future::pending::<()>().await;
            Ok::<_, JobError>(())
        });
        let store = CrashStore::new(Arc::new(MemoryStore::new()), cut);
        let test = TestRuntime::on_store(store.clone(), |b| b).await;
        let wide = test.session.spawn(wide).await.unwrap();
        until_idle().await;
        assert_eq!(census.alive(), 1_200);
        let before = store.commits();
        let stopped_at = tokio::time::Instant::now();
        wide.stop(None).await.unwrap();
        until_idle().await;
        tokio::time::sleep(SECOND).await;
        let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
        let rows = operator.list();
        let stopping = rows.iter().filter(|StoredTask { row, .. }| row.is_ending()).count();
        assert_eq!(stopping, 1_201, "{cut:?}: all within {:?}", stopped_at.elapsed());
        crash(test).await;
        before
    };
    let stop = run(None).await;
    for slice in 1..=2 {
        run(Some(CutPoint { commit: stop + slice, durable: false, mode: CutMode::Fail })).await;
    }
}
