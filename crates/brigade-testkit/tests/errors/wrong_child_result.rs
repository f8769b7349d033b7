//! The result of a child is used as another type.

use brigade_runtime::{Job, JobContext, JobError};

const BAKE: Job<u32, String> = Job::new("bake");

async fn bake_all(ctx: JobContext) -> Result<u32, JobError> {
    let child = ctx.spawn(BAKE.with(12)).await?;
    let loaves: u32 = ctx.result(&child).await?;
    Ok(loaves)
}

fn main() {
    let _ = bake_all;
}
