//! Starts the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::cgroup;
use super::child_setup::{ChildSetup, StartFailure, set_up_child, start_failure};
use super::claim::Claim;
use super::launch_settings::{FIRST_RULESET, LaunchSettings, PtySize};
use super::layout;
use super::process_tree;
use super::record::{ProcessExit, ProcessId, ShimPhase, StartStep};
use super::sandbox::{SandboxParts, ShimSandbox};
use super::shim_args::{self, ShimArgs};
use super::sys::{self, flags};
use super::terminal::{PtyPair, TerminalInput};

/// The errno of a sandbox file that cannot be decoded.
const INVALID_ARGUMENT: i32 = 22;

/// A started process and the shim's ends of its streams.
#[derive(Debug)]
pub(super) struct LaunchedProcess {
    pub(super) id: ProcessId,
    /// The start by a monotonic clock, not later than the process itself.
    pub(super) began: Instant,
    /// Its stdout and stderr. A terminal is the first.
    pub(super) outputs: [Option<File>; 2],
    pub(super) input: InputSource,
}

/// The source of the process's stdin.
#[derive(Debug)]
pub(super) enum InputSource {
    None,
    /// A named pipe that the process reads itself. The shim holds a write end, so that the process
    /// sees no end of file between two writers. The shim also writes spooled bytes to it, without
    /// blocking.
    Pipe {
        held: File,
    },
    Terminal(TerminalInput),
}

/// Both ends of the process's streams.
struct CommandStreams {
    child_ends: [Stdio; 3],
    outputs: [Option<File>; 2],
    input: InputSource,
}

/// Starts the process and sets the record to `Running`. The error goes into the record.
pub(super) fn launch_process(
    args: &ShimArgs,
    claim: &mut Claim,
) -> Result<LaunchedProcess, ProcessExit> {
    if let Some(path) = &args.working_directory {
        std::env::set_current_dir(path).map_err(not_started(StartStep::WorkingDirectory))?;
    }
    let setup = build_child_setup(args)?;
    let streams = match args.settings.terminal {
        Some(size) => open_terminal(args, size).map_err(not_started(StartStep::Terminal))?,
        None => open_pipes(args)?,
    };
    let [stdin, stdout, stderr] = streams.child_ends;
    let mut command = Command::new(&args.program);
    command.args(&args.arguments).stdin(stdin).stdout(stdout).stderr(stderr);
    let parts = sandbox_parts(&setup);
    set_up_child(&mut command, setup);

    claim.record.phase = ShimPhase::Launching;
    claim.record.started_at = now();
    let began = Instant::now();
    claim.record.has_terminal = args.settings.terminal.is_some();
    // A reader that finds an earlier phase concludes that nothing was executed.
    claim.try_write().map_err(not_started(StartStep::Execute))?;
    let child = command.spawn().map_err(|error| execute_failure(args, &error))?;
    drop(command);
    let id = ProcessId { pid: child.id(), start: process_tree::start_time(child.id()) };
    claim.record.phase = ShimPhase::Running;
    claim.record.command = Some(id);
    claim.record.sandbox = parts;
    claim.write();
    // The working directory may be unmounted or removed while the shim runs.
    let _ = std::env::set_current_dir("/");
    Ok(LaunchedProcess { id, began, outputs: streams.outputs, input: streams.input })
}

/// Reads the file with the other parts of the sandbox, if there is one.
fn build_child_setup(args: &ShimArgs) -> Result<ChildSetup, ProcessExit> {
    let settings = args.settings;
    let group = cgroup::read_group_path(&args.directory);
    if settings.layers == 0 {
        return Ok(ChildSetup { settings, group, ..ChildSetup::default() });
    }
    let read = sys::read_descriptor(FIRST_RULESET + settings.layers);
    let sandbox = read.and_then(|bytes| {
        ShimSandbox::decode(&bytes).ok_or_else(|| io::Error::from_raw_os_error(INVALID_ARGUMENT))
    });
    let sandbox = sandbox.map_err(not_started(StartStep::Sandbox))?;
    let working_directory =
        std::env::current_dir().map_err(not_started(StartStep::WorkingDirectory))?;
    Ok(ChildSetup { settings, sandbox, group, working_directory })
}

fn sandbox_parts(setup: &ChildSetup) -> SandboxParts {
    let is_sandboxed = setup.settings.layers > 0;
    let namespaces = setup.sandbox.namespaces;
    SandboxParts {
        landlock: is_sandboxed,
        seccomp: is_sandboxed,
        mount: namespaces.mount,
        network: namespaces.network,
        control_group: setup.group.is_some(),
        memory_limit: setup.group.as_deref().is_some_and(cgroup::has_memory_limit),
    }
}

/// Returns the milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the shim has no runtime to get the time from")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

fn not_started(step: StartStep) -> impl Fn(io::Error) -> ProcessExit {
    move |error| ProcessExit::NotStarted { step, errno: error.raw_os_error().unwrap_or(0) }
}

fn execute_failure(args: &ShimArgs, error: &io::Error) -> ProcessExit {
    let StartFailure { step, errno } = start_failure(error);
    // Hidden files are not found.
    let is_denied = matches!(
        io::Error::from_raw_os_error(errno).kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
    );
    let step = match step {
        StartStep::Execute if is_denied && args.settings.layers > 0 => StartStep::ExecuteSandboxed,
        step => step,
    };
    ProcessExit::NotStarted { step, errno }
}

fn open_pipes(args: &ShimArgs) -> Result<CommandStreams, ProcessExit> {
    let (stdin, input) = match args.input {
        shim_args::InputMode::Open => open_input(args).map_err(not_started(StartStep::Input))?,
        // The shim's own stdin is the null device.
        shim_args::InputMode::None => (Stdio::inherit(), InputSource::None),
    };
    let out = pipe().map_err(not_started(StartStep::Execute))?;
    let err = pipe().map_err(not_started(StartStep::Execute))?;
    let child_ends = [stdin, out.1.into(), err.1.into()];
    Ok(CommandStreams { child_ends, outputs: [Some(out.0), Some(err.0)], input })
}

fn pipe() -> io::Result<(File, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((OwnedFd::from(reader).into(), writer))
}

/// Creates the named pipe. The process gets the only read end, so that writers notice when it
/// closes its stdin.
fn open_input(args: &ShimArgs) -> io::Result<(Stdio, InputSource)> {
    let path = args.directory.join(layout::STDIN);
    sys::make_fifo(&path)?;
    let ends = (|| {
        // Opening one end of a pipe blocks until the other end is open.
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

/// Opens one terminal for all three streams. It always accepts input.
fn open_terminal(args: &ShimArgs, size: PtySize) -> io::Result<CommandStreams> {
    let pair = PtyPair::open(size)?;
    let shared = || pair.child_end.try_clone().map(Stdio::from);
    let child_ends = [shared()?, shared()?, shared()?];
    allow_own_terminal(&pair, &args.settings)?;
    let outputs = [Some(pair.shim_end.try_clone()?), None];
    let terminal_input = TerminalInput::new(pair, &args.directory.join(layout::STDIN))?;
    Ok(CommandStreams { child_ends, outputs, input: InputSource::Terminal(terminal_input) })
}

/// Lets a sandboxed process open its own terminal, and no other.
fn allow_own_terminal(pair: &PtyPair, settings: &LaunchSettings) -> io::Result<()> {
    #[cfg(full_linux)]
    for layer in 0..settings.layers {
        sys::allow_terminal(FIRST_RULESET + layer, &pair.child_end)?;
    }
    #[cfg(not(full_linux))]
    let _ = (pair, settings, FIRST_RULESET);
    Ok(())
}
