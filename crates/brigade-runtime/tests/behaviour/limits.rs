//! Limits: a spawn is refused before it costs anything, or the task is queued.

use std::time::Duration;

use brigade_model::event::Event;
use brigade_model::ids::{Millis, Time};
use brigade_model::limits::{LimitKind, Limits, Usage};
use brigade_model::outcome::{Failure, Outcome};
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use brigade_testkit::TestRuntime;
use tokio_util::sync::CancellationToken;

use crate::support::*;

async fn with(limits: Limits) -> TestRuntime {
    let test = TestRuntime::new(|b| b).await;
    test.session.set_limits(limits).await.unwrap();
    test
}

#[tokio::test(start_paused = true)]
async fn a_depth_of_one_forbids_nesting_and_says_so() {
    let test = with(Limits { depth: Some(1), ..Limits::default() }).await;
    let nests = NewTask::closure("nests", |ctx: JobContext| async move {
        let refused = ctx.spawn(forever()).await.unwrap_err();
        Ok::<_, JobError>(refused.to_string())
    });
    let task = test.session.spawn(nests).await.unwrap();
    let expect = "limit: the depth limit of the session test is reached: 1 levels; \
         nothing may nest deeper";
    assert_eq!(*outcome(&task).await, succeeded(&format!("{expect:?}")));
}

#[tokio::test(start_paused = true)]
async fn width_counts_alive_children() {
    let test = with(Limits { width: Some(2), ..Limits::default() }).await;
    let first = test.session.spawn(forever()).await.unwrap();
    test.session.spawn(forever()).await.unwrap();
    refused(test.session.spawn(forever()).await, LIMIT, "width limit");
    first.stop(None).await.unwrap();
    wait_result(&first).await;
    test.session.spawn(forever()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_total_counts_all_spawned_descendants_of_a_run() {
    let test = with(Limits::default()).await;
    let spawns = NewTask::closure("spawns", |ctx: JobContext| async move {
        let mut fine = 0;
        while let Ok(child) = ctx.spawn(returns(())).await {
            ctx.wait_all([&child]).await?;
            fine += 1;
        }
        Ok::<_, JobError>(fine)
    });
    let limits = Limits { total: Some(3), ..Limits::default() };
    let task = test.session.spawn(spawns.limits(limits)).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("3"));
}

#[tokio::test(start_paused = true)]
async fn at_the_running_limit_tasks_queue_and_start_in_order() {
    let test = with(Limits { running: Some(2), ..Limits::default() }).await;
    let gates: Vec<_> = (0..6).map(|_| CancellationToken::new()).collect();
    let mut tasks = Vec::new();
    for gate in &gates {
        tasks.push(test.session.spawn(behind(gate)).await.unwrap());
    }
    let mut words = Vec::new();
    for task in &tasks {
        words.push(state(&test.session, task.no()).await);
    }
    assert_eq!(words, ["running", "running", "queued", "queued", "queued", "queued"]);
    for gate in gates.iter().rev() {
        gate.cancel();
    }
    for task in &tasks {
        assert_eq!(*outcome(task).await, succeeded("\"through\""));
    }
    let started: Vec<u32> = events(&test)
        .await
        .iter()
        .filter_map(|event| match event {
            Event::Started { no, .. } => Some(no.get()),
            _ => None,
        })
        .collect();
    assert_eq!(started, [3, 4, 5, 6]);
}

#[tokio::test(start_paused = true)]
async fn an_ended_task_releases_its_slot_before_it_is_collected() {
    let test = with(Limits { running: Some(1), ..Limits::default() }).await;
    let tasks = test.session.spawn_all((0..50).map(returns)).await.unwrap();
    let last = tasks.into_iter().last().unwrap().unwrap();
    assert_eq!(*outcome(&last).await, succeeded("49"));
}

#[tokio::test(start_paused = true)]
async fn a_suspended_closure_releases_its_slot() {
    let test = with(Limits { running: Some(1), ..Limits::default() }).await;
    let census = Census::default();
    let counted = census.clone();
    let waits = NewTask::closure("waits", move |ctx: JobContext| async move {
        let _counted = counted.enter();
        let message = ctx.receive().await?;
        Ok::<_, JobError>(message.body.to_string())
    });
    let waits = test.session.spawn(waits).await.unwrap();
    until(&test.session, waits.no(), "waiting").await;
    assert_eq!(census.alive(), 1, "a closure keeps its future");
    let gate = CancellationToken::new();
    let other = test.session.spawn(behind(&gate)).await.unwrap();
    assert_eq!(state(&test.session, other.no()).await, "running");
    waits.send("go on").await.unwrap();
    until_idle().await;
    assert_eq!(state(&test.session, waits.no()).await, "queued", "it needs a slot to continue");
    gate.cancel();
    assert!(outcome(&waits).await.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_named_job_holds_neither_future_nor_slot_while_it_waits() {
    let census = Census::default();
    let counted = census.clone();
    let test = TestRuntime::new(|b| {
        b.job(Job::new("waits"), move |ctx: JobContext, (): ()| {
            let counted = counted.enter();
            async move {
                let _counted = counted;
                ctx.receive().await?;
                Ok::<_, JobError>(())
            }
        })
    })
    .await;
    test.session.set_limits(Limits { running: Some(1), ..Limits::default() }).await.unwrap();
    let waits = test.session.spawn(NewTask::job("waits", ())).await.unwrap();
    until(&test.session, waits.no(), "waiting").await;
    until_idle().await;
    assert_eq!(census.alive(), 0);
    let other = test.session.spawn(returns(1)).await.unwrap();
    assert!(outcome(&other).await.is_success());
    waits.send(()).await.unwrap();
    assert!(outcome(&waits).await.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_fails_as_a_timeout_without_the_time_it_queued() {
    let test = with(Limits { running: Some(1), ..Limits::default() }).await;
    let gate = CancellationToken::new();
    let first = test.session.spawn(behind(&gate)).await.unwrap();
    let limits = Limits { time: Some(Millis(10_000)), ..Limits::default() };
    let slow = test.session.spawn(tidy().limits(limits)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(state(&test.session, slow.no()).await, "queued");
    gate.cancel();
    wait_result(&first).await;
    let end = wait_result(&slow).await;
    let Outcome::Failed(failed) = &*end.outcome else { panic!("{:?}", end.outcome) };
    assert_eq!(failed.failure, Failure::Timeout { after: Millis(10_000) });
    assert_eq!(failed.partial, Some(json("\"tidied\"")), "its last result is kept");
    assert_eq!(end.ended_at, Time(TestRuntime::START.0 + 70_000));
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_fails_its_holder() {
    let test = with(Limits::default()).await;
    let spender = NewTask::closure("spends", |ctx: JobContext| async move {
        let want = Usage { tokens: 60, ..Usage::NONE };
        assert_eq!(ctx.reserve(want, want).await?.tokens, 60);
        ctx.charge(want).await?;
        assert_eq!(ctx.reserve(want, Usage::NONE).await?.tokens, 40, "the remaining amount");
        ctx.charge(Usage { tokens: 40, ..Usage::NONE }).await?;
        let refused = ctx.reserve(want, want).await.unwrap_err();
        Ok::<_, JobError>(refused.to_string())
    });
    let limits = Limits { tokens: Some(100), ..Limits::default() };
    let task = test.session.spawn(spender.limits(limits)).await.unwrap();
    let end = outcome(&task).await;
    let Outcome::Failed(failed) = &*end else { panic!("{end:?}") };
    assert_eq!(failed.failure, Failure::Budget { limit: LimitKind::Tokens });
    assert_eq!(failed.partial, Some(json("\"limit: the tokens budget is spent\"")));
    assert_eq!(task.get().await.unwrap().usage().tokens, 100);
}

#[tokio::test(start_paused = true)]
async fn raised_limits_let_queued_work_start() {
    let test = with(Limits { running: Some(1), ..Limits::default() }).await;
    test.session.spawn(forever()).await.unwrap();
    let queued = test.session.spawn(returns(1)).await.unwrap();
    assert_eq!(state(&test.session, queued.no()).await, "queued");
    test.session.set_limits(Limits { running: Some(2), ..Limits::default() }).await.unwrap();
    assert!(outcome(&queued).await.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_task_tree_has_a_maximum_depth() {
    let test = TestRuntime::new(|b| {
        b.job(Job::new("nests"), |ctx: JobContext, depth: u32| async move {
            let child = match ctx.spawn(NewTask::job("nests", depth + 1)).await {
                Ok(child) => child,
                Err(refused) => return Ok(format!("{depth}: {refused}")),
            };
            match &*ctx.wait_all([&child]).await?[0].outcome {
                Outcome::Succeeded { result } => Ok(result.decode::<String>()?),
                other => Err(JobError::new(other)),
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("nests", 1)).await.unwrap();
    let end = outcome(&task).await;
    let Outcome::Succeeded { result } = &*end else { panic!("{end:?}") };
    assert!(result.as_str().starts_with("\"64: limit: the depth limit"), "{result}");
}
