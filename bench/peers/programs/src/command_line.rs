//! Work that is done by command lines.

use std::process::{Command, Stdio};

use peers_harness::{BoxError, ProcessTree, Sample};

/// Runs one item as a warm-up, then measures COUNT items, one after another.
pub fn run_commands(
    tree: &ProcessTree,
    count: usize,
    run_item: impl Fn() -> Result<(), BoxError>,
) -> Result<Sample, BoxError> {
    run_item()?;
    let watch = tree.start_stopwatch();
    for _ in 0..count {
        run_item()?;
    }
    Ok(watch.stop())
}

/// Runs a command to its end and returns the text that it prints.
pub fn read_command(command: &mut Command) -> Result<String, BoxError> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    if !output.status.success() {
        let program = command.get_program().to_string_lossy().into_owned();
        return Err(format!("{program}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
