//! A job that delegates to a thousand children, sixteen at a time, and collects each result as it
//! arrives.

use std::time::{Duration, Instant};

use brigade::{Event, FeedUpdate, Job, JobContext, JobError, Runtime};
use indicatif::{ProgressBar, ProgressStyle};

const CHILDREN: u64 = 1_000;
const CHOP: Job<u64, u64> = Job::new("chop");
const FAN_OUT: Job<u64, u64> = Job::new("fan out");

#[tokio::main]
async fn main() -> Result<(), JobError> {
    let runtime = Runtime::builder().job(CHOP, chop).job(FAN_OUT, fan_out).start().await?;
    let session = runtime.session("kitchen").await?;

    let started_at = Instant::now();
    let chef = session.spawn(FAN_OUT.with(CHILDREN).name("Chef")).await?;
    show_progress(&runtime.operator_session(session.id()).await?, &chef).await?;
    let sum = chef.result().await?;
    println!("{CHILDREN} children, sum {sum}, in {:.2?}", started_at.elapsed());
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

/// Starts the children and sums up their results.
async fn fan_out(ctx: JobContext, children: u64) -> Result<u64, JobError> {
    let carrots = ctx.join_all((1..=children).map(|n| CHOP.with(n))).at_once(16).await?;
    let carrots: Vec<u64> = carrots.into_iter().collect::<Result<_, _>>()?;
    Ok(carrots.into_iter().sum())
}

/// Follows the operator's feed and advances the bar at the end of each child.
async fn show_progress<T>(
    session: &brigade::Session,
    chef: &brigade::TaskHandle<T>,
) -> Result<(), JobError> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} ended, {msg}")?;
    let bar = ProgressBar::new(CHILDREN).with_style(style);
    let mut feed = session.subscribe(brigade::FeedCursor::START);
    while let Some(update) = feed.next().await {
        let FeedUpdate::Event(item) = update? else { continue };
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
