//! The smallest program: one job, its result, and its events.

use brigade::{FeedUpdate, JobContext, JobError, NewTask, Position, RecoveryPolicy, Runtime};

#[tokio::main]
async fn main() -> Result<(), brigade::Refusal> {
    let runtime = Runtime::builder()
        .job("greet", RecoveryPolicy::resume(3), |ctx: JobContext, name: String| async move {
            ctx.progress(format!("thinking about {name}")).await?;
            Ok::<_, JobError>(format!("hello, {name}"))
        })
        .start()
        .await?;

    let session = runtime.session("hello").await?;
    let task = session.spawn(NewTask::job("greet", "world").name("Greeter")).await?;
    println!("{} is running", task.address());

    let result = task.wait().await?;
    match &*result.outcome {
        brigade::Outcome::Succeeded { result } => println!("{} returned {result}", task.address()),
        other => println!("{} {other}", task.address()),
    }

    println!("\nevents:");
    let last = runtime.position();
    let mut feed = session.subscribe(Position(0));
    while feed.cursor() < last {
        if let FeedUpdate::Event(item) = feed.next().await? {
            println!("{:>3}  {:?}", item.position.0, item.record.event);
        }
    }
    runtime.shutdown().await
}
