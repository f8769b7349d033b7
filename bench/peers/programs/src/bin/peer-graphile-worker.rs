//! Graphile Worker, with a PostgreSQL server of its own.

use std::path::Path;
use std::process::{Command, ExitCode};

use peers_harness::{BoxError, Measured, ProcessTree, Work};
use peers_programs::installed::{NotInstalled, find_program, npm_version, postgres_version};
use peers_programs::{Postgres, Program, WorkerScript, run_program};

/// The most items that surely end before the limit of a run.
const COUNT_MAX: usize = 2_000;

fn main() -> ExitCode {
    run_program::<GraphileWorker>()
}

struct GraphileWorker;

impl Program for GraphileWorker {
    const NAME: &'static str = "graphile-worker";
    const WORKS: &'static [Work] = &[Work::Durable];
    const OTHER_WORKS: &'static str = "measured as a queue of jobs, which record no steps";

    fn version() -> Result<String, NotInstalled> {
        find_program("node")?;
        let worker = npm_version("graphile-worker")?;
        Ok(format!("graphile-worker {worker}, PostgreSQL {}", postgres_version()?))
    }

    fn measure(
        work: Work,
        count: usize,
        dir: &Path,
        tree: &ProcessTree,
    ) -> Result<Measured, BoxError> {
        let postgres = Postgres::start()?;
        let count = count.min(COUNT_MAX);
        let mut node = Command::new("node");
        node.arg(WorkerScript::path("graphile-worker/worker.cjs"));
        node.env("DATABASE_URL", postgres.url());
        let script = WorkerScript::start(&mut node, work, count, dir)?;
        Ok(script.measure(tree)?.with_count(count).into())
    }
}
