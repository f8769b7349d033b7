//! The shim: a small program between the runtime and a process.
//!
//! The shim outlives the runtime that started it, and so does the process. It starts the process,
//! records output and exit status, and ends the process tree on request. The same source is the
//! companion binary (one thread, standard library only). If that binary could not be built, the
//! main binary re-executes itself as the shim.
//!
//! ```text
//! args -> claim -> launch -> loop (signals, relay, terminal, process tree) -> `Done` in the record
//! ```
//!
//! Reading order:
//!
//! * `record` and `layout`: the files of the shim's directory, with `boot_id` in the record. `shim_args` and `environment`: its
//!   input.
//! * `claim`: the right to execute. `launch`: the start of the process.
//! * `launch_settings`, `sandbox`, `cgroup` and `child_setup`: restrictions that the child applies,
//!   by means of `namespaces` and `privileges`.
//! * `shim_loop`: the loop. `output_relay`: from pipes to files. `input_spool`: from a file to
//!   stdin. `output_hold` and `lease`: output that waits for a reader. `terminal`: a
//!   pseudo-terminal. `timing`: work by the clock. `process_tree`: the descendants and their end.
//! * `signals`, `procfs` and `sys`: the operating system. `fnv`: a checksum.

use std::ffi::OsString;

pub mod boot_id;
pub(crate) mod cgroup;
mod child_setup;
mod claim;
pub mod environment;
pub mod fnv;
pub mod input_spool;
mod launch;
pub mod launch_settings;
pub mod layout;
pub mod lease;
#[cfg(full_linux)]
mod namespaces;
mod output_hold;
mod output_relay;
#[cfg(full_linux)]
mod privileges;
#[cfg_attr(full_linux, path = "shim/process_tree_linux.rs")]
#[cfg_attr(not(full_linux), path = "shim/process_tree_posix.rs")]
mod process_tree;
#[cfg(full_linux)]
pub(crate) mod procfs;
pub mod record;
pub mod sandbox;
mod shim_args;
mod shim_loop;
mod signals;
mod sys;
mod terminal;
pub mod timing;

/// The answer of a shim to `--probe`. The number changes with the arguments and the files.
pub const PROBE_ANSWER: &str = "brigade-shim 5";

/// The argument with which a shim reports the namespaces that it may create.
pub const PROBE_NAMESPACES: &str = "--probe-namespaces";

const EXIT_USAGE: i32 = 64;

/// Prints one line for mounts and one for the network: 0, or the error number.
fn print_namespaces() {
    #[cfg(full_linux)]
    for tried in namespaces::probe() {
        println!("{}", tried.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0));
    }
}

/// Closes the descriptors that a parent left open in this process, except the three streams.
pub(crate) fn close_inherited() {
    #[cfg(full_linux)]
    sys::close_inherited(launch_settings::FIRST_RULESET);
}

/// Runs a shim, given its arguments without the program's name. Returns its exit code.
pub fn main(arguments: impl Iterator<Item = OsString>) -> i32 {
    let mut arguments = arguments.peekable();
    if arguments.peek().is_some_and(|first| first == "--probe") {
        println!("{PROBE_ANSWER}");
        return 0;
    }
    if arguments.peek().is_some_and(|first| first == PROBE_NAMESPACES) {
        print_namespaces();
        return 0;
    }
    match shim_args::ShimArgs::parse(arguments) {
        Ok(orders) => {
            shim_loop::run_shim(orders);
            0
        }
        Err(refusal) => {
            eprintln!("brigade-shim: {refusal}");
            EXIT_USAGE
        }
    }
}
