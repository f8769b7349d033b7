//! Compiles the program with a linker for an old glibc.
//!
//! Zig's C compiler has the symbols of every glibc. It comes from the registry of Python, and is both the
//! C compiler (SQLite, ring, mimalloc) and the linker. The companion binary of shims is static. Zig has
//! no static glibc, so the C compiler of the system links that: it needs no glibc where it runs.

use std::path::{Path, PathBuf, absolute};

use super::glibc::GlibcVersion;
use super::{TARGET, files};
use crate::cargo::{cargo_command, run_command, target_dir};
use crate::interop::install_venv;
use crate::tidy::workspace_root;

/// The glibc for which the program is linked. Rust's standard library supports no older one.
pub(super) const GLIBC_MAX: GlibcVersion = GlibcVersion::new(2, 17);
const ZIG_PACKAGE: &str = "ziglang==0.17.0";

/// Fails on a system for which there are no packages.
pub(super) fn check_platform(os: &str, arch: &str) -> Result<(), String> {
    if (os, arch) == ("linux", "x86_64") {
        return Ok(());
    }
    Err(format!("packages are made on Linux on x86-64 for {TARGET}; this is {os} on {arch}"))
}

/// Compiles the program with the profile `dist` and returns its path. Takes about 15 minutes of CPU time
/// from scratch.
pub(super) fn build_program() -> Result<PathBuf, String> {
    let tools = absolute(target_dir().join("dist-tools")).map_err(|error| error.to_string())?;
    let python = install_venv(&tools.join("zig"), "ziglang", &[&[ZIG_PACKAGE]])
        .ok_or_else(|| format!("{ZIG_PACKAGE} cannot be installed"))?;
    let compiler = tools.join("cc");
    files::write_program(&compiler, compiler_script(&python, GLIBC_MAX).as_bytes())?;
    let mut cargo = cargo_command();
    cargo.args(["build", "--locked", "--profile", "dist", "--target", TARGET]);
    cargo.args(["--package", "brigade-cli", "--bin", "brigade"]).current_dir(workspace_root());
    let cache = tools.join("cache");
    cargo.env("ZIG_GLOBAL_CACHE_DIR", &cache).env("ZIG_LOCAL_CACHE_DIR", &cache);
    let target = TARGET.replace('-', "_");
    cargo.env(format!("CC_{target}"), &compiler);
    cargo.env(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()), &compiler);
    // The optimization of the whole program excludes incremental builds.
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_ENCODED_RUSTFLAGS", path_flags());
    run_command(&mut cargo).map_err(|error| format!("build of the program: {error}"))?;
    Ok(target_dir().join(TARGET).join("dist/brigade"))
}

/// Returns the flags that keep the directories of this machine out of the program.
fn path_flags() -> String {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cargo = home("CARGO_HOME").or_else(|| Some(home("HOME")?.join(".cargo")));
    let root = workspace_root();
    let renamed = [(cargo.as_deref(), "/cargo"), (Some(root.as_path()), "/brigade")];
    let flags = renamed.iter().filter_map(|(from, to)| {
        from.map(|from| format!("--remap-path-prefix={}={to}", from.display()))
    });
    flags.collect::<Vec<_>>().join("\u{1f}")
}

/// Returns the script that Cargo calls as C compiler and as linker.
fn compiler_script(python: &Path, glibc: GlibcVersion) -> String {
    let python = python.display();
    format!(
        r#"#!/bin/sh
# Zig names its targets differently: an option that names the target is removed.
for argument; do
    shift
    case $argument in
        -static) static=yes ;;
        --target=*) continue ;;
    esac
    set -- "$@" "$argument"
done
if [ "$static" = yes ]; then exec cc "$@"; fi
exec '{python}' -m ziglang cc -target x86_64-linux-gnu.{glibc} -fno-sanitize=undefined "$@"
"#
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn other_platforms_are_refused_with_the_reason() {
        assert_eq!(check_platform("linux", "x86_64"), Ok(()));
        let error = check_platform("linux", "aarch64").expect_err("an unsupported machine");
        assert!(error.contains(TARGET) && error.contains("aarch64"), "{error}");
        assert!(check_platform("macos", "x86_64").is_err());
    }

    #[test]
    fn the_compiler_gets_all_arguments_but_the_target() {
        let script = compiler_script(Path::new("/bin/echo"), GLIBC_MAX);
        let mut compiler = Command::new("sh");
        compiler.args(["-c", &script, "cc", "--target=x86_64-unknown-linux-gnu"]);
        compiler.args(["-o", "a  b", "$HOME", "-O3"]);
        let output = files::run_quiet(&mut compiler).expect("the script runs");
        assert_eq!(
            String::from_utf8_lossy(&output),
            "-m ziglang cc -target x86_64-linux-gnu.2.17 -fno-sanitize=undefined -o a  b $HOME -O3\n"
        );
    }
}
