//! The smallest program: one job, its result, and its events.

use brigade::{FeedCursor, FeedUpdate, Job, JobContext, JobError, Runtime};

const GREET: Job<String, String> = Job::new("greet");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder()
        .job(GREET, |ctx: JobContext, name| async move {
            ctx.progress(format!("thinking about {name}")).await?;
            Ok::<_, JobError>(format!("hello, {name}"))
        })
        .start()
        .await?;

    let session = runtime.session("hello").await?;
    let task = session.spawn(GREET.with("world".to_owned()).name("Greeter")).await?;
    println!("{} is running", task.address());

    println!("{} returned {:?}", task.address(), task.result().await?);

    println!("\nevents:");
    let last = runtime.cursor();
    let mut feed = session.subscribe(FeedCursor::START);
    while feed.cursor() < last {
        let Some(update) = feed.next().await else { break };
        if let FeedUpdate::Event(item) = update? {
            println!("{:>3}  {:?}", item.position.no, item.record.event);
        }
    }
    runtime.shutdown().await?;
    Ok(())
}
