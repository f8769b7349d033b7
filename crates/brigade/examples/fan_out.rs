//! A job that delegates to a thousand children, sixteen at a time, and collects each result as it
//! arrives.

use std::time::{Duration, Instant};

use brigade::{
    Event, FeedUpdate, JobContext, JobError, Limits, NewTask, Outcome, RecoveryPolicy, Runtime,
};
use futures_util::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};

const CHILDREN: u64 = 1_000;

#[tokio::main]
async fn main() -> Result<(), JobError> {
    let runtime = Runtime::builder()
        .job("chop", RecoveryPolicy::resume(3), chop)
        .job("fan out", RecoveryPolicy::resume(3), fan_out)
        .start()
        .await?;
    let limits = Limits { running: Some(16), ..Limits::default() };
    let session = runtime.session_with("kitchen", limits).await?;

    let started_at = Instant::now();
    let chef = session.spawn(NewTask::job("fan out", CHILDREN).name("Chef")).await?;
    show_progress(&runtime.operator_session(session.id()).await?, &chef).await?;
    let result = chef.wait().await?;
    match &*result.outcome {
        Outcome::Succeeded { result } => {
            println!("{CHILDREN} children, sum {result}, in {:.2?}", started_at.elapsed());
        }
        other => println!("{} {other}", chef.address()),
    }
    runtime.shutdown().await?;
    Ok(())
}

/// Sleeps a few milliseconds and returns its number.
async fn chop(ctx: JobContext, carrot: u64) -> Result<u64, JobError> {
    ctx.step("chop", || async move {
        tokio::time::sleep(Duration::from_millis(2 + carrot % 9)).await;
        Ok::<_, JobError>(carrot)
    })
    .await
}

/// Spawns all children, then collects the next results until no child is left.
async fn fan_out(ctx: JobContext, children: u64) -> Result<u64, JobError> {
    let spawns = (1..=children).map(|n| ctx.spawn(NewTask::job("chop", n)));
    let mut open = try_join_all(spawns).await?;
    let mut sum = 0;
    while !open.is_empty() {
        for result in ctx.wait_any(&open).await? {
            open.retain(|child| child.no != result.no);
            if let Outcome::Succeeded { result: carrots } = &*result.outcome {
                sum += carrots.decode::<u64>()?;
            }
        }
    }
    Ok(sum)
}

/// Follows the operator's feed and advances the bar at the end of each child.
async fn show_progress(
    session: &brigade::Session,
    chef: &brigade::TaskHandle,
) -> Result<(), JobError> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} ended, {msg}")?;
    let bar = ProgressBar::new(CHILDREN).with_style(style);
    let mut feed = session.subscribe(brigade::Position(0));
    loop {
        let FeedUpdate::Event(item) = feed.next().await? else { continue };
        match &item.record.event {
            Event::Ended { no, .. } if *no == chef.no() => break,
            Event::Ended { no, .. } => {
                bar.inc(1);
                bar.set_message(format!("last was job:{no}"));
            }
            _ => {}
        }
    }
    bar.finish_and_clear();
    Ok(())
}
