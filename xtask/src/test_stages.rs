//! `cargo xtask test`: the stages that must pass before a change lands.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

use crate::cargo::{cargo_command, run_cargo, run_command};
use crate::test_run::run_alone;
use crate::{chaos, dist, instructions, interop, package, public_api, sdk, tidy, web};

/// Directories of modules that a macro declares. `cargo fmt` does not find them.
const MACRO_MODULE_DIRS: [&str; 3] = [
    "crates/brigade-cli/src/subcommands",
    "crates/brigade-protocol/src/requests",
    "crates/brigade-server/src/requests",
];

/// The largest number of crates of a program that has only jobs.
const CRATES_MAX: usize = 80;

/// A function that runs one stage.
type CheckStage = fn() -> Result<(), String>;

/// Runs all stages, or the one with this name.
pub(crate) fn run_stages(only: Option<&str>) -> Result<(), String> {
    ensure_c_compiler()?;
    ensure_tmux();
    ensure_postgres()?;
    let stages: [(&str, CheckStage); 14] = [
        ("tidy", tidy::run),
        ("format", check_format),
        ("api", public_api::check),
        ("package", package::check),
        ("clippy", run_clippy),
        ("features", check_features),
        ("tests", run_tests),
        ("loops", run_with_loops),
        ("postgres", run_stories_on_postgres),
        ("interop", interop::run),
        ("schemathesis", interop::test_generated_requests),
        ("web", web::run),
        ("sdk", sdk::run),
        ("instructions", instructions::check),
    ];
    if let Some(only) = only {
        // Run only by name: they download weights or programs, or take minutes.
        match only {
            "model" => return run_timed(only, interop::test_real_model),
            "clients" => return run_timed(only, interop::test_coding_agents),
            "dist" => return run_timed(only, dist::installs::run),
            "attacks" => return run_timed(only, run_attacks),
            "http" => return run_timed(only, test_http),
            "postgres" => return run_timed(only, test_postgres),
            "fleet" => return run_timed(only, test_fleet),
            "chaos" => return run_timed(only, chaos::run_short),
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
    let started_at = Instant::now();
    stage().map_err(|message| format!("{name}: {message}"))?;
    println!("== {name} passed in {:.1?}", started_at.elapsed());
    Ok(())
}

fn check_format() -> Result<(), String> {
    if !has_program("rustfmt") {
        println!("skipped: rustfmt is not installed (rustup component add rustfmt)");
        return Ok(());
    }
    run_cargo(&["fmt", "--all", "--check"])?;
    let mut files = Vec::new();
    for dir in MACRO_MODULE_DIRS {
        let entries =
            std::fs::read_dir(tidy::workspace_root().join(dir)).map_err(|e| e.to_string())?;
        files.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]).args(files);
    run_command(&mut rustfmt).map_err(|error| format!("rustfmt --check: {error}"))
}

fn run_clippy() -> Result<(), String> {
    if !has_program("cargo-clippy") {
        println!("skipped: clippy is not installed (rustup component add clippy)");
        return Ok(());
    }
    run_cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
}

/// Checks the feature combinations that the facade names, and the size of the smallest.
fn check_features() -> Result<(), String> {
    let smallest = ["--package", "brigade", "--no-default-features"];
    for features in ["", "sqlite", "processes", "agents", "agents,mcp", "external", "macros"] {
        println!("features: {}", if features.is_empty() { "none" } else { features });
        let check = [&["check"], &smallest[..], &["--features", features]].concat();
        run_command(cargo_command().args(check))
            .map_err(|error| format!("with the features {features:?}: {error}"))?;
    }
    let tree = [&["tree", "--edges", "normal,build", "--prefix", "none"], &smallest[..]].concat();
    let output = cargo_command().args(tree).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let crates: BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    println!("without features: {} crates, at most {CRATES_MAX}", crates.len());
    let heavy = ["cc ", "ring ", "rustls ", "openssl"];
    let unwanted = crates.iter().find(|name| heavy.iter().any(|heavy| name.starts_with(heavy)));
    match unwanted {
        Some(unwanted) => Err(format!("without features, {unwanted} is not needed")),
        None if !(1..=CRATES_MAX).contains(&crates.len()) => {
            Err(format!("without features, there are {} crates", crates.len()))
        }
        None => Ok(()),
    }
}

fn run_tests() -> Result<(), String> {
    // Tests run the examples. Without a selection of targets, cargo builds them with the tests, and
    // with the same features.
    // The other crates are tested after a failure, too: a run takes long.
    test_alone(&["--workspace", "--no-fail-fast"])
}

/// Runs tests in a run of their own. Builds them before it, so that a compiler cache that the build
/// starts does not count as left behind.
fn test_alone(selection: &[&str]) -> Result<(), String> {
    let args = [&["test", "--all-features"], selection].concat();
    run_cargo(&[&args[..], &["--no-run"]].concat())?;
    run_alone(cargo_command().args(args))
}

/// Runs the stories of the HTTP server alone, and generated requests. The stages `tests` and
/// `schemathesis` run them too.
fn test_http() -> Result<(), String> {
    test_alone(&["--package", "brigade-server", "--test", "http"])?;
    test_alone(&["--package", "brigade-cli", "--test", "stories", "http"])?;
    interop::test_generated_requests()
}

/// Runs the tests of the store on PostgreSQL and of the daemon on it, and the crash stories. The stages
/// `tests` and `postgres` run them too.
fn test_postgres() -> Result<(), String> {
    test_alone(&["--package", "brigade-postgres"])?;
    test_alone(&["--package", "brigade-cli", "--test", "stories", "postgres"])?;
    run_stories_on_postgres()
}

/// Runs the model and the simulations of a fleet, which the stage `tests` runs too, and the short runs of
/// real nodes.
fn test_fleet() -> Result<(), String> {
    test_alone(&["--package", "brigade-store", "--test", "fleet_protocol"])?;
    test_alone(&["--package", "brigade-runtime", "--test", "fleet"])?;
    chaos::run_short()
}

/// Runs the crash stories on PostgreSQL. The stage `tests` runs them on SQLite.
fn run_stories_on_postgres() -> Result<(), String> {
    let mut tests = cargo_command();
    tests.args(["test", "--all-features", "--package", "brigade-runtime"]);
    tests.args(["--test", "stories", "--test", "agent_stories"]);
    run_alone(tests.env("BRIGADE_STORY_STORE", "postgres"))
}

/// Runs the tests of the runtime's behaviour and of fleets with several loops. The stage `tests` runs them
/// with one.
fn run_with_loops() -> Result<(), String> {
    let mut tests = cargo_command();
    tests.args(["test", "--all-features", "--package", "brigade-runtime"]);
    tests.args(["--test", "behaviour", "--test", "fleet"]);
    run_alone(tests.env("BRIGADE_TEST_LOOPS", "3"))
}

/// Runs each attack for a minute. The stage `tests` runs them for seconds.
fn run_attacks() -> Result<(), String> {
    let mut tests = cargo_command();
    tests.args(["test", "--package", "brigade-cli", "--test", "attacks", "--"]);
    tests.args(["--nocapture", "--test-threads", "1"]).env("BRIGADE_ATTACK_SECONDS", "60");
    run_alone(&mut tests).map_err(|e| format!("an attack succeeded or could not run: {e}"))
}

pub(crate) fn has_program(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Installs a C compiler if there is none, since SQLite is compiled from source.
fn ensure_c_compiler() -> Result<(), String> {
    if ["cc", "gcc", "clang"].into_iter().any(has_program) || install(&["gcc", "libc6-dev"]) {
        return Ok(());
    }
    Err("a C compiler is needed to build SQLite; install gcc or clang".into())
}

/// Installs tmux if there is none. The tests of `exec` and `top` on a terminal are skipped without
/// it.
fn ensure_tmux() {
    let is_installed = Command::new("tmux").arg("-V").output().is_ok();
    if !is_installed && !install(&["tmux"]) {
        println!("skipped: tests on a terminal (tmux cannot be installed)");
    }
}

/// Installs PostgreSQL if there is none. The tests start private servers of it.
fn ensure_postgres() -> Result<(), String> {
    let is_installed = std::path::Path::new("/usr/lib/postgresql").is_dir()
        || std::env::var_os("PG_BIN").is_some()
        || has_program("pg_isready") && has_program("initdb");
    if is_installed || install(&["postgresql"]) {
        return Ok(());
    }
    Err("PostgreSQL is needed for its tests; install it, or set PG_BIN to its programs".into())
}

pub(crate) fn install(packages: &[&str]) -> bool {
    println!("missing: installing {} with apt-get", packages.join(" and "));
    let installed = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages)
        .status();
    installed.is_ok_and(|status| status.success())
}
