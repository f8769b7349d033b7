//! Recovery: the sessions of an earlier process continue before the first request is answered.

use std::sync::Arc;

use brigade_model::ids::Millis;
use brigade_model::outcome::{Failure, Outcome, StopInitiator};
use brigade_model::refusal::RefusalKind;
use brigade_model::task::{QueueReason, StoredTask, TaskState};
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{Job, JobContext, JobError, NewTask, Runtime, RuntimeBuilder};
use brigade_store::MemoryStore;
use brigade_testkit::{SlowStore, TestRuntime};

use crate::faulty_store::FaultyStore;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_closure_is_lost_with_its_process_and_names_recovery() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let running = test.session.spawn(forever()).await.unwrap().no();
    let waiting = NewTask::closure("waits", |ctx: JobContext| async move {
        ctx.receive().await?;
        Ok::<_, JobError>(())
    });
    let waiting = test.session.spawn(waiting).await.unwrap().no();
    until(&test.session, waiting, "waiting").await;
    crash(test).await;
    let test = TestRuntime::on_store(store, |b| b).await;
    for no in [running, waiting] {
        let row = test.session.get(no).await.unwrap().row;
        let Outcome::Failed(failed) = &*row.ended().unwrap().outcome else { panic!("{row:?}") };
        let Failure::Lost { by, evidence } = &failed.failure else { panic!("{failed:?}") };
        assert_eq!(&**by, "recovery");
        assert!(evidence.contains("its process is gone"), "{evidence}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_keeps_crashing_without_progress_ends_as_a_crash_loop() {
    let store = Arc::new(MemoryStore::new());
    let entered = Tally::default();
    let build = |b: RuntimeBuilder| {
        let entered = entered.clone();
        let recovery = RecoveryPolicy::Resume { max_attempts: 2, backoff: Millis(500) };
        b.job_named("crashes", recovery, move |_: JobContext, (): ()| {
            entered.add();
            async {
                std::future::pending::<()>().await;
                Ok::<_, JobError>(())
            }
        })
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let no = test.session.spawn(NewTask::job("crashes", ())).await.unwrap().no();
    until_idle().await;
    crash(test).await;
    for crashes in 1..=2 {
        let test = TestRuntime::on_store(store.clone(), build).await;
        let row = until(&test.session, no, "running").await;
        assert_eq!(row.crashes, crashes);
        until_idle().await;
        crash(test).await;
    }
    let test = TestRuntime::on_store(store, build).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    assert_eq!(*ended[0].outcome, Outcome::failed(Failure::CrashLoop { crashes: 3 }));
    assert_eq!(entered.get(), 3, "the first time and twice again");
}

#[tokio::test(start_paused = true)]
async fn progress_between_crashes_is_no_crash_loop() {
    let store = Arc::new(MemoryStore::new());
    let done = Tally::default();
    let build = |b: RuntimeBuilder| {
        let done = done.clone();
        b.job_named(
            "crawls",
            RecoveryPolicy::resume_max_crashes(1),
            move |ctx: JobContext, (): ()| {
                let done = done.clone();
                async move {
                    for step in 0..5 {
                        let before = done.get();
                        ctx.step("crawl", || async { Ok::<_, JobError>(done.add()) }).await?;
                        if done.get() > before && step < 4 {
                            std::future::pending::<()>().await;
                        }
                    }
                    Ok::<_, JobError>(())
                }
            },
        )
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let no = test.session.spawn(NewTask::job("crawls", ())).await.unwrap().no();
    until_idle().await;
    crash(test).await;
    for _ in 0..3 {
        let test = TestRuntime::on_store(store.clone(), build).await;
        until_idle().await;
        crash(test).await;
    }
    let test = TestRuntime::on_store(store, build).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    assert!(ended[0].outcome.is_success(), "{}", ended[0].outcome);
    assert_eq!(done.get(), 5, "each step once");
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_handler_stays_queued_until_a_runtime_has_it() {
    let store = Arc::new(MemoryStore::new());
    let build = |b: RuntimeBuilder| {
        b.job(Job::new("cook"), |ctx: JobContext, n: u32| async move {
            let one = ctx.step("one", || async { Ok::<_, JobError>(n) }).await?;
            ctx.sleep(SECOND).await?;
            Ok::<_, JobError>(one + 1)
        })
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let no = test.session.spawn(NewTask::job("cook", 41).name("Cook")).await.unwrap().no();
    until(&test.session, no, "waiting").await;
    crash(test).await;

    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    tokio::time::sleep(10 * SECOND).await;
    let row = test.session.get(no).await.unwrap().row;
    let TaskState::Queued(queued) = &row.state else { panic!("{:?}", row.state) };
    let QueueReason::NoPerformer { reason } = &queued.reason else { panic!("{queued:?}") };
    assert_eq!(&**reason, "no job is registered as \"cook\"");
    test.runtime.clone().shutdown().await.unwrap();
    drop(test);

    let test = TestRuntime::on_store(store, build).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    assert_eq!(*ended[0].outcome, succeeded("42"));
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_was_due_between_two_runtimes_fires_once_at_the_start() {
    let store = Arc::new(MemoryStore::new());
    let entered = Tally::default();
    let build = |b: RuntimeBuilder| {
        let entered = entered.clone();
        b.job(Job::new("naps"), move |ctx: JobContext, (): ()| {
            entered.add();
            async move {
                ctx.sleep(5 * SECOND).await?;
                Ok::<_, JobError>(())
            }
        })
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let no = test.session.spawn(NewTask::job("naps", ())).await.unwrap().no();
    until(&test.session, no, "waiting").await;
    crash(test).await;
    let late = brigade_model::ids::Time(TestRuntime::START.0 + 3_600_000);
    let clock = Arc::new(brigade_testkit::PausedClock::starting_at(late));
    let test = TestRuntime::on_store(store, |b| build(b).clock(clock)).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    assert!(ended[0].outcome.is_success());
    assert!(ended[0].ended_at.since(late) < Millis(1_000), "at once, not five seconds later");
    assert_eq!(entered.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stop_continues_after_a_restart() {
    let store = Arc::new(MemoryStore::new());
    let build = |b: RuntimeBuilder| {
        b.job(Job::new("deaf"), |ctx: JobContext, depth: u32| async move {
            if depth > 0 {
                ctx.spawn(NewTask::job("deaf", depth - 1)).await?;
            }
            std::future::pending::<()>().await;
            Ok::<_, JobError>(())
        })
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let no = test.session.spawn(NewTask::job("deaf", 2)).await.unwrap().no();
    until_idle().await;
    test.session.stop(no, Some("enough")).await.unwrap();
    crash(test).await;
    let test = TestRuntime::on_store(store, build).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    let order = &cancelled(&ended[0].outcome).order;
    assert_eq!((&order.by, order.reason.as_deref()), (&StopInitiator::Client, Some("enough")));
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    for StoredTask { no, row } in operator.history(&Default::default()).await.unwrap() {
        assert_eq!(row.state.label(), "cancelled", "{no}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_child_wakes_a_parent_that_waited_across_a_restart() {
    let store = Arc::new(MemoryStore::new());
    let build = |b: RuntimeBuilder| {
        b.job(Job::new("child"), |ctx: JobContext, (): ()| async move {
            ctx.sleep(10 * SECOND).await?;
            Ok::<_, JobError>("fed")
        })
        .job(Job::new("parent"), |ctx: JobContext, (): ()| async move {
            let child = ctx.spawn(NewTask::job("child", ())).await?;
            let run_results = ctx.wait_all([&child]).await?;
            Ok::<_, JobError>(run_results[0].outcome.to_string())
        })
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let no = test.session.spawn(NewTask::job("parent", ()).key("dinner")).await.unwrap().no();
    until(&test.session, no, "waiting").await;
    crash(test).await;
    let test = TestRuntime::on_store(store, build).await;
    let again = test.session.spawn(NewTask::job("parent", ()).key("dinner")).await.unwrap();
    assert!(again.existed(), "the key still identifies the task");
    assert_eq!(again.no(), no);
    assert_eq!(*outcome(&again).await, succeeded("\"succeeded\""));
    assert_eq!(test.session.row().last_task, Some(number(2)), "no second child");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_session_does_not_stop_the_others() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let damaged = test.runtime.session("damaged").await.unwrap();
    damaged.spawn(forever()).await.unwrap();
    let task = test.session.spawn(forever()).await.unwrap().no();
    until_idle().await;
    let session_id = damaged.id();
    drop(damaged);
    crash(test).await;
    store.damage(session_id);
    let test = TestRuntime::on_store(store, |b| b).await;
    let ended = eventually(test.session.wait_all([task])).await.unwrap();
    assert_eq!(ended[0].outcome.label(), "failed", "lost with its process, and reported so");
    refused(test.runtime.session("damaged").await, RefusalKind::Internal, "damaged");
    let operator = test.runtime.operator_session(session_id).await.unwrap();
    refused(operator.stop(number(1), None).await, RefusalKind::Internal, "damaged");
    test.runtime.clone().shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_damaged_journal_fails() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let build = |b: RuntimeBuilder| {
        b.job(Job::new("cook"), |ctx: JobContext, (): ()| async move {
            ctx.step("chop", || async { Ok::<_, JobError>(()) }).await?;
            ctx.sleep(10 * SECOND).await?;
            Ok::<_, JobError>(())
        })
    };
    let test = TestRuntime::on_store(store.clone(), build).await;
    let job = test.session.spawn(NewTask::job("cook", ())).await.unwrap();
    until(&test.session, job.no(), "waiting").await;
    store.damage(test.session.id());
    let ended = eventually(job.wait()).await.unwrap();
    let text = ended.outcome.to_string();
    assert!(text.starts_with("failed (error:") && text.contains("a journal is damaged"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_does_not_block_the_start() {
    let inner = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(inner.clone(), |b| b).await;
    test.session.spawn(forever()).await.unwrap();
    until_idle().await;
    crash(test).await;
    let store = SlowStore::new(inner);
    // The store becomes unavailable during the commit of the recovery.
    store.slow_after(0, 5 * SECOND);
    let start = Runtime::builder().shared_store(store.clone()).start();
    let (started, ()) = tokio::join!(tokio::time::timeout(60 * SECOND, start), async {
        tokio::time::sleep(SECOND).await;
        store.set_away(true);
    });
    refused(started.unwrap(), UNAVAILABLE, "recovery could not be stored");
}
