//! The works of the comparison by installed programs. Each program has a runner `peer-NAME`.
//!
//! ```text
//! peer-NAME version     ->  the version of the program, or the reason why it cannot take part
//! peer-NAME WORK COUNT  ->  a line of JSON, as every peer prints it
//! ```
//!
//! A runner starts everything that its program needs, in a temporary directory and on free loopback
//! ports, and ends it. Nothing is installed.
//!
//! 1. [`installed`]: where a program is found, and its version.
//! 2. [`run_program`]: the `main` of a runner.
//! 3. [`Server`], [`Postgres`]: what a runner starts.
//! 4. [`WorkerScript`]: a script that does the work by the library of the program.
//! 5. [`run_commands`]: work that is done by command lines.

pub mod installed;

mod command_line;
mod postgres;
mod runner;
mod server;
mod worker_script;

pub use command_line::{read_command, run_commands};
pub use postgres::Postgres;
pub use runner::{Program, run_program};
pub use server::{Server, free_port};
pub use worker_script::WorkerScript;
