//! What happens in the child between fork and exec: the terminal becomes its own, its limits are set,
//! and it is sandboxed for good.
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

/// Between being told that its time is up and being killed for it.
const CPU_GRACE: u64 = 2;

/// Above any errno: which step failed travels in the same number.
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

/// What is applied to the command.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildSetup {
    pub(super) settings: LaunchSettings,
    pub(super) sandbox: ShimSandbox,
    pub(super) group: Option<PathBuf>,
    /// Entered again when other mounts lie over it.
    pub(super) working_directory: PathBuf,
}

/// Has the command enclosed before it is executed. Whatever fails, it is not executed.
pub(super) fn set_up_child(command: &mut Command, enclosing: ChildSetup) {
    if enclosing.settings.terminal.is_none() {
        command.process_group(0);
    }
    if enclosing.settings.is_default() && enclosing.group.is_none() {
        return;
    }
    // SAFETY: the shim has one thread, so nothing that another one may have held at the fork is waited
    // for: what may be done before it may be done after it. Errors are made from numbers, the only thing
    // that reaches the parent.
    unsafe { command.pre_exec(move || apply_setup(&enclosing)) };
}

/// What an error of the start is about.
pub(super) fn failed_step(error: &io::Error) -> (StartStep, i32) {
    let number = error.raw_os_error().unwrap_or(0);
    let step = usize::try_from(number >> STEP_SHIFT).unwrap_or(0);
    match step.checked_sub(1).and_then(|at| CHILD_STEPS.get(at)) {
        Some(step) => (*step, number & ((1 << STEP_SHIFT) - 1)),
        None => (StartStep::Execute, number),
    }
}

/// The namespaces come before the limits, which their making may need more than, and before all that
/// forbids to make any. The filter comes last.
fn apply_setup(enclosing: &ChildSetup) -> io::Result<()> {
    let surroundings = &enclosing.settings;
    if let Some(group) = &enclosing.group {
        cgroup::enter_group(group).map_err(tag_step(StartStep::ControlGroup))?;
    }
    if surroundings.terminal.is_some() {
        sys::set_controlling_terminal().map_err(tag_step(StartStep::Terminal))?;
    }
    separate(enclosing).map_err(tag_step(StartStep::Namespaces))?;
    if enclosing.sandbox.namespaces.mount {
        let entered = std::env::set_current_dir(&enclosing.working_directory);
        entered.map_err(tag_step(StartStep::WorkingDirectory))?;
    }
    apply_limits(&surroundings.limits).map_err(tag_step(StartStep::Limits))?;
    confine(surroundings.layers).map_err(tag_step(StartStep::Sandbox))?;
    filter(enclosing).map_err(tag_step(StartStep::Filter))
}

#[cfg(full_linux)]
fn separate(enclosing: &ChildSetup) -> io::Result<()> {
    use super::launch_settings::FIRST_RULESET;
    use super::namespaces;
    let ShimSandbox { namespaces, layers, .. } = &enclosing.sandbox;
    namespaces::unshare_namespaces(*namespaces)?;
    namespaces::mount_all_layers(layers, FIRST_RULESET..FIRST_RULESET + enclosing.settings.layers)
}

#[cfg(full_linux)]
fn confine(layers: u32) -> io::Result<()> {
    if layers == 0 {
        return Ok(());
    }
    super::privileges::drop_privileges()?;
    (0..layers)
        .try_for_each(|layer| sys::apply_ruleset(super::launch_settings::FIRST_RULESET + layer))
}

#[cfg(full_linux)]
fn filter(enclosing: &ChildSetup) -> io::Result<()> {
    if enclosing.settings.layers == 0 {
        return Ok(());
    }
    super::privileges::install_filter(&enclosing.sandbox.filter)
}

#[cfg(not(full_linux))]
fn separate(_: &ChildSetup) -> io::Result<()> {
    Ok(())
}

#[cfg(not(full_linux))]
fn confine(layers: u32) -> io::Result<()> {
    if layers == 0 { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

#[cfg(not(full_linux))]
fn filter(_: &ChildSetup) -> io::Result<()> {
    Ok(())
}

/// Notes the step in the number, the only thing that reaches the parent.
fn tag_step(step: StartStep) -> impl Fn(io::Error) -> io::Error {
    let place = CHILD_STEPS.iter().position(|one| *one == step).map_or(0, |at| at + 1);
    move |error| {
        let number = error.raw_os_error().unwrap_or(0);
        io::Error::from_raw_os_error((place as i32) << STEP_SHIFT | number)
    }
}

fn apply_limits(limits: &ProcessLimits) -> io::Result<()> {
    if let Some(bytes) = limits.memory {
        sys::set_limit(resource::ADDRESS_SPACE, bytes, bytes)?;
    }
    if let Some(seconds) = limits.cpu_seconds {
        // A signal that says what it is about first, for those that could not say it themselves.
        sys::set_limit(resource::CPU, seconds, seconds.saturating_add(CPU_GRACE))?;
    }
    if let Some(files) = limits.open_files {
        sys::set_limit(resource::OPEN_FILES, files, files)?;
    }
    Ok(())
}
