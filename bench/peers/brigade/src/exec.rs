//! Processes by the program `brigade`: `brigade exec -- true`, with a daemon of its own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use peers_harness::{BRIGADE_VARIABLE, BoxError, Measured, ProcessTree};

/// The time that the daemon has to start.
const START_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn one_after_another(count: usize) -> Result<Measured, BoxError> {
    let program = std::env::var(BRIGADE_VARIABLE).unwrap_or_else(|_| "brigade".to_owned());
    let dir = tempfile::tempdir()?;
    let tree = ProcessTree::adopt()?;
    brigade(&program, dir.path()).args(["daemon", "start", "--foreground"]).spawn()?;
    wait_for_daemon(&program, dir.path())?;
    run_true(&program, dir.path())?;
    let watch = tree.start_stopwatch();
    for _ in 0..count {
        run_true(&program, dir.path())?;
    }
    Ok(watch.stop().into())
}

/// Returns a command of `brigade` with a private state directory and no user configuration.
fn brigade(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("BRIGADE_STATE", dir.join("state")).env("XDG_CONFIG_HOME", dir);
    command.env_remove("BRIGADE_CONFIG").env_remove("BRIGADE_TASK").current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn wait_for_daemon(program: &str, dir: &Path) -> Result<(), BoxError> {
    let started_at = Instant::now();
    while !brigade(program, dir).args(["daemon", "status"]).status()?.success() {
        if started_at.elapsed() > START_LIMIT {
            return Err("the daemon of `brigade` did not start".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn run_true(program: &str, dir: &Path) -> Result<(), BoxError> {
    let status = brigade(program, dir).args(["exec", "--", "true"]).status()?;
    if status.success() { Ok(()) } else { Err(format!("brigade exec: {status}").into()) }
}
