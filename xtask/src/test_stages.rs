//! `cargo xtask test`: everything that must hold before a change lands.

use std::process::Command;
use std::time::Instant;

use crate::test_run::run_alone;
use crate::{interop, tidy};

/// Modules that a macro declares, which `cargo fmt` does not find.
const MACRO_MODULE_DIRS: [&str; 2] =
    ["crates/brigade-cli/src/commands", "crates/brigade-server/src/requests"];

type CheckStage = fn() -> Result<(), String>;

pub(crate) fn run_stages(only: Option<&str>) -> Result<(), String> {
    ensure_c_compiler()?;
    ensure_tmux();
    let stages: [(&str, CheckStage); 5] = [
        ("tidy", tidy::run),
        ("format", check_format),
        ("clippy", run_clippy),
        ("tests", run_tests),
        ("outside", interop::run),
    ];
    if let Some(only) = only {
        // Asked for by name alone: they fetch weights or foreign programs, or take minutes.
        match only {
            "model" => return run_timed(only, interop::test_real_model),
            "clients" => return run_timed(only, interop::test_coding_agents),
            "attacks" => return run_timed(only, run_attacks),
            _ => {}
        }
        return match stages.iter().find(|(name, _)| *name == only) {
            Some((name, stage)) => run_timed(name, stage),
            None => run_timed(only, || test_alone(&["--package", only])),
        };
    }
    for (name, stage) in stages {
        run_timed(name, stage)?;
    }
    Ok(())
}

fn run_timed(name: &str, stage: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}");
    let began = Instant::now();
    stage().map_err(|message| format!("{name}: {message}"))?;
    println!("== {name} passed in {:.1?}", began.elapsed());
    Ok(())
}

fn check_format() -> Result<(), String> {
    if !has_program("rustfmt") {
        println!("rustfmt is not installed: passed over (rustup component add rustfmt)");
        return Ok(());
    }
    run_cargo(&["fmt", "--all", "--check"])?;
    let mut files = Vec::new();
    for folder in MACRO_MODULE_DIRS {
        let entries =
            std::fs::read_dir(tidy::workspace_root().join(folder)).map_err(|e| e.to_string())?;
        files.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut rustfmt = Command::new("rustfmt");
    let formatted = rustfmt.args(["--check", "--edition", "2024"]).args(files).status();
    match formatted.map_err(|e| format!("rustfmt: {e}"))?.success() {
        true => Ok(()),
        false => Err("rustfmt --check failed".to_owned()),
    }
}

fn run_clippy() -> Result<(), String> {
    if !has_program("cargo-clippy") {
        println!("clippy is not installed: passed over (rustup component add clippy)");
        return Ok(());
    }
    run_cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
}

fn run_tests() -> Result<(), String> {
    // Examples are built with the tests: one of them is killed and started again by a test.
    run_cargo(&["build", "--workspace", "--examples"])?;
    test_alone(&["--workspace"])
}

/// Builds first: a compiler cache may stay, and is nothing that the tests have left.
fn test_alone(which: &[&str]) -> Result<(), String> {
    let all = [&["test", "--all-features"], which].concat();
    run_cargo(&[&all[..], &["--no-run"]].concat())?;
    run_alone(Command::new(cargo_program()).args(all))
}

/// The attacks that the tests try for seconds, for a minute each.
fn run_attacks() -> Result<(), String> {
    let mut tests = Command::new(cargo_program());
    tests.args(["test", "--package", "brigade-cli", "--test", "attacks", "--"]);
    tests.args(["--nocapture", "--test-threads", "1"]).env("BRIGADE_ATTACK_SECONDS", "60");
    run_alone(&mut tests).map_err(|e| format!("an attack succeeded, or could not be tried: {e}"))
}

fn run_cargo(args: &[&str]) -> Result<(), String> {
    let status = Command::new(cargo_program()).args(args).status();
    let status = status.map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", args.join(" "))) }
}

fn cargo_program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn has_program(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// SQLite is compiled from source. Where nothing can compile it, install what can, and say so.
fn ensure_c_compiler() -> Result<(), String> {
    if ["cc", "gcc", "clang"].into_iter().any(has_program) || install(&["gcc", "libc6-dev"]) {
        return Ok(());
    }
    Err("a C compiler is needed to build SQLite; install gcc or clang".into())
}

/// The terminal that `exec` and `top` are tested on. Without it those tests are passed over.
fn ensure_tmux() {
    let there = Command::new("tmux").arg("-V").output().is_ok();
    if !there && !install(&["tmux"]) {
        println!("tmux could not be installed: tests on a terminal are passed over");
    }
}

fn install(packages: &[&str]) -> bool {
    println!("missing: installing {} with apt-get", packages.join(" and "));
    let installed = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages)
        .status();
    installed.is_ok_and(|status| status.success())
}
