//! Stories that have the same result wherever they are cut.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]

#[path = "stories/harness.rs"]
mod harness;

use std::time::Duration;

use brigade_model::json::Json;
use brigade_model::limits::{Limits, Money, Usage};
use brigade_model::outcome::Outcome;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{
    ChildTask, Job, JobContext, JobError, NewTask, RetryPolicy, RuntimeBuilder, Session,
};
use futures_util::future::try_join_all;
use harness::{Log, Pace, Story};

const POLICY: RecoveryPolicy = RecoveryPolicy::resume_max_crashes(5);

/// Runs a step that logs itself.
async fn note(ctx: &JobContext, log: &Log, what: &str) -> Result<String, JobError> {
    let log = log.clone();
    let text = what.to_owned();
    ctx.step(what, || async move {
        log.lock().unwrap().push(text.clone());
        Ok::<_, JobError>(text)
    })
    .await
}

async fn run_root(session: Session) {
    let root = NewTask::job("root", ()).name("Root").key("root");
    let root = session.spawn(root).await.unwrap();
    root.wait().await.unwrap();
}

fn story(build: fn(RuntimeBuilder, Log) -> RuntimeBuilder) -> Story {
    let act: harness::Act = |session| Box::pin(run_root(session));
    Story { build, act, compare_journals: true, pace: Pace::Paused }
}

fn worker(builder: RuntimeBuilder, log: &Log) -> RuntimeBuilder {
    let log = log.clone();
    builder.job_named("work", POLICY, move |ctx: JobContext, n: u32| {
        let log = log.clone();
        async move {
            note(&ctx, &log, &format!("work {n}")).await?;
            Ok::<_, JobError>(n)
        }
    })
}

async fn spawn_workers(ctx: &JobContext, count: u32) -> Result<Vec<ChildTask>, JobError> {
    let spawns =
        (1..=count).map(|n| ctx.spawn(NewTask::job("work", n).name(&format!("Worker {n}"))));
    Ok(try_join_all(spawns).await?)
}

fn render_outcomes(run_results: &[brigade_model::call::RunResult]) -> Vec<String> {
    let mut all: Vec<String> = run_results
        .iter()
        .map(|run_result| match &*run_result.outcome {
            Outcome::Succeeded { result } => result.to_string(),
            other => other.to_string(),
        })
        .collect();
    all.sort();
    all
}

#[test]
fn fan_out() {
    story(|builder, log| {
        worker(builder, &log).job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
            let children = spawn_workers(&ctx, 5).await?;
            let run_results = ctx.wait_all(&children).await?;
            Ok::<_, JobError>(render_outcomes(&run_results))
        })
    })
    .cut_everywhere();
}

#[test]
fn joined_children() {
    story(|builder, log| {
        worker(builder, &log).job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
            let tasks = (1..=5).map(|n| NewTask::job("work", n).name(&format!("Worker {n}")));
            let join = ctx.join_all(tasks).at_once(2).within(Duration::from_secs(3600));
            let results: Vec<Json> = join.await?.into_iter().collect::<Result<_, _>>()?;
            Ok::<_, JobError>(results)
        })
    })
    .cut_everywhere();
}

#[test]
fn a_join_that_the_first_failure_stops() {
    let mut story = story(|builder, _log| {
        builder
            .job_named("rest", POLICY, |ctx: JobContext, fails: bool| async move {
                ctx.sleep(Duration::from_secs(if fails { 60 } else { 1_000_000 })).await?;
                Err::<(), _>(JobError::new("no more"))
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let tasks = [false, true, false].into_iter().enumerate();
                let tasks = tasks
                    .map(|(n, fails)| NewTask::job("rest", fails).name(&format!("Resting {n}")));
                let joined = ctx.join_all(tasks).first_failure_stops().await?;
                let texts = joined.into_iter().map(|result| match result {
                    Ok(_) => "succeeded".to_owned(),
                    Err(error) => error.to_string(),
                });
                Ok::<_, JobError>(texts.collect::<Vec<_>>())
            })
    });
    // A stop may come before or after a child has parked.
    story.compare_journals = false;
    story.cut_everywhere();
}

/// Runs a step that fails the first time that it is tried in this process and the next.
async fn flaky(ctx: &JobContext, log: &Log, what: &'static str) -> Result<u32, JobError> {
    let policy = RetryPolicy::fixed(Duration::from_secs(60)).max_attempts(20);
    let body = || {
        let log = log.clone();
        async move {
            let mut log = log.lock().unwrap();
            log.push(what.to_owned());
            match log.iter().filter(|line| *line == what).count() {
                1 | 2 => Err(JobError::new("not yet")),
                _ => Ok(7),
            }
        }
    };
    ctx.step(what, body).retry(policy).await
}

#[test]
fn retried_steps() {
    let mut story = story(|builder, log| {
        builder.job_named("root", POLICY, move |ctx: JobContext, (): ()| {
            let log = log.clone();
            async move {
                let both = tokio::join!(flaky(&ctx, &log, "charge"), flaky(&ctx, &log, "ship"));
                note(&ctx, &log, "between").await?;
                let last = flaky(&ctx, &log, "thank").await?;
                Ok::<_, JobError>(both.0? + both.1? + last)
            }
        })
    });
    // A crash after a body and before its record costs an attempt.
    story.compare_journals = false;
    story.cut_everywhere();
}

#[test]
fn a_retried_job() {
    let mut story = story(|builder, log| {
        let root = Job::<(), u32>::new("root").recovery(POLICY);
        let policy = RetryPolicy::fixed(Duration::from_secs(60)).max_attempts(20);
        builder.job(root.retry(policy), move |ctx: JobContext, ()| {
            let log = log.clone();
            async move {
                note(&ctx, &log, "prepare").await?;
                ctx.sleep(Duration::from_secs(1)).await?;
                let body = || async {
                    let mut log = log.lock().unwrap();
                    log.push("bake".to_owned());
                    match log.iter().filter(|line| *line == "bake").count() {
                        1 | 2 => Err(JobError::new("burnt")),
                        _ => Ok(7),
                    }
                };
                ctx.step("bake", body).await
            }
        })
    });
    story.compare_journals = false;
    story.cut_everywhere();
}

#[test]
fn keyed_messages() {
    let mut story = story(|builder, _log| {
        builder.job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
            let mut received = Vec::new();
            for _ in 0..3 {
                received.push(ctx.receive_as::<u32>("amount").await?);
            }
            let other: String = ctx.receive().await?.body.decode()?;
            Ok::<_, JobError>((received, other))
        })
    });
    // The client runs again from its beginning after each crash.
    story.act = |session| {
        Box::pin(async move {
            let root = NewTask::job("root", ()).name("Root").key("root");
            let root = session.spawn(root).await.unwrap();
            root.send("other").key("other").await.unwrap();
            for n in 0..3 {
                root.send(n).named("amount").key(&format!("amount {n}")).await.unwrap();
            }
            root.wait().await.unwrap();
        })
    };
    story.cut_everywhere();
}

#[test]
fn nested_stop() {
    story(|builder, _log| {
        builder
            .job_named("rest", POLICY, |ctx: JobContext, (): ()| async move {
                ctx.sleep(Duration::from_secs(1_000_000)).await?;
                Ok::<_, JobError>(())
            })
            .job_named("spin", POLICY, |ctx: JobContext, (): ()| async move {
                ctx.stop_token().cancelled().await;
                Ok::<_, JobError>("went quietly")
            })
            .job_named("manage", POLICY, |ctx: JobContext, (): ()| async move {
                ctx.spawn(NewTask::job("rest", ()).name("Resting")).await?;
                ctx.spawn(NewTask::job("spin", ()).name("Spinning")).await?;
                ctx.send_parent("all are there").await?;
                ctx.receive().await?;
                Ok::<_, JobError>(())
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let one = ctx.spawn(NewTask::job("manage", ()).name("One")).await?;
                let two = ctx.spawn(NewTask::job("manage", ()).name("Two")).await?;
                ctx.receive().await?;
                ctx.receive().await?;
                ctx.stop(&one, Some("enough")).await?;
                ctx.stop(&two, Some("enough")).await?;
                let run_results = ctx.wait_all([&one, &two]).await?;
                Ok::<_, JobError>(render_outcomes(&run_results))
            })
    })
    .cut_everywhere();
}

#[test]
fn message_burst() {
    story(|builder, _log| {
        builder
            .job_named("echo", POLICY, |ctx: JobContext, count: u32| async move {
                for _ in 0..count {
                    let message = ctx.receive().await?;
                    let received: u32 = message.body.decode()?;
                    ctx.send_parent(received).await?;
                }
                Ok::<_, JobError>(count)
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let echo = ctx.spawn(NewTask::job("echo", 6).name("Echo")).await?;
                for n in 0..6 {
                    ctx.send(&echo, n).await?;
                }
                let mut received: Vec<u32> = Vec::new();
                for _ in 0..6 {
                    received.push(ctx.receive().await?.body.decode()?);
                }
                ctx.wait_all([&echo]).await?;
                if received.is_sorted() { Ok(received) } else { Err(JobError::new("out of order")) }
            })
    })
    .cut_everywhere();
}

#[test]
fn wait_any() {
    story(|builder, _log| {
        builder
            .job_named("nap", POLICY, |ctx: JobContext, secs: u64| async move {
                ctx.sleep(Duration::from_secs(secs)).await?;
                Ok::<_, JobError>(secs)
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let naps = [30, 10, 20]
                    .map(|secs| ctx.spawn(NewTask::job("nap", secs).name(&format!("Nap {secs}"))));
                let mut open = try_join_all(naps).await?;
                let mut order = Vec::new();
                while !open.is_empty() {
                    for run_result in ctx.wait_any(&open).await? {
                        open.retain(|child| child.no != run_result.no);
                        order.extend(render_outcomes(&[run_result]));
                    }
                }
                Ok::<_, JobError>(order)
            })
    })
    .cut_everywhere();
}

#[test]
fn queue_at_the_limit() {
    story(|builder, log| {
        worker(builder, &log)
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let one_at_a_time = Limits { running: Some(1), ..Limits::default() };
                let chief = NewTask::job("chief", ()).name("Chief").limits(one_at_a_time);
                let chief = ctx.spawn(chief).await?;
                let run_results = ctx.wait_all([&chief]).await?;
                Ok::<_, JobError>(render_outcomes(&run_results))
            })
            .job_named("chief", POLICY, |ctx: JobContext, (): ()| async move {
                let children = spawn_workers(&ctx, 4).await?;
                let run_results = ctx.wait_all(&children).await?;
                Ok::<_, JobError>(render_outcomes(&run_results))
            })
    })
    .cut_everywhere();
}

#[test]
fn budget_end() {
    let budget = story(|builder, _log| {
        builder
            .job_named("spend", POLICY, |ctx: JobContext, (): ()| async move {
                let amount = Usage { tokens: 40, money: Money(0) };
                for _ in 0..10 {
                    let paying = ctx.clone();
                    ctx.step("pay", || async move {
                        let granted = paying.reserve(amount, amount).await?;
                        paying.charge(granted).await?;
                        Ok::<_, JobError>(())
                    })
                    .await?;
                }
                Ok::<_, JobError>("rich")
            })
            .job_named("holder", POLICY, |ctx: JobContext, (): ()| async move {
                let spender = ctx.spawn(NewTask::job("spend", ()).name("Spender")).await?;
                ctx.wait_all([&spender]).await?;
                Ok::<_, JobError>(())
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let budget = Limits { tokens: Some(100), ..Limits::default() };
                let holder = NewTask::job("holder", ()).name("Holder").limits(budget);
                let holder = ctx.spawn(holder).await?;
                let run_results = ctx.wait_all([&holder]).await?;
                Ok::<_, JobError>(render_outcomes(&run_results))
            })
    });
    Story { compare_journals: false, ..budget }.cut_everywhere();
}

#[test]
fn five_steps_with_a_sleep() {
    story(|builder, log| {
        builder.job_named("root", POLICY, move |ctx: JobContext, (): ()| {
            let log = log.clone();
            async move {
                let mut done = Vec::new();
                for n in 1..=5 {
                    done.push(note(&ctx, &log, &format!("step {n}")).await?);
                    ctx.set_state(n).await?;
                    if n == 3 {
                        ctx.sleep(Duration::from_secs(3600)).await?;
                    }
                }
                let state: Option<u32> = ctx.state()?;
                Ok::<_, JobError>((done, state))
            }
        })
    })
    .cut_everywhere();
}

#[test]
fn select_between_a_sleep_and_a_message() {
    story(|builder, _log| {
        builder
            .job_named("nudge", POLICY, |ctx: JobContext, (): ()| async move {
                ctx.sleep(Duration::from_secs(5)).await?;
                ctx.send_parent("hurry").await?;
                Ok::<_, JobError>(())
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let nudge = ctx.spawn(NewTask::job("nudge", ()).name("Nudge")).await?;
                let mut turns = Vec::new();
                for timeout in [3, 60] {
                    turns.push(tokio::select! {
                        biased;
                        slept = ctx.sleep(Duration::from_secs(timeout)) => {
                            slept?;
                            "slept".to_owned()
                        }
                        message = ctx.receive() => message?.body.to_string(),
                    });
                }
                ctx.wait_all([&nudge]).await?;
                Ok::<_, JobError>(turns)
            })
    })
    .cut_everywhere();
}

#[test]
fn a_question_and_its_answer() {
    story(|builder, _log| {
        builder
            .job_named("asks", POLICY, |ctx: JobContext, (): ()| async move {
                let salt: u32 = ctx.ask("how much salt?").await?;
                Ok::<_, JobError>(salt)
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let cook = ctx.spawn(NewTask::job("asks", ()).name("Cook")).await?;
                let question = ctx.receive().await?;
                ctx.answer(&cook, 3).await?;
                let run_results = ctx.wait_all([&cook]).await?;
                Ok::<_, JobError>((question.body.clone(), render_outcomes(&run_results)))
            })
    })
    .cut_everywhere();
}

/// A job that is entered again does not stop children that it spawned after it had stopped others.
#[test]
fn stop_all_then_spawn_more() {
    let cleaning = story(|builder, log| {
        worker(builder, &log)
            .job_named("linger", POLICY, |ctx: JobContext, (): ()| async move {
                ctx.sleep(Duration::from_secs(1_000_000)).await?;
                Ok::<_, JobError>(())
            })
            .job_named("nap", POLICY, |ctx: JobContext, secs: u64| async move {
                ctx.sleep(Duration::from_secs(secs)).await?;
                Ok::<_, JobError>(secs)
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                let old = ctx.spawn(NewTask::job("linger", ()).name("Old")).await?;
                let stopped = ctx.stop_children(Some("spring cleaning")).await?;
                let new = ctx.spawn(NewTask::job("nap", 30).name("New")).await?;
                let run_results = ctx.wait_all([&old, &new]).await?;
                Ok::<_, JobError>((stopped.tasks, render_outcomes(&run_results)))
            })
    });
    Story { compare_journals: false, ..cleaning }.cut_everywhere();
}

#[test]
fn a_kept_child_outlives_its_parent() {
    fn build(builder: RuntimeBuilder, log: Log) -> RuntimeBuilder {
        worker(builder, &log)
            .job_named("linger", POLICY, |ctx: JobContext, (): ()| async move {
                ctx.sleep(Duration::from_secs(60)).await?;
                Ok::<_, JobError>("still here")
            })
            .job_named("root", POLICY, |ctx: JobContext, (): ()| async move {
                ctx.spawn(NewTask::job("linger", ()).name("Kept").keep()).await?;
                ctx.spawn(NewTask::job("linger", ()).name("Left")).await?;
                let workers = spawn_workers(&ctx, 2).await?;
                ctx.wait_all(&workers).await?;
                Ok::<_, JobError>(())
            })
    }
    async fn act(session: Session) {
        run_root(session.clone()).await;
        let kept: brigade_model::address::TaskRef = "Kept".parse().unwrap();
        session.wait_all([kept]).await.unwrap();
    }
    let act: harness::Act = |session| Box::pin(act(session));
    Story { build, act, compare_journals: true, pace: Pace::Paused }.cut_everywhere();
}

#[test]
fn a_job_that_waits_for_a_process() {
    let story = story(|builder, log| {
        builder.job_named("root", POLICY, move |ctx: JobContext, (): ()| {
            let log = log.clone();
            async move {
                note(&ctx, &log, "before").await?;
                let count = NewTask::shell("sleep 0.2; exit 3").name("Count");
                let count = ctx.spawn(count).await?;
                ctx.wait_all(&[count]).await?;
                note(&ctx, &log, "after").await?;
                Ok::<_, JobError>(())
            }
        })
    });
    Story { pace: Pace::Real, ..story }.cut_here_and_there(4);
}
