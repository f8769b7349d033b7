//! What happens in the child between fork and exec: the terminal becomes its own, its limits are set,
//! and it is sandboxed for good.
#![expect(unsafe_code, reason = "runs code between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::group;
use super::record::Step;
use super::sandbox::ShimSandbox;
use super::surroundings::{Limits, Surroundings};
use super::sys::{self, resource};

/// Between being told that its time is up and being killed for it.
const CPU_GRACE: u64 = 2;

/// Above any errno: which step failed travels in the same number.
const STEP_SHIFT: u32 = 16;
const STEPS: [Step; 7] = [
    Step::Group,
    Step::Terminal,
    Step::Namespaces,
    Step::WorkingDirectory,
    Step::Limits,
    Step::Confine,
    Step::Filter,
];

/// What is applied to the command.
#[derive(Clone, Debug, Default)]
pub(super) struct Enclosing {
    pub(super) surroundings: Surroundings,
    pub(super) sandbox: ShimSandbox,
    pub(super) group: Option<PathBuf>,
    /// Entered again when other mounts lie over it.
    pub(super) working_directory: PathBuf,
}

/// Has the command enclosed before it is executed. Whatever fails, it is not executed.
pub(super) fn enclose(command: &mut Command, enclosing: Enclosing) {
    if enclosing.surroundings.terminal.is_none() {
        command.process_group(0);
    }
    if enclosing.surroundings.is_plain() && enclosing.group.is_none() {
        return;
    }
    // SAFETY: the shim has one thread, so nothing that another one may have held at the fork is waited
    // for: what may be done before it may be done after it. Errors are made from numbers, the only thing
    // that reaches the parent.
    unsafe { command.pre_exec(move || apply(&enclosing)) };
}

/// What an error of the start is about.
pub(super) fn failed_step(error: &io::Error) -> (Step, i32) {
    let number = error.raw_os_error().unwrap_or(0);
    let step = usize::try_from(number >> STEP_SHIFT).unwrap_or(0);
    match step.checked_sub(1).and_then(|at| STEPS.get(at)) {
        Some(step) => (*step, number & ((1 << STEP_SHIFT) - 1)),
        None => (Step::Execute, number),
    }
}

/// The namespaces come before the limits, which their making may need more than, and before all that
/// forbids to make any. The filter comes last.
fn apply(enclosing: &Enclosing) -> io::Result<()> {
    let surroundings = &enclosing.surroundings;
    if let Some(group) = &enclosing.group {
        group::enter(group).map_err(of(Step::Group))?;
    }
    if surroundings.terminal.is_some() {
        sys::take_terminal().map_err(of(Step::Terminal))?;
    }
    separate(enclosing).map_err(of(Step::Namespaces))?;
    if enclosing.sandbox.namespaces.mount {
        let entered = std::env::set_current_dir(&enclosing.working_directory);
        entered.map_err(of(Step::WorkingDirectory))?;
    }
    limit(&surroundings.limits).map_err(of(Step::Limits))?;
    confine(surroundings.layers).map_err(of(Step::Confine))?;
    filter(enclosing).map_err(of(Step::Filter))
}

#[cfg(full_linux)]
fn separate(enclosing: &Enclosing) -> io::Result<()> {
    use super::namespaces;
    use super::surroundings::FIRST_RULESET;
    let ShimSandbox { namespaces, layers, .. } = &enclosing.sandbox;
    namespaces::separate(*namespaces)?;
    namespaces::mount(layers, FIRST_RULESET..FIRST_RULESET + enclosing.surroundings.layers)
}

#[cfg(full_linux)]
fn confine(layers: u32) -> io::Result<()> {
    if layers == 0 {
        return Ok(());
    }
    super::privileges::give_up()?;
    (0..layers).try_for_each(|layer| sys::restrict(super::surroundings::FIRST_RULESET + layer))
}

#[cfg(full_linux)]
fn filter(enclosing: &Enclosing) -> io::Result<()> {
    if enclosing.surroundings.layers == 0 {
        return Ok(());
    }
    super::privileges::filter_calls(&enclosing.sandbox.filter)
}

#[cfg(not(full_linux))]
fn separate(_: &Enclosing) -> io::Result<()> {
    Ok(())
}

#[cfg(not(full_linux))]
fn confine(layers: u32) -> io::Result<()> {
    if layers == 0 { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

#[cfg(not(full_linux))]
fn filter(_: &Enclosing) -> io::Result<()> {
    Ok(())
}

/// Notes the step in the number, the only thing that reaches the parent.
fn of(step: Step) -> impl Fn(io::Error) -> io::Error {
    let place = STEPS.iter().position(|one| *one == step).map_or(0, |at| at + 1);
    move |error| {
        let number = error.raw_os_error().unwrap_or(0);
        io::Error::from_raw_os_error((place as i32) << STEP_SHIFT | number)
    }
}

fn limit(limits: &Limits) -> io::Result<()> {
    if let Some(bytes) = limits.memory {
        sys::limit(resource::ADDRESS_SPACE, bytes, bytes)?;
    }
    if let Some(seconds) = limits.cpu_seconds {
        // A signal that says what it is about first, for those that could not say it themselves.
        sys::limit(resource::CPU, seconds, seconds.saturating_add(CPU_GRACE))?;
    }
    if let Some(files) = limits.open_files {
        sys::limit(resource::OPEN_FILES, files, files)?;
    }
    Ok(())
}
