//! Calls inside a job, where the session knows the calling job.

use brigade_model::ids::Owner;
use brigade_model::outcome::Outcome;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_spawn_from_within_a_job_links_to_the_enclosing_task() {
    let test = TestRuntime::new(|b| b).await;
    let session = test.session.clone();
    let outer = NewTask::closure("outer", |ctx: JobContext| async move {
        let nested = session.clone();
        let inner = NewTask::closure("inner", move |_| async move {
            let deepest = nested.spawn(returns("deep")).await?;
            let _ = deepest.no();
            let row = deepest.get().await?;
            assert_eq!(row.owner, Owner::Task(number(2)));
            Ok::<_, JobError>(deepest.wait().await?.outcome.to_string())
        });
        let inner = session.spawn(inner).await?;
        assert_eq!(inner.get().await?.owner, Owner::Task(ctx.task()));
        match &*inner.wait().await?.outcome {
            Outcome::Succeeded { result } => Ok(result.to_string()),
            other => Err(JobError::new(other)),
        }
    });
    let outer = test.session.spawn(outer).await.unwrap();
    assert_eq!(*outcome(&outer).await, succeeded(r#""\"succeeded\"""#));
    assert!(listed(&test.session).is_empty(), "nested tasks are not the session's");
}

#[tokio::test(start_paused = true)]
async fn a_wait_within_a_job_gives_up_its_slot() {
    let test = TestRuntime::new(|b| b).await;
    let limits = brigade_model::limits::Limits { running: Some(1), ..Default::default() };
    test.session.set_limits(limits).await.unwrap();
    let session = test.session.clone();
    let outer = NewTask::closure("outer", |_| async move {
        let inner = session.spawn(returns(5)).await?;
        Ok::<_, JobError>(inner.wait().await?.outcome.is_success())
    });
    let outer = test.session.spawn(outer).await.unwrap();
    assert_eq!(*outcome(&outer).await, succeeded("true"));
}

#[tokio::test(start_paused = true)]
async fn a_child_is_still_controlled_after_its_parent_was_suspended() {
    let test = TestRuntime::new(|b| b).await;
    let session = test.session.clone();
    let outer = NewTask::closure("outer", |_| async move {
        let inner = session.spawn(tidy()).await?;
        // A suspend takes the parent into its next attempt.
        assert_eq!(inner.wait_within(SECOND).await?, None);
        inner.send("still there?").await?;
        inner.stop(Some("enough")).await?;
        Ok::<_, JobError>(inner.wait().await?.outcome.to_string())
    });
    let outer = test.session.spawn(outer).await.unwrap();
    assert_eq!(*outcome(&outer).await, succeeded("\"cancelled\""));
}

#[tokio::test(start_paused = true)]
async fn a_spawn_into_another_session_is_not_a_child() {
    let test = TestRuntime::new(|b| b).await;
    let other = test.runtime.session("other").await.unwrap();
    let there = other.clone();
    let outer = NewTask::closure("outer", |_| async move {
        let task = there.spawn(returns(())).await?;
        Ok::<_, JobError>(task.address())
    });
    let outer = test.session.spawn(outer).await.unwrap();
    assert_eq!(*outcome(&outer).await, succeeded("\"job:1\""));
    assert_eq!(other.get(number(1)).await.unwrap().row.owner, Owner::Session);
}

#[tokio::test(start_paused = true)]
async fn outside_of_a_job_there_is_no_current_one() {
    assert!(JobContext::current().is_none());
    let test = TestRuntime::new(|b| b).await;
    let task = NewTask::closure("looks", |ctx: JobContext| async move {
        let current = JobContext::current().expect("a job is calling");
        Ok::<_, JobError>(current.task() == ctx.task())
    });
    let task = test.session.spawn(task).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("true"));
    assert!(JobContext::current().is_none());
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_batch_from_within_a_job_are_its_children() {
    let test = TestRuntime::new(|b| b).await;
    let session = test.session.clone();
    let outer = NewTask::closure("outer", |ctx: JobContext| async move {
        let spawned = session.spawn_all([returns(1), returns(2).name("self"), returns(3)]).await?;
        assert!(spawned[1].is_err());
        for task in spawned.into_iter().flatten() {
            assert_eq!(task.get().await?.owner, Owner::Task(ctx.task()));
            assert!(task.wait().await?.outcome.is_success());
        }
        Ok::<_, JobError>(())
    });
    let outer = test.session.spawn(outer).await.unwrap();
    assert_eq!(*outcome(&outer).await, succeeded("null"));
}
