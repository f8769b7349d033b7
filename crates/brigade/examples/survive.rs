//! A job that continues after `kill -9`: run this program, kill it, and run it again.

use std::path::PathBuf;
use std::time::Duration;

use brigade::{Job, JobContext, JobError, RecoveryPolicy, Runtime, SqliteStore};

const STEPS: u32 = 20;
const WALK: Job<u32, String> =
    Job::new("long walk").recovery(RecoveryPolicy::resume_max_crashes(100));

#[tokio::main]
async fn main() -> Result<(), JobError> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.unwrap_or_else(|| std::env::temp_dir().join("brigade-survive.db"));
    let store = SqliteStore::open(&path)?;
    let runtime = Runtime::builder().store(store).job(WALK, long_walk).start().await?;
    let session = runtime.session("survive").await?;

    // The key makes it the same task each time this program is started.
    let walk = session.spawn(WALK.with(STEPS).key("the walk")).await?;
    println!("{} in {}", walk.address(), path.display());
    println!("kill it any time with: kill -9 {}", std::process::id());

    println!("arrived: {:?}", walk.result().await?);
    session.close(None).await?;
    runtime.shutdown().await?;
    Ok(())
}

async fn long_walk(ctx: JobContext, steps: u32) -> Result<String, JobError> {
    let mut pids: Vec<u32> = Vec::new();
    for step in 1..=steps {
        let pid = ctx
            .step("walk", || async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                println!("  step {step} of {steps}");
                Ok::<_, JobError>(std::process::id())
            })
            .await?;
        if pids.last() != Some(&pid) {
            pids.push(pid);
        }
        if step % 5 == 0 {
            // The task is suspended meanwhile. The handler is entered again from the top, and
            // recorded steps return at once.
            ctx.sleep(Duration::from_millis(500)).await?;
        }
    }
    Ok(format!("{steps} steps, each walked once, by {} process(es)", pids.len()))
}
