//! A process has a working directory, and a job has none.

use brigade_runtime::{Job, NewTask};

const BAKE: Job<u32, String> = Job::new("bake");

fn main() {
    let _ = NewTask::shell("ls").cwd("/kitchen");
    let _ = BAKE.with(12).cwd("/kitchen");
    let _ = NewTask::job("bake", 12).cwd("/kitchen");
}
