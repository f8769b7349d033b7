//! pueue, with a daemon of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use peers_harness::{BoxError, Measured, ProcessTree, Work};
use peers_programs::installed::{NotInstalled, find_program, read_version};
use peers_programs::{Program, Server, read_command, run_commands, run_program};

/// The most items that surely end before the limit of a run: the client looks for the end of a
/// task about every half second.
const COUNT_MAX: usize = 15;

fn main() -> ExitCode {
    run_program::<Pueue>()
}

struct Pueue;

impl Program for Pueue {
    const NAME: &'static str = "pueue";
    const WORKS: &'static [Work] = &[Work::Exec];
    const OTHER_WORKS: &'static str = "a task is a process";

    fn version() -> Result<String, NotInstalled> {
        find_program("pueued")?;
        let mut pueue = Command::new(find_program("pueue")?);
        let version = read_version(pueue.arg("--version")).unwrap_or_else(|| "?".to_owned());
        Ok(format!("pueue {version}"))
    }

    fn measure(
        _work: Work,
        count: usize,
        dir: &Path,
        tree: &ProcessTree,
    ) -> Result<Measured, BoxError> {
        write_config(dir)?;
        let mut server = Server::start(&mut pueue_command("pueued", dir), dir, "pueued")?;
        server.wait_until(|| read_command(pueue_command("pueue", dir).arg("status")).is_ok())?;
        let count = count.min(COUNT_MAX);
        let sample = run_commands(tree, count, || {
            // `pueue wait` looks only every two seconds.
            let mut add = pueue_command("pueue", dir);
            read_command(add.args(["add", "--immediate", "--follow", "--", "true"]))?;
            Ok(())
        })?;
        Ok(sample.with_count(count).into())
    }
}

/// Writes a configuration with a private state directory. All other settings are the defaults.
fn write_config(dir: &Path) -> Result<(), BoxError> {
    let path = dir.display();
    let shared = format!("  pueue_directory: {path}/state\n  runtime_directory: {path}/run\n");
    for name in ["state", "run"] {
        fs::create_dir(dir.join(name))?;
    }
    Ok(fs::write(dir.join("pueue.yml"), format!("shared:\n{shared}"))?)
}

fn pueue_command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--config").arg(dir.join("pueue.yml")).current_dir(dir);
    command
}
