//! The shim: a small process between Brigade and a command.
//!
//! It outlives the runtime that started it, so that the command does too: it starts the command,
//! keeps its output and its ending, and ends it with all that came of it when asked. The same source
//! is the companion binary (one thread, standard library only) and, where that could not be built, a
//! second life of the main binary.
//!
//! ```text
//! orders -> claim -> launch -> life ( signals, relay, terminal, tree ) -> Done in the record
//! ```
//!
//! Reading order: `record` and `layout` (the files it keeps), `orders` and `environment` (what it is told), `claim`
//! (who may execute), `launch` (the command starts), `surroundings`, `sandbox`, `group` and `enclose` (what it is
//! started in and kept to), `namespaces` and `privileges` (how that is done), `life` (the loop), `relay`
//! (pipes to files), `spool` (a file to the command's input), `hold` and `lease` (when that waits for a reader), `terminal` (where there is one), `timing` (what it does by the clock), `tree` (what came of
//! the command, and its end),
//! `signals`, `proc` and `sys` (the system below), `fnv` (a sum).

use std::ffi::OsString;

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
#[cfg_attr(full_linux, path = "shim/tree_descendants.rs")]
#[cfg_attr(not(full_linux), path = "shim/tree_group.rs")]
mod tree;

/// What the shim answers to `--probe`. The number changes with the arguments and the files.
pub const PROBE_ANSWER: &str = "brigade-shim 5";

/// Has the shim try which namespaces it may make, see `print_namespaces`.
pub const PROBE_NAMESPACES: &str = "--probe-namespaces";

const EXIT_USAGE: i32 = 64;

/// Prints one line for mounts and one for the network: a number that is 0, or the error.
fn print_namespaces() {
    #[cfg(full_linux)]
    for tried in namespaces::probe() {
        println!("{}", tried.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0));
    }
}

/// Closes what a parent left open in this process, beside the three streams.
pub(crate) fn close_inherited() {
    #[cfg(full_linux)]
    sys::close_inherited(launch_settings::FIRST_RULESET);
}

/// The whole life of a shim, given its arguments without the program's name. Returns its exit code.
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
