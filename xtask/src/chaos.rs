//! `cargo xtask chaos`: what survives being killed, at random moments and many times.
//!
//! Everything runs in folders and processes of its own, is bounded in count and time, and looks at
//! the process table when it is done.

use std::process::Command;

/// Kills of a runtime while its commands run.
const DEFAULT_KILLS: u32 = 100;

pub(crate) fn run(kills: Option<&str>) -> Result<(), String> {
    let kills = match kills {
        Some(text) => text.parse().map_err(|_| format!("{text:?} is not a number of kills"))?,
        None => DEFAULT_KILLS,
    };
    println!("== a runtime, killed {kills} times while its commands run");
    run_cargo(&["build", "--quiet", "--package", "brigade", "--examples"], kills)?;
    run_cargo(&["test", "--quiet", "--package", "brigade", "--test", "commands"], kills)?;
    println!("== shims and their starters, killed 1,000 times between any two of their steps");
    let shims = ["test", "--quiet", "--package", "brigade-process", "--test", "shim_crash"];
    run_cargo(&[&shims[..], &["--", "--ignored", "--nocapture"]].concat(), kills)
}

fn run_cargo(args: &[&str], kills: u32) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(args).env("BRIGADE_KILLS", kills.to_string()).status();
    let status = status.map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", args.join(" "))) }
}
