//! The command starts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::claim::Claim;
use super::enclose::{Enclosing, enclose, failed_step};
use super::group;
use super::layout;
use super::orders::{self, Orders};
use super::record::{Ending, Phase, ProcessId, Step};
use super::sandbox::{SandboxParts, ShimSandbox};
use super::surroundings::{FIRST_RULESET, Surroundings, Terminal};
use super::sys::{self, flags};
use super::terminal::{Pair, Typist};
use super::tree;

/// The error for what is not understood.
const INVALID: i32 = 22;

/// A command that was started, seen from the shim.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) id: ProcessId,
    /// By a clock that nobody sets, and not later than the command itself.
    pub(super) began: Instant,
    /// Its stdout and stderr; its terminal is the first.
    pub(super) outputs: [Option<File>; 2],
    pub(super) input: Input,
}

/// Where the command's input comes from.
#[derive(Debug)]
pub(super) enum Input {
    None,
    /// The command reads the pipe itself. This end keeps it from reading an end of file between two
    /// writers, and what was brought for the command is written to it. It never waits.
    Pipe {
        held: File,
    },
    Terminal(Typist),
}

/// What the command and the shim hold of its streams.
struct Streams {
    commands: [Stdio; 3],
    outputs: [Option<File>; 2],
    input: Input,
}

/// Starts the command and leaves the record at `Running`. The error is for the record.
pub(super) fn launch(orders: &Orders, claim: &mut Claim) -> Result<Launched, Ending> {
    if let Some(path) = &orders.working_directory {
        std::env::set_current_dir(path).map_err(refused(Step::WorkingDirectory))?;
    }
    let enclosing = enclosing(orders)?;
    let streams = match orders.surroundings.terminal {
        Some(size) => terminal(orders, size).map_err(refused(Step::Terminal))?,
        None => pipes(orders)?,
    };
    let [stdin, stdout, stderr] = streams.commands;
    let mut command = Command::new(&orders.program);
    command.args(&orders.arguments).stdin(stdin).stdout(stdout).stderr(stderr);
    let parts = parts(&enclosing);
    enclose(&mut command, enclosing);

    claim.record.phase = Phase::Launching;
    claim.record.started_at = now();
    let began = Instant::now();
    claim.record.has_terminal = orders.surroundings.terminal.is_some();
    // Who finds an earlier phase takes it that nothing was executed.
    claim.try_write().map_err(refused(Step::Execute))?;
    let child = command.spawn().map_err(|error| not_executed(orders, &error))?;
    drop(command);
    let id = ProcessId { pid: child.id(), start: tree::start_time(child.id()) };
    claim.record.phase = Phase::Running;
    claim.record.command = Some(id);
    claim.record.sandbox = parts;
    claim.write();
    // The command's directory may be unmounted or removed while the shim lives on.
    let _ = std::env::set_current_dir("/");
    Ok(Launched { id, began, outputs: streams.outputs, input: streams.input })
}

/// Reads the rest of the sandbox, where there is one.
fn enclosing(orders: &Orders) -> Result<Enclosing, Ending> {
    let surroundings = orders.surroundings;
    let group = group::of(&orders.directory);
    if surroundings.layers == 0 {
        return Ok(Enclosing { surroundings, group, ..Enclosing::default() });
    }
    let read = sys::read_descriptor(FIRST_RULESET + surroundings.layers);
    let sandbox = read.and_then(|bytes| {
        ShimSandbox::decode(&bytes).ok_or_else(|| io::Error::from_raw_os_error(INVALID))
    });
    let sandbox = sandbox.map_err(refused(Step::Confine))?;
    let working_directory = std::env::current_dir().map_err(refused(Step::WorkingDirectory))?;
    Ok(Enclosing { surroundings, sandbox, group, working_directory })
}

fn parts(enclosing: &Enclosing) -> SandboxParts {
    let is_confined = enclosing.surroundings.layers > 0;
    let namespaces = enclosing.sandbox.namespaces;
    SandboxParts {
        landlock: is_confined,
        seccomp: is_confined,
        mount: namespaces.mount,
        network: namespaces.network,
        group: enclosing.group.is_some(),
        memory: enclosing.group.as_deref().is_some_and(group::bounds_memory),
    }
}

/// Milliseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "the shim has no runtime to get the time from")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn refused(step: Step) -> impl Fn(io::Error) -> Ending {
    move |error| Ending::NotStarted { step, errno: error.raw_os_error().unwrap_or(0) }
}

fn not_executed(orders: &Orders, error: &io::Error) -> Ending {
    let (step, errno) = failed_step(error);
    // What is hidden is not found.
    let is_outside = matches!(
        io::Error::from_raw_os_error(errno).kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
    );
    let step = match step {
        Step::Execute if is_outside && orders.surroundings.layers > 0 => Step::ExecuteConfined,
        step => step,
    };
    Ending::NotStarted { step, errno }
}

fn pipes(orders: &Orders) -> Result<Streams, Ending> {
    let (stdin, input) = match orders.input {
        orders::Input::Open => open_input(orders).map_err(refused(Step::Input))?,
        // The shim's own stdin is the null device.
        orders::Input::None => (Stdio::inherit(), Input::None),
    };
    let (out, err) = pipe().and_then(|out| Ok((out, pipe()?))).map_err(refused(Step::Execute))?;
    let commands = [stdin, out.1.into(), err.1.into()];
    Ok(Streams { commands, outputs: [Some(out.0), Some(err.0)], input })
}

fn pipe() -> io::Result<(File, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((OwnedFd::from(reader).into(), writer))
}

/// The command gets the only reading end, so that writers hear when it has closed its input.
fn open_input(orders: &Orders) -> io::Result<(Stdio, Input)> {
    let path = orders.directory.join(layout::STDIN);
    sys::make_fifo(&path)?;
    let ends = (|| {
        // Opening one end of a pipe waits for the other one, unless both are open already.
        let both = OpenOptions::new().read(true).write(true).open(&path)?;
        let reader = File::open(&path)?;
        let held = OpenOptions::new().write(true).custom_flags(flags::NO_WAITING).open(&path)?;
        drop(both);
        Ok((Stdio::from(reader), Input::Pipe { held }))
    })();
    if ends.is_err() {
        let _ = fs::remove_file(&path);
    }
    ends
}

/// One terminal for all three. It can be typed on, whether or not anybody does.
fn terminal(orders: &Orders, size: Terminal) -> io::Result<Streams> {
    let pair = Pair::open(size)?;
    let shared = || pair.commands.try_clone().map(Stdio::from);
    let commands = [shared()?, shared()?, shared()?];
    allow(&pair, &orders.surroundings)?;
    let outputs = [Some(pair.ours.try_clone()?), None];
    let typist = Typist::new(pair, &orders.directory.join(layout::STDIN))?;
    Ok(Streams { commands, outputs, input: Input::Terminal(typist) })
}

/// A confined command may open its own terminal again, and no other.
fn allow(pair: &Pair, surroundings: &Surroundings) -> io::Result<()> {
    #[cfg(full_linux)]
    for layer in 0..surroundings.layers {
        sys::allow_terminal(FIRST_RULESET + layer, &pair.commands)?;
    }
    #[cfg(not(full_linux))]
    let _ = (pair, surroundings, FIRST_RULESET);
    Ok(())
}
