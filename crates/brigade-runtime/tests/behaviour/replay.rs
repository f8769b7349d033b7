//! A job that is entered again takes the same path.

use std::sync::{Arc, Mutex};

use brigade_model::command::GivenAnswer;
use brigade_model::event::Event;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{ChildTask, JobContext, JobError, NewTask};
use brigade_store::MemoryStore;
use brigade_testkit::{SlowStore, TestRuntime};

use crate::support::*;

const RESUME: RecoveryPolicy = RecoveryPolicy::resume_max_crashes(3);

#[tokio::test(start_paused = true)]
async fn a_steps_error_is_recorded_and_returned_again() {
    let tried = Tally::default();
    let tries = tried.clone();
    let test = TestRuntime::new(|b| {
        b.job_named("tries", RESUME, move |ctx: JobContext, (): ()| {
            let tries = tries.clone();
            async move {
                let body = || async {
                    tries.add();
                    Err::<(), _>(JobError::new("no salt"))
                };
                let first = ctx.step("salt", body).await.unwrap_err();
                ctx.sleep(SECOND).await?;
                Ok::<_, JobError>(first.to_string())
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("tries", ())).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("\"no salt\""));
    assert_eq!(tried.get(), 1, "a failed step is not tried again by itself");
}

#[tokio::test(start_paused = true)]
async fn a_race_between_sleep_and_receive_is_replayed_the_same() {
    let paths: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let recorded = paths.clone();
    let test = TestRuntime::new(|b| {
        b.job_named("races", RESUME, move |ctx: JobContext, (): ()| {
            let paths = recorded.clone();
            paths.lock().unwrap().push(Vec::new());
            async move {
                for _ in 0..6 {
                    let took = tokio::select! {
                        slept = ctx.sleep(10 * SECOND) => slept.map(|()| "slept".to_owned())?,
                        got = ctx.receive() => got?.body.to_string(),
                    };
                    paths.lock().unwrap().last_mut().unwrap().push(took);
                }
                Ok::<_, JobError>(())
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("races", ())).await.unwrap();
    tokio::time::sleep(15 * SECOND).await;
    task.send(1).await.unwrap();
    task.send(2).await.unwrap();
    tokio::time::sleep(15 * SECOND).await;
    task.send(3).await.unwrap();
    assert!(outcome(&task).await.is_success());
    let paths = paths.lock().unwrap();
    let last = paths.last().unwrap();
    assert_eq!(*last, ["slept", "1", "2", "slept", "3", "slept"]);
    for path in paths.iter() {
        assert!(last.starts_with(path), "{path:?} is the beginning of {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_waits_at_once_are_joined() {
    let test = TestRuntime::new(|b| {
        b.job_named("joins", RESUME, |ctx: JobContext, (): ()| async move {
            let slow = ctx.spawn(NewTask::job("naps", 30)).await?;
            let quick = ctx.spawn(NewTask::job("naps", 10)).await?;
            let (a, b) = tokio::join!(ctx.wait_all([&slow]), ctx.wait_all([&quick]));
            let a = a?;
            let b = b?;
            assert!(!a[0].collected_before && !b[0].collected_before);
            Ok::<_, JobError>((a[0].no.get(), b[0].no.get()))
        })
        .job_named("naps", RESUME, |ctx: JobContext, seconds: u32| async move {
            ctx.sleep(seconds * SECOND).await?;
            Ok::<_, JobError>(())
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("joins", ())).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("[2,3]"));
}

#[tokio::test(start_paused = true)]
async fn a_step_beside_a_wait_is_done_once_and_the_wait_goes_on() {
    let stepped = Tally::default();
    let steps = stepped.clone();
    let test = TestRuntime::new(|b| {
        b.job_named("both", RESUME, move |ctx: JobContext, (): ()| {
            let steps = steps.clone();
            async move {
                let body = || async {
                    tokio::time::sleep(5 * SECOND).await;
                    Ok::<_, JobError>(steps.add())
                };
                let (slept, stepped) = tokio::join!(ctx.sleep(SECOND), ctx.step("slow", body));
                slept?;
                let stepped: usize = stepped?;
                ctx.sleep(SECOND).await?;
                Ok::<_, JobError>(stepped)
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("both", ())).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("0"));
    assert_eq!(stepped.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_receive_with_a_timeout_consumes_nothing_when_it_passes() {
    let test = TestRuntime::new(|b| {
        b.job_named("listens", RESUME, |ctx: JobContext, (): ()| async move {
            let none = ctx.receive_within(SECOND).await?;
            assert!(none.is_none());
            let some = ctx.receive_within(60 * SECOND).await?;
            Ok::<_, JobError>(some.map(|message| message.body.to_string()))
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("listens", ())).await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    task.send("late").await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded(r#""\"late\"""#));
}

#[tokio::test(start_paused = true)]
async fn a_question_suspends_the_job_until_it_is_answered() {
    let test = TestRuntime::new(|b| {
        b.job_named("asks", RESUME, |ctx: JobContext, (): ()| async move {
            let salt: u32 = ctx.ask("how much salt?").await?;
            Ok::<_, JobError>(salt * 2)
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("asks", ())).await.unwrap();
    until(&test.session, task.no(), "waiting").await;
    let reply = || GivenAnswer::Reply(json("21"));
    refused(test.session.answer(number(9), reply()).await, NOT_FOUND, "9");
    test.session.answer(&task, reply()).await.unwrap();
    let again = test.session.answer(&task, reply()).await.unwrap_err();
    assert!([NOT_FOUND, ENDED].contains(&again.kind), "answered once: {again}");
    assert_eq!(*outcome(&task).await, succeeded("42"));
    assert_eq!(test.session.inbox(10).await.unwrap(), [], "an answered question is read");
}

#[tokio::test(start_paused = true)]
async fn typed_state_is_restored_when_the_job_resumes() {
    let entries: Arc<Mutex<Vec<Option<u32>>>> = Arc::default();
    let seen = entries.clone();
    let test = TestRuntime::new(|b| {
        b.job_named("counts", RESUME, move |ctx: JobContext, (): ()| {
            let seen = seen.clone();
            async move {
                seen.lock().unwrap().push(ctx.state::<u32>()?);
                ctx.set_state(1).await?;
                ctx.sleep(SECOND).await?;
                ctx.set_state(2).await?;
                ctx.sleep(SECOND).await?;
                Ok::<_, JobError>(ctx.state::<u32>()?)
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("counts", ())).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("2"));
    assert_eq!(*entries.lock().unwrap(), [None, Some(1), Some(2)], "at each entry, the last");
}

#[tokio::test(start_paused = true)]
async fn progress_is_reported_once_however_often_the_job_is_entered() {
    let test = TestRuntime::new(|b| {
        b.job_named("notes", RESUME, |ctx: JobContext, (): ()| async move {
            for n in 0..4 {
                ctx.progress(n).await?;
                ctx.sleep(SECOND).await?;
            }
            ctx.progress("done").await?;
            Ok::<_, JobError>(())
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("notes", ())).await.unwrap();
    assert!(outcome(&task).await.is_success());
    let notes = events(&test).await.into_iter().filter_map(|event| match event {
        Event::Progressed { note, .. } => Some(note.to_string()),
        _ => None,
    });
    assert_eq!(notes.collect::<Vec<_>>(), ["0", "1", "2", "3", "\"done\""]);
}

#[tokio::test(start_paused = true)]
async fn completions_of_one_turn_are_delivered_one_by_one_as_in_replay() {
    let paths: Arc<Mutex<Vec<&str>>> = Arc::default();
    let recorded = paths.clone();
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| {
        b.max_batch(1024).job_named("busy", RESUME, move |ctx: JobContext, (): ()| {
            let paths = recorded.clone();
            async move {
                // A step beside the race keeps the job running, so that completions arrive live.
                let step = ctx.step("slow", || async {
                    tokio::time::sleep(60 * SECOND).await;
                    Ok::<_, JobError>(())
                });
                let race = async {
                    tokio::select! {
                        biased;
                        got = ctx.receive() => got.map(|_| "received"),
                        slept = ctx.sleep(10 * SECOND) => slept.map(|()| "slept"),
                    }
                };
                let (stepped, path) = tokio::join!(step, race);
                stepped?;
                paths.lock().unwrap().push(path?);
                ctx.sleep(SECOND).await?;
                Ok::<_, JobError>(())
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("busy", ())).await.unwrap();
    let other = test.session.spawn(forever()).await.unwrap();
    until_idle().await;
    // While the loop stores this, the timer is due and the message arrives: one turn for both.
    store.slow_after(0, 15 * SECOND);
    let (busy, sent) = tokio::join!(other.send("keeps the store busy"), async {
        tokio::time::sleep(12 * SECOND).await;
        task.send("now").await
    });
    busy.unwrap();
    sent.unwrap();
    assert!(outcome(&task).await.is_success());
    let paths = paths.lock().unwrap();
    assert_eq!(*paths, ["slept", "slept"], "the first completion, also in replay");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_makes_other_calls_when_entered_again_fails_with_the_reason() {
    for (first, second) in [("sleep", "receive"), ("step", "sleep"), ("step", "another step")] {
        let entered = Tally::default();
        let entries = entered.clone();
        let test = TestRuntime::new(|b| {
            b.job_named("wanders", RESUME, move |ctx: JobContext, (): ()| {
                let path = if entries.add() == 0 { first } else { second };
                async move {
                    match path {
                        "sleep" => ctx.sleep(SECOND).await?,
                        "receive" => drop(ctx.receive().await?),
                        name => ctx.step(name, || async { Ok::<_, JobError>(()) }).await?,
                    }
                    ctx.sleep(SECOND).await?;
                    Ok::<_, JobError>(())
                }
            })
        })
        .await;
        let task = test.session.spawn(NewTask::job("wanders", ())).await.unwrap();
        let end = outcome(&task).await;
        let Outcome::Failed(failed) = &*end else { panic!("{first} then {second}: {end:?}") };
        let Failure::Error(error) = &failed.failure else { panic!("{failed:?}") };
        let message = &error.message;
        assert!(message.contains("took another path than before: call 0"), "{message}");
        assert!(message.contains(first) && message.contains(second), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn children_and_messages_are_not_created_twice_in_replay() {
    let test = TestRuntime::new(|b| {
        b.job_named("parent", RESUME, |ctx: JobContext, (): ()| async move {
            let echo = NewTask::job("echo", ());
            let child = ctx.spawn(echo).await?;
            ctx.sleep(SECOND).await?;
            let sent = ctx.send(&child, "hello").await?;
            ctx.sleep(SECOND).await?;
            let received = ctx.receive().await?;
            let run_results = ctx.wait_all([&child]).await?;
            Ok::<_, JobError>((sent, received.body.to_string(), run_results.len()))
        })
        .job_named("echo", RESUME, |ctx: JobContext, (): ()| async move {
            let received = ctx.receive().await?;
            ctx.send_parent(received.body.decode::<String>()?).await?;
            Ok::<_, JobError>(())
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("parent", ())).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded(r#"[1,"\"hello\"",1]"#));
    assert_eq!(test.session.row().last_task, Some(number(2)));
    assert_eq!(test.session.row().last_message.0, 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_returned_again_too() {
    let test = TestRuntime::new(|b| {
        b.job_named("spawns", RESUME, |ctx: JobContext, (): ()| async move {
            let child = ctx.spawn(forever().name("Ann")).await?;
            let twin = ctx.spawn(forever().name("Ann")).await;
            ctx.sleep(SECOND).await?;
            ctx.stop(&child, None).await?;
            // The name is free when the job is entered again after this.
            ctx.sleep(60 * SECOND).await?;
            let late = ctx.send(&child, "too late").await;
            let own = ChildTask::<()>::new(ctx.task(), child.run, child.kind);
            let itself = ctx.wait_all([&own]).await;
            ctx.sleep(SECOND).await?;
            let kinds = [twin.err(), late.err(), itself.err()];
            Ok::<_, JobError>(kinds.map(|refusal| refusal.map(|refusal| refusal.kind.to_string())))
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("spawns", ())).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded(r#"["conflict","ended","invalid"]"#));
    assert_eq!(test.session.row().last_task, Some(number(2)), "the twin stays refused");
}
