//! What happens in the child between fork and exec: the terminal becomes its own, its limits are set,
//! and it is confined for good.
#![expect(unsafe_code, reason = "runs code between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::record::Step;
use super::surroundings::{Limits, Surroundings};
use super::sys::{self, resource};

/// Between being told that its time is up and being killed for it.
const CPU_GRACE: u64 = 2;

/// Above any errno: which step failed travels in the same number.
const STEP_SHIFT: u32 = 16;
const STEPS: [Step; 3] = [Step::Terminal, Step::Limits, Step::Confine];

/// Has the command enclosed before it is executed. Whatever fails, it is not executed.
pub(super) fn enclose(command: &mut Command, surroundings: Surroundings) {
    if surroundings.terminal.is_none() {
        command.process_group(0);
    }
    if surroundings.is_plain() {
        return;
    }
    // SAFETY: the closure owns plain numbers, makes system calls only, and allocates nothing: errors
    // are made from numbers.
    unsafe { command.pre_exec(move || apply(&surroundings)) };
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

fn apply(surroundings: &Surroundings) -> io::Result<()> {
    if surroundings.terminal.is_some() {
        sys::take_terminal().map_err(of(0))?;
    }
    limit(&surroundings.limits).map_err(of(1))?;
    confine(surroundings.layers).map_err(of(2))
}

fn confine(layers: u32) -> io::Result<()> {
    if layers == 0 {
        return Ok(());
    }
    #[cfg(full_linux)]
    {
        sys::give_up_powers()?;
        (0..layers).try_for_each(|layer| sys::restrict(super::surroundings::FIRST_RULESET + layer))
    }
    #[cfg(not(full_linux))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Notes the step in the number, the only thing that reaches the parent.
fn of(step: i32) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let number = error.raw_os_error().unwrap_or(0);
        io::Error::from_raw_os_error((step + 1) << STEP_SHIFT | number)
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
