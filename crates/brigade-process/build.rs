//! Compiles the shim to a binary of its own, which the library contains.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = "shim/main.rs";
/// Flags for a small program that starts fast: one thread per process, which mostly sleeps.
const ALWAYS: &[&str] = &[
    "--crate-name=brigade_shim",
    "--crate-type=bin",
    "--edition=2024",
    "--cfg=companion",
    "--check-cfg=cfg(companion,full_linux,test)",
    "-Copt-level=2",
    "-Cpanic=abort",
    "-Cstrip=symbols",
    "-Ccodegen-units=1",
];
/// Flags for a static binary, which needs no dynamic linking at the start.
const STATIC: &[&str] = &["-Crelocation-model=static", "-Ctarget-feature=+crt-static"];

/// One attempt to compile the shim.
struct Attempt {
    target: String,
    flags: &'static [&'static str],
}

fn main() {
    for path in [ROOT, "src/shim.rs", "src/shim"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=BRIGADE_POSIX_ONLY");
    let is_full_linux = is_full_linux();
    if is_full_linux {
        println!("cargo:rustc-cfg=full_linux");
    }
    let output = PathBuf::from(variable("OUT_DIR")).join("brigade-shim");
    let mut reason = String::new();
    for attempt in attempts(&variable("TARGET").to_string_lossy()) {
        match compile(&output, &attempt, is_full_linux) {
            Ok(()) => return,
            Err(error) => reason = error,
        }
    }
    println!("cargo:warning=no companion binary, programs re-execute themselves: {reason}");
    fs::write(&output, b"").expect("OUT_DIR is writable");
}

/// Returns the attempts in order of preference. The musl variant starts in a third of the time of
/// static glibc, which detects all processor features first.
fn attempts(target: &str) -> Vec<Attempt> {
    let attempt = |target: &str, flags| Attempt { target: target.to_owned(), flags };
    let mut attempts = Vec::new();
    if let Some(machine) = target.strip_suffix("-linux-gnu") {
        attempts.push(attempt(&format!("{machine}-linux-musl"), STATIC));
    }
    if target.contains("-linux-") {
        attempts.push(attempt(target, STATIC));
    }
    attempts.push(attempt(target, &[]));
    attempts
}

/// Returns true for Linux with all features and with the usual layout of `siginfo_t`.
fn is_full_linux() -> bool {
    let is_linux = variable("CARGO_CFG_TARGET_OS") == "linux";
    let is_mips = variable("CARGO_CFG_TARGET_ARCH").to_string_lossy().starts_with("mips");
    is_linux && !is_mips && env::var_os("BRIGADE_POSIX_ONLY").is_none()
}

/// Compiles the shim. The error is one line for the build log.
fn compile(output: &Path, attempt: &Attempt, is_full_linux: bool) -> Result<(), String> {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(ALWAYS).args(attempt.flags).arg("--target").arg(&attempt.target);
    if is_full_linux {
        rustc.arg("--cfg=full_linux");
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut flag = OsString::from("-Clinker=");
        flag.push(linker);
        rustc.arg(flag);
    }
    rustc.arg("-o").arg(output).arg(ROOT);
    let result = rustc.output().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&result.stderr);
    // Visible with `cargo -vv`.
    eprintln!("{rustc:?}\n{stderr}");
    if result.status.success() {
        return Ok(());
    }
    let line = stderr.lines().find(|line| line.starts_with("error")).unwrap_or("rustc failed");
    Err(line.to_owned())
}

fn variable(name: impl AsRef<OsStr>) -> OsString {
    env::var_os(name).unwrap_or_default()
}
