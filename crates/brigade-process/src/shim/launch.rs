//! The command starts.
//!
//! What a command is started *in* belongs here: a pseudo-terminal that the shim owns would take the
//! place of the pipes, and Landlock rules and resource limits would be set between the last write of
//! the record and the spawn.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::claim::Claim;
use super::layout;
use super::orders::{Input, Orders};
use super::record::{Ending, Phase, ProcessId, Step};
use super::sys;
use super::tree;

/// A command that was started, seen from the shim.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) id: ProcessId,
    /// Its stdout and stderr.
    pub(super) pipes: [PipeReader; 2],
    /// Keeps the command from reading an end of file between two writers. Never written to.
    pub(super) input: Option<File>,
}

/// Starts the command and leaves the record at `Running`. The error is for the record.
pub(super) fn launch(orders: &Orders, claim: &mut Claim) -> Result<Launched, Ending> {
    if let Some(path) = &orders.working_directory {
        std::env::set_current_dir(path).map_err(refused(Step::WorkingDirectory))?;
    }
    let (stdin, input) = match orders.input {
        Input::Open => open_input(orders).map_err(refused(Step::Input))?,
        // The shim's own stdin is the null device.
        Input::None => (Stdio::inherit(), None),
    };
    let (out, err) = pipes().map_err(refused(Step::Execute))?;
    let mut command = Command::new(&orders.program);
    command.args(&orders.arguments).process_group(0).stdin(stdin).stdout(out.1).stderr(err.1);

    claim.record.phase = Phase::Launching;
    claim.record.started_at = now();
    // Who finds an earlier phase takes it that nothing was executed.
    claim.try_write().map_err(refused(Step::Execute))?;
    let child = command.spawn().map_err(refused(Step::Execute))?;
    let id = ProcessId { pid: child.id(), start: tree::start_time(child.id()) };
    claim.record.phase = Phase::Running;
    claim.record.command = Some(id);
    claim.write();
    // The command's directory may be unmounted or removed while the shim lives on.
    let _ = std::env::set_current_dir("/");
    Ok(Launched { id, pipes: [out.0, err.0], input })
}

/// Milliseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "the shim has no runtime to get the time from")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn refused(step: Step) -> impl Fn(io::Error) -> Ending {
    move |error| Ending::NotStarted { step, errno: error.raw_os_error().unwrap_or(0) }
}

/// The command gets the only reading end, so that writers hear when it has closed its input.
fn open_input(orders: &Orders) -> io::Result<(Stdio, Option<File>)> {
    let path = orders.directory.join(layout::STDIN);
    sys::make_fifo(&path)?;
    let ends = (|| {
        // Opening one end of a pipe waits for the other one, unless both are open already.
        let both = OpenOptions::new().read(true).write(true).open(&path)?;
        let reader = File::open(&path)?;
        let writer = OpenOptions::new().write(true).open(&path)?;
        drop(both);
        Ok((Stdio::from(reader), Some(writer)))
    })();
    if ends.is_err() {
        let _ = fs::remove_file(&path);
    }
    ends
}

type Pipe = (PipeReader, PipeWriter);

fn pipes() -> io::Result<(Pipe, Pipe)> {
    Ok((io::pipe()?, io::pipe()?))
}
