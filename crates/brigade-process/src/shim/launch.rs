//! The command starts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::cgroup;
use super::child_setup::{ChildSetup, failed_step, set_up_child};
use super::claim::Claim;
use super::launch_settings::{FIRST_RULESET, LaunchSettings, PtySize};
use super::layout;
use super::record::{ProcessExit, ProcessId, ShimPhase, StartStep};
use super::sandbox::{SandboxParts, ShimSandbox};
use super::shim_args::{self, ShimArgs};
use super::sys::{self, flags};
use super::terminal::{PtyPair, TerminalInput};
use super::tree;

/// The error for what is not understood.
const INVALID_ARGUMENT: i32 = 22;

/// A command that was started, seen from the shim.
#[derive(Debug)]
pub(super) struct LaunchedProcess {
    pub(super) id: ProcessId,
    /// By a clock that nobody sets, and not later than the command itself.
    pub(super) began: Instant,
    /// Its stdout and stderr; its terminal is the first.
    pub(super) outputs: [Option<File>; 2],
    pub(super) input: InputSource,
}

/// Where the command's input comes from.
#[derive(Debug)]
pub(super) enum InputSource {
    None,
    /// The command reads the pipe itself. This end keeps it from reading an end of file between two
    /// writers, and what was brought for the command is written to it. It never waits.
    Pipe {
        held: File,
    },
    Terminal(TerminalInput),
}

/// What the command and the shim hold of its streams.
struct CommandStreams {
    child_ends: [Stdio; 3],
    outputs: [Option<File>; 2],
    input: InputSource,
}

/// Starts the command and leaves the record at `Running`. The error is for the record.
pub(super) fn launch_process(
    orders: &ShimArgs,
    claim: &mut Claim,
) -> Result<LaunchedProcess, ProcessExit> {
    if let Some(path) = &orders.working_directory {
        std::env::set_current_dir(path).map_err(not_started(StartStep::WorkingDirectory))?;
    }
    let enclosing = build_child_setup(orders)?;
    let streams = match orders.settings.terminal {
        Some(size) => open_terminal(orders, size).map_err(not_started(StartStep::Terminal))?,
        None => open_pipes(orders)?,
    };
    let [stdin, stdout, stderr] = streams.child_ends;
    let mut command = Command::new(&orders.program);
    command.args(&orders.arguments).stdin(stdin).stdout(stdout).stderr(stderr);
    let parts = sandbox_parts(&enclosing);
    set_up_child(&mut command, enclosing);

    claim.record.phase = ShimPhase::Launching;
    claim.record.started_at = now();
    let began = Instant::now();
    claim.record.has_terminal = orders.settings.terminal.is_some();
    // Who finds an earlier phase takes it that nothing was executed.
    claim.try_write().map_err(not_started(StartStep::Execute))?;
    let child = command.spawn().map_err(|error| execute_failure(orders, &error))?;
    drop(command);
    let id = ProcessId { pid: child.id(), start: tree::start_time(child.id()) };
    claim.record.phase = ShimPhase::Running;
    claim.record.command = Some(id);
    claim.record.sandbox = parts;
    claim.write();
    // The command's directory may be unmounted or removed while the shim lives on.
    let _ = std::env::set_current_dir("/");
    Ok(LaunchedProcess { id, began, outputs: streams.outputs, input: streams.input })
}

/// Reads the rest of the sandbox, where there is one.
fn build_child_setup(orders: &ShimArgs) -> Result<ChildSetup, ProcessExit> {
    let surroundings = orders.settings;
    let group = cgroup::read_group_path(&orders.directory);
    if surroundings.layers == 0 {
        return Ok(ChildSetup { settings: surroundings, group, ..ChildSetup::default() });
    }
    let read = sys::read_descriptor(FIRST_RULESET + surroundings.layers);
    let sandbox = read.and_then(|bytes| {
        ShimSandbox::decode(&bytes).ok_or_else(|| io::Error::from_raw_os_error(INVALID_ARGUMENT))
    });
    let sandbox = sandbox.map_err(not_started(StartStep::Sandbox))?;
    let working_directory =
        std::env::current_dir().map_err(not_started(StartStep::WorkingDirectory))?;
    Ok(ChildSetup { settings: surroundings, sandbox, group, working_directory })
}

fn sandbox_parts(enclosing: &ChildSetup) -> SandboxParts {
    let is_confined = enclosing.settings.layers > 0;
    let namespaces = enclosing.sandbox.namespaces;
    SandboxParts {
        landlock: is_confined,
        seccomp: is_confined,
        mount: namespaces.mount,
        network: namespaces.network,
        control_group: enclosing.group.is_some(),
        memory_limit: enclosing.group.as_deref().is_some_and(cgroup::has_memory_limit),
    }
}

/// Milliseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "the shim has no runtime to get the time from")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn not_started(step: StartStep) -> impl Fn(io::Error) -> ProcessExit {
    move |error| ProcessExit::NotStarted { step, errno: error.raw_os_error().unwrap_or(0) }
}

fn execute_failure(orders: &ShimArgs, error: &io::Error) -> ProcessExit {
    let (step, errno) = failed_step(error);
    // What is hidden is not found.
    let is_outside = matches!(
        io::Error::from_raw_os_error(errno).kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
    );
    let step = match step {
        StartStep::Execute if is_outside && orders.settings.layers > 0 => {
            StartStep::ExecuteSandboxed
        }
        step => step,
    };
    ProcessExit::NotStarted { step, errno }
}

fn open_pipes(orders: &ShimArgs) -> Result<CommandStreams, ProcessExit> {
    let (stdin, input) = match orders.input {
        shim_args::InputMode::Open => open_input(orders).map_err(not_started(StartStep::Input))?,
        // The shim's own stdin is the null device.
        shim_args::InputMode::None => (Stdio::inherit(), InputSource::None),
    };
    let (out, err) =
        pipe().and_then(|out| Ok((out, pipe()?))).map_err(not_started(StartStep::Execute))?;
    let commands = [stdin, out.1.into(), err.1.into()];
    Ok(CommandStreams { child_ends: commands, outputs: [Some(out.0), Some(err.0)], input })
}

fn pipe() -> io::Result<(File, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((OwnedFd::from(reader).into(), writer))
}

/// The command gets the only reading end, so that writers hear when it has closed its input.
fn open_input(orders: &ShimArgs) -> io::Result<(Stdio, InputSource)> {
    let path = orders.directory.join(layout::STDIN);
    sys::make_fifo(&path)?;
    let ends = (|| {
        // Opening one end of a pipe waits for the other one, unless both are open already.
        let both = OpenOptions::new().read(true).write(true).open(&path)?;
        let reader = File::open(&path)?;
        let held = OpenOptions::new().write(true).custom_flags(flags::NO_WAITING).open(&path)?;
        drop(both);
        Ok((Stdio::from(reader), InputSource::Pipe { held }))
    })();
    if ends.is_err() {
        let _ = fs::remove_file(&path);
    }
    ends
}

/// One terminal for all three. It can be typed on, whether or not anybody does.
fn open_terminal(orders: &ShimArgs, size: PtySize) -> io::Result<CommandStreams> {
    let pair = PtyPair::open(size)?;
    let shared = || pair.child_end.try_clone().map(Stdio::from);
    let commands = [shared()?, shared()?, shared()?];
    allow_own_terminal(&pair, &orders.settings)?;
    let outputs = [Some(pair.shim_end.try_clone()?), None];
    let typist = TerminalInput::new(pair, &orders.directory.join(layout::STDIN))?;
    Ok(CommandStreams { child_ends: commands, outputs, input: InputSource::Terminal(typist) })
}

/// A confined command may open its own terminal again, and no other.
fn allow_own_terminal(pair: &PtyPair, surroundings: &LaunchSettings) -> io::Result<()> {
    #[cfg(full_linux)]
    for layer in 0..surroundings.layers {
        sys::allow_terminal(FIRST_RULESET + layer, &pair.child_end)?;
    }
    #[cfg(not(full_linux))]
    let _ = (pair, surroundings, FIRST_RULESET);
    Ok(())
}
