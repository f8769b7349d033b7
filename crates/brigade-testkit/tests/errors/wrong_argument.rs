//! A job is spawned with an argument of another type.

use brigade_runtime::{Job, Session};

const BAKE: Job<u32, String> = Job::new("bake");

async fn spawn(session: Session) {
    let _ = session.spawn(BAKE.with("twelve")).await;
}

fn main() {
    let _ = spawn;
}
