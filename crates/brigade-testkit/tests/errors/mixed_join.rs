//! The tasks of one join have the same type.

use brigade_runtime::{Job, Session};

const BAKE: Job<u32, String> = Job::new("bake");
const COUNT: Job<u32, u32> = Job::new("count");

async fn join(session: Session) {
    let _ = session.join_all([BAKE.with(1), COUNT.with(1)]).await;
}

fn main() {
    let _ = join;
}
