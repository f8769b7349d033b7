//! `cargo xtask chaos`: kills runtimes and shims at random moments.
//!
//! The tests use their own directories and processes, have a bound on count and time, and check the
//! process table at their end.

use crate::cargo::{cargo_command, run_cargo, run_command};

/// The number of kills of a runtime while its processes run.
const DEFAULT_KILLS: u32 = 100;

/// Runs the tests with this number of kills of a runtime.
pub(crate) fn run(kills: Option<&str>) -> Result<(), String> {
    let kills: u32 = match kills {
        Some(text) => text.parse().map_err(|_| format!("{text:?} is not a number of kills"))?,
        None => DEFAULT_KILLS,
    };
    println!("== a runtime, killed {kills} times while its processes run");
    run_cargo(&["build", "--quiet", "--package", "brigade", "--examples"])?;
    let mut runtimes = cargo_command();
    runtimes.args(["test", "--quiet", "--package", "brigade", "--test", "commands"]);
    run_command(runtimes.env("BRIGADE_KILLS", kills.to_string()))
        .map_err(|error| format!("killed runtimes: {error}"))?;
    println!("== shims and their starters, killed 1,000 times between any two of their steps");
    let shims = ["test", "--quiet", "--package", "brigade-process", "--test", "shim_crash"];
    run_cargo(&[&shims[..], &["--", "--ignored", "--nocapture"]].concat())
}
