//! A handler returns a result of another type than its job.

use brigade_runtime::{Job, JobContext, JobError, Runtime};

const BAKE: Job<u32, String> = Job::new("bake");

async fn bake(_ctx: JobContext, loaves: u32) -> Result<u32, JobError> {
    Ok(loaves)
}

fn main() {
    let _ = Runtime::builder().job(BAKE, bake);
}
