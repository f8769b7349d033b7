//! DBOS for Python, with a PostgreSQL server of its own.

use std::path::Path;
use std::process::{Command, ExitCode};

use peers_harness::{BoxError, Measured, ProcessTree, Work};
use peers_programs::installed::{NotInstalled, find_python, postgres_version, python_version};
use peers_programs::{Postgres, Program, WorkerScript, run_program};

/// The most items of `durable` that surely end before the limit of a run.
const DURABLE_COUNT_MAX: usize = 1_000;
/// The most items of `steps` that surely end before the limit of a run.
const STEPS_COUNT_MAX: usize = 200;

fn main() -> ExitCode {
    run_program::<Dbos>()
}

struct Dbos;

impl Program for Dbos {
    const NAME: &'static str = "dbos";
    const WORKS: &'static [Work] = &[Work::Durable, Work::Steps];
    const OTHER_WORKS: &'static str = "measured with durable work only";

    fn version() -> Result<String, NotInstalled> {
        let dbos = python_version("dbos")?;
        Ok(format!("dbos {dbos}, PostgreSQL {}", postgres_version()?))
    }

    fn measure(
        work: Work,
        count: usize,
        dir: &Path,
        tree: &ProcessTree,
    ) -> Result<Measured, BoxError> {
        let postgres = Postgres::start()?;
        let count_max = if work == Work::Steps { STEPS_COUNT_MAX } else { DURABLE_COUNT_MAX };
        let count = count.min(count_max);
        let mut python = Command::new(find_python()?);
        python.arg(WorkerScript::path("dbos/worker.py"));
        python.env("DATABASE_URL", postgres.url());
        let script = WorkerScript::start(&mut python, work, count, dir)?;
        Ok(script.measure(tree)?.with_count(count).into())
    }
}
