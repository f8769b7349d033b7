//! Sets up the child between fork and exec: terminal, limits and sandbox.
#![expect(unsafe_code, reason = "runs code between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::cgroup;
use super::launch_settings::{LaunchSettings, ProcessLimits};
use super::record::StartStep;
use super::sandbox::ShimSandbox;
use super::sys::{self, resource};

/// The seconds between the CPU limit's signal and the kill.
const CPU_GRACE: u64 = 2;

/// The shift of the step number, above any errno.
const STEP_SHIFT: u32 = 16;
const CHILD_STEPS: [StartStep; 7] = [
    StartStep::ControlGroup,
    StartStep::Terminal,
    StartStep::Namespaces,
    StartStep::WorkingDirectory,
    StartStep::Limits,
    StartStep::Sandbox,
    StartStep::Filter,
];

/// The settings that the child applies to itself.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildSetup {
    pub(super) settings: LaunchSettings,
    pub(super) sandbox: ShimSandbox,
    pub(super) group: Option<PathBuf>,
    /// The child enters it again if mounts cover it.
    pub(super) working_directory: PathBuf,
}

/// Lets the child apply the setup before it executes anything. If a step fails, nothing is
/// executed.
pub(super) fn set_up_child(command: &mut Command, setup: ChildSetup) {
    if setup.settings.terminal.is_none() {
        command.process_group(0);
    }
    if setup.settings.is_default() && setup.group.is_none() {
        return;
    }
    // SAFETY: the shim has one thread, so no other thread holds a lock at the fork. Everything
    // allowed before the fork is allowed after it. Errors are numbers, because nothing else reaches
    // the parent.
    unsafe { command.pre_exec(move || apply_setup(&setup)) };
}

/// The reason of a failed start.
pub(super) struct StartFailure {
    pub(super) step: StartStep,
    pub(super) errno: i32,
}

/// Decodes the step and errno of a failed start.
pub(super) fn start_failure(error: &io::Error) -> StartFailure {
    let number = error.raw_os_error().unwrap_or(0);
    let step = usize::try_from(number >> STEP_SHIFT).unwrap_or(0);
    match step.checked_sub(1).and_then(|index| CHILD_STEPS.get(index)) {
        Some(step) => StartFailure { step: *step, errno: number & ((1 << STEP_SHIFT) - 1) },
        None => StartFailure { step: StartStep::Execute, errno: number },
    }
}

/// Applies the setup. Namespaces come first: they may need more than the limits allow, and later
/// steps forbid them. The filter comes last.
fn apply_setup(setup: &ChildSetup) -> io::Result<()> {
    let settings = &setup.settings;
    if let Some(group) = &setup.group {
        cgroup::enter_group(group).map_err(tag_step(StartStep::ControlGroup))?;
    }
    if settings.terminal.is_some() {
        sys::set_controlling_terminal().map_err(tag_step(StartStep::Terminal))?;
    }
    enter_namespaces(setup).map_err(tag_step(StartStep::Namespaces))?;
    if setup.sandbox.namespaces.mount {
        let entered = std::env::set_current_dir(&setup.working_directory);
        entered.map_err(tag_step(StartStep::WorkingDirectory))?;
    }
    apply_limits(&settings.limits).map_err(tag_step(StartStep::Limits))?;
    apply_rulesets(settings.layers).map_err(tag_step(StartStep::Sandbox))?;
    apply_filter(setup).map_err(tag_step(StartStep::Filter))
}

#[cfg(full_linux)]
fn enter_namespaces(setup: &ChildSetup) -> io::Result<()> {
    use super::launch_settings::FIRST_RULESET;
    use super::namespaces;
    let ShimSandbox { namespaces, layers, .. } = &setup.sandbox;
    namespaces::unshare_namespaces(*namespaces)?;
    namespaces::mount_all_layers(layers, FIRST_RULESET..FIRST_RULESET + setup.settings.layers)
}

#[cfg(full_linux)]
fn apply_rulesets(layers: u32) -> io::Result<()> {
    if layers == 0 {
        return Ok(());
    }
    super::privileges::drop_privileges()?;
    (0..layers)
        .try_for_each(|layer| sys::apply_ruleset(super::launch_settings::FIRST_RULESET + layer))
}

#[cfg(full_linux)]
fn apply_filter(setup: &ChildSetup) -> io::Result<()> {
    if setup.settings.layers == 0 {
        return Ok(());
    }
    super::privileges::install_filter(&setup.sandbox.filter)
}

#[cfg(not(full_linux))]
fn enter_namespaces(_: &ChildSetup) -> io::Result<()> {
    Ok(())
}

#[cfg(not(full_linux))]
fn apply_rulesets(layers: u32) -> io::Result<()> {
    if layers == 0 { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

#[cfg(not(full_linux))]
fn apply_filter(_: &ChildSetup) -> io::Result<()> {
    Ok(())
}

/// Encodes the step in the error number, because nothing else reaches the parent.
fn tag_step(step: StartStep) -> impl Fn(io::Error) -> io::Error {
    let step_number =
        CHILD_STEPS.iter().position(|child_step| *child_step == step).map_or(0, |index| index + 1);
    move |error| {
        let number = error.raw_os_error().unwrap_or(0);
        io::Error::from_raw_os_error((step_number as i32) << STEP_SHIFT | number)
    }
}

fn apply_limits(limits: &ProcessLimits) -> io::Result<()> {
    if let Some(bytes) = limits.memory {
        sys::set_limit(resource::ADDRESS_SPACE, bytes, bytes)?;
    }
    if let Some(seconds) = limits.cpu_seconds {
        // A signal comes first, so that processes that exceed the limit show the reason.
        sys::set_limit(resource::CPU, seconds, seconds.saturating_add(CPU_GRACE))?;
    }
    if let Some(files) = limits.open_files {
        sys::set_limit(resource::OPEN_FILES, files, files)?;
    }
    Ok(())
}
