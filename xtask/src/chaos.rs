//! `cargo xtask chaos`: kills runtimes and shims at random moments, or injects faults into a fleet.
//!
//! The tests use their own directories and processes, have a bound on count and time, and check the
//! process table at their end.

use std::env::consts::ARCH;
use std::path::Path;

use crate::cargo::{cargo_command, run_cargo, run_command};
use crate::test_run::run_alone;
use crate::test_stages::install;

/// The number of kills of a runtime while its processes run.
const DEFAULT_KILLS: u32 = 100;

/// The tests of a fleet on a real database.
const FLEET_TESTS: [&str; 6] =
    ["test", "--all-features", "--package", "brigade-cli", "--test", "chaos"];

/// Options of the run of a fleet, with the variables and default values that the tests read. Minutes are
/// passed as seconds.
const FLEET_OPTIONS: [(&str, &str, Option<u64>); 4] = [
    ("--nodes", "BRIGADE_CHAOS_NODES", Some(3)),
    ("--sessions", "BRIGADE_CHAOS_SESSIONS", Some(200)),
    ("--seed", "BRIGADE_CHAOS_SEED", None),
    ("--minutes", "BRIGADE_CHAOS_SECONDS", Some(10)),
];

/// Runs the tests that the arguments select.
pub(crate) fn run(args: &[&str]) -> Result<(), String> {
    match args {
        [] => kill_runtimes(DEFAULT_KILLS),
        ["--store", "postgres", options @ ..] => run_fleet(&parse_fleet_options(options)?),
        ["--store", store, ..] => {
            Err(format!("{store:?} is not a store of a fleet; use --store postgres"))
        }
        [kills] => {
            let kills = kills.parse();
            kill_runtimes(kills.map_err(|_| format!("{:?} is not a number of kills", args[0]))?)
        }
        _ => Err(format!("unknown arguments: {}; see `cargo xtask help`", args.join(" "))),
    }
}

fn kill_runtimes(kills: u32) -> Result<(), String> {
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

/// Runs a fleet for a short time, with a fixed seed and with a fresh one.
pub(crate) fn run_short() -> Result<(), String> {
    run_fleet(&[])
}

/// Installs the library that gives a process another clock, if it is missing.
fn ensure_faketime() {
    let path = format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketime.so.1");
    if !Path::new(&path).is_file() && !install(&["libfaketime"]) {
        println!("skipped: nodes with another clock (libfaketime cannot be installed)");
    }
}

/// Runs the tests of a fleet with these variables.
fn run_fleet(variables: &[(&str, String)]) -> Result<(), String> {
    ensure_faketime();
    run_cargo(&[&FLEET_TESTS[..], &["--no-run"]].concat())?;
    let mut tests = cargo_command();
    tests.args(FLEET_TESTS).args(["--", "--ignored", "--nocapture"]);
    run_alone(tests.envs(variables.iter().map(|(name, value)| (*name, value))))
}

/// Returns the variables for these options.
fn parse_fleet_options(options: &[&str]) -> Result<Vec<(&'static str, String)>, String> {
    let mut values = FLEET_OPTIONS.map(|(_, _, default)| default);
    for pair in options.chunks(2) {
        let known = FLEET_OPTIONS.iter().position(|(option, ..)| *option == pair[0]);
        let index = known.ok_or_else(|| format!("unknown option: {}", pair[0]))?;
        let number = pair.get(1).and_then(|text| text.parse().ok()).filter(|number| *number > 0);
        values[index] = Some(number.ok_or_else(|| format!("{} needs a number above 0", pair[0]))?);
    }
    let variables =
        FLEET_OPTIONS.iter().zip(values).filter_map(|((option, variable, _), value)| {
            let factor = if *option == "--minutes" { 60 } else { 1 };
            Some((*variable, value?.saturating_mul(factor).to_string()))
        });
    let mut variables: Vec<_> = variables.collect();
    // The lease that nodes have by default.
    variables.push(("BRIGADE_CHAOS_LEASE_MS", "10000".to_owned()));
    if values[2].is_none() {
        variables.push(("BRIGADE_CHAOS_RUNS", "fresh".to_owned()));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_fleet_become_variables() {
        let variables = parse_fleet_options(&["--minutes", "2", "--seed", "7"]).expect("options");
        let find = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(find("BRIGADE_CHAOS_SECONDS"), Some("120"));
        assert_eq!(find("BRIGADE_CHAOS_SEED"), Some("7"));
        assert_eq!(find("BRIGADE_CHAOS_NODES"), Some("3"));
        assert_eq!(find("BRIGADE_CHAOS_RUNS"), None);
        for wrong in [&["--seed"][..], &["--seed", "soup"], &["--nodes", "0"], &["--soup", "1"]] {
            assert!(parse_fleet_options(wrong).is_err(), "{wrong:?}");
        }
        assert!(run(&["--store", "sqlite"]).is_err());
        assert!(run(&["soup"]).is_err());
    }
}
