//! The result of a task is used as another type.

use brigade_runtime::{Job, Session, TaskError};

const BAKE: Job<u32, String> = Job::new("bake");

async fn count_loaves(session: Session) -> Result<u32, TaskError> {
    let loaves: u32 = session.spawn(BAKE.with(12)).await?.result().await?;
    Ok(loaves)
}

fn main() {
    let _ = count_loaves;
}
