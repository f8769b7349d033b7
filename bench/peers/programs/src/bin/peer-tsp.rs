//! task-spooler, whose first client starts the server.

use std::path::Path;
use std::process::{Command, ExitCode};

use peers_harness::{BoxError, Measured, ProcessTree, Work};
use peers_programs::installed::{NotInstalled, find_program};
use peers_programs::{Program, read_command, run_commands, run_program};

fn main() -> ExitCode {
    run_program::<Tsp>()
}

struct Tsp;

impl Program for Tsp {
    const NAME: &'static str = "tsp";
    const WORKS: &'static [Work] = &[Work::Exec];
    const OTHER_WORKS: &'static str = "a task is a process";

    fn version() -> Result<String, NotInstalled> {
        let mut tsp = Command::new(find_program("tsp")?);
        // "Task Spooler v1.0.1 - a task queue system for the unix user."
        let text = read_command(tsp.arg("-V")).unwrap_or_default();
        let version = text.split_whitespace().find_map(|word| word.strip_prefix('v'));
        Ok(format!("task-spooler {}", version.unwrap_or("?")))
    }

    fn measure(
        _work: Work,
        count: usize,
        dir: &Path,
        tree: &ProcessTree,
    ) -> Result<Measured, BoxError> {
        let sample = run_commands(tree, count, || {
            let id = read_command(tsp_command(dir).arg("true"))?;
            read_command(tsp_command(dir).args(["-w", &id]))?;
            Ok(())
        })?;
        Ok(sample.into())
    }
}

/// Returns a client whose server has a private socket.
fn tsp_command(dir: &Path) -> Command {
    let mut command = Command::new("tsp");
    command.env("TS_SOCKET", dir.join("socket")).env("TMPDIR", dir).current_dir(dir);
    command
}
