//! The program of a shim: the companion binary, or this program again.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::sandbox::NamespaceSupport;
use crate::shim;

/// The companion binary, or empty if it could not be built.
static COMPANION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/brigade-shim"));

/// The first argument with which this program becomes a shim.
const SHIM_FLAG: &str = "--brigade-shim";

/// True if `main` calls `run_shim_if_requested`. Otherwise a re-executed program would do its usual
/// work.
static CAN_REEXECUTE_AS_SHIM: AtomicBool = AtomicBool::new(false);

/// Becomes a shim and never returns, if this process was started as one.
///
/// Call it first in `main` of a program that embeds Brigade, before threads start and files are
/// opened. Background processes then work where the companion binary cannot be executed: on a
/// system for which it was not built, or with a state directory that is mounted `noexec`.
pub fn run_shim_if_requested() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == SHIM_FLAG) {
        process::exit(shim::main(arguments));
    }
    CAN_REEXECUTE_AS_SHIM.store(true, Ordering::Relaxed);
}

/// The program of a shim and its leading arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Companion {
    program: PathBuf,
    leading_args: Vec<OsString>,
}

/// A program to execute as a shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimCommand {
    pub program: PathBuf,
    /// The arguments before those of the shim.
    pub leading_args: Vec<OsString>,
}

impl Companion {
    /// Installs the companion binary in this existing directory. If it cannot be executed there,
    /// uses this program instead.
    pub fn prepare(dir: &Path) -> io::Result<Self> {
        Self::from_bytes(dir, COMPANION)
    }

    /// Predicts the result of `prepare` without changing anything. Returns `None` if the binary is
    /// not installed yet and nothing is known to prevent it.
    pub fn predict(dir: &Path) -> io::Result<Option<Self>> {
        Self::predict_from_bytes(dir, COMPANION)
    }

    fn predict_from_bytes(dir: &Path, binary: &[u8]) -> io::Result<Option<Self>> {
        if binary.is_empty() {
            return Self::reexecute_self(not_built_error()).map(Some);
        }
        let program = binary_path(dir, binary);
        if !fs::read(&program).is_ok_and(|bytes| bytes == binary) {
            return if is_mounted_noexec(dir) {
                Self::reexecute_self(io::ErrorKind::PermissionDenied.into()).map(Some)
            } else {
                Ok(None)
            };
        }
        let installed = Self { program, leading_args: Vec::new() };
        match installed.probe() {
            Ok(()) => Ok(Some(installed)),
            Err(failure) => Self::reexecute_self(failure).map(Some),
        }
    }

    /// Returns the program and the arguments before those of the shim.
    pub fn command(&self) -> ShimCommand {
        ShimCommand { program: self.program.clone(), leading_args: self.leading_args.clone() }
    }

    /// Returns the file that is executed.
    pub fn path(&self) -> &Path {
        &self.program
    }

    /// Returns a companion that can run now: the installed binary, or this program.
    pub(crate) fn find_usable(dir: &Path) -> Option<Self> {
        match Self::predict(dir) {
            Ok(Some(companion)) => Some(companion),
            Ok(None) | Err(_) => Self::reexecute_self(not_built_error()).ok(),
        }
    }

    /// Lets a shim try to create namespaces. The result is unknown if the shim cannot run.
    pub fn probe_namespaces(&self) -> NamespaceSupport {
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args).arg(shim::PROBE_NAMESPACES).stdin(Stdio::null());
        let answer = command.output().ok().filter(|answer| answer.status.success());
        answer.map_or(NamespaceSupport::UNKNOWN, |answer| {
            NamespaceSupport::parse(&String::from_utf8_lossy(&answer.stdout))
        })
    }

    fn from_bytes(dir: &Path, binary: &[u8]) -> io::Result<Self> {
        let failure = match install(dir, binary) {
            Ok(program) => {
                let installed = Self { program, leading_args: Vec::new() };
                match installed.probe() {
                    Ok(()) => return Ok(installed),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        Self::reexecute_self(failure)
    }

    /// Uses this program. The error contains the reason why the binary cannot be used.
    fn reexecute_self(failure: io::Error) -> io::Result<Self> {
        if !CAN_REEXECUTE_AS_SHIM.load(Ordering::Relaxed) {
            let advice = format!(
                "the companion binary cannot be used ({failure}); call \
                 brigade_process::companion::run_shim_if_requested() first in main, so that this \
                 program can be the shim"
            );
            return Err(io::Error::new(failure.kind(), advice));
        }
        // This link stays valid if the file is replaced by a newer one.
        let program = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            env::current_exe()?
        };
        Ok(Self { program, leading_args: vec![SHIM_FLAG.into()] })
    }

    fn probe(&self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args).arg("--probe").stdin(Stdio::null());
        let mut answer = command.output();
        // A concurrent fork in another thread holds the file open for writing until it executes its
        // program.
        for _ in 0..50 {
            if !matches!(&answer, Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy) {
                break;
            }
            thread::sleep(Duration::from_millis(2));
            answer = command.output();
        }
        let answer = answer?;
        if String::from_utf8_lossy(&answer.stdout).trim_end() == shim::PROBE_ANSWER {
            return Ok(());
        }
        Err(io::Error::other("the program does not answer the probe of a shim"))
    }
}

/// A counter that distinguishes the drafts of one process.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// Installs the binary. Several runtimes may do so at once: each writes its own draft and renames
/// it.
fn install(dir: &Path, binary: &[u8]) -> io::Result<PathBuf> {
    if binary.is_empty() {
        return Err(not_built_error());
    }
    let path = binary_path(dir, binary);
    if fs::read(&path).is_ok_and(|bytes| bytes == binary) {
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        return Ok(path);
    }
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = dir.join(format!(".brigade-shim-{}-{number}", process::id()));
    // An earlier process with this pid may have left a draft.
    let _ = fs::remove_file(&draft);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o700).open(&draft)?;
    let installed = file.write_all(binary).and_then(|()| {
        drop(file);
        fs::rename(&draft, &path)
    });
    if installed.is_err() {
        let _ = fs::remove_file(&draft);
    }
    installed.map(|()| path)
}

fn binary_path(dir: &Path, binary: &[u8]) -> PathBuf {
    dir.join(format!("brigade-shim-{:016x}", shim::fnv::of_bytes(binary)))
}

fn not_built_error() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "it was not built")
}

/// Returns true if the directory is on a file system mounted `noexec`.
fn is_mounted_noexec(dir: &Path) -> bool {
    use rustix::fs::{StatVfsMountFlags, statvfs};
    statvfs(dir).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_written_once_and_repaired_if_damaged() {
        let temp = tempfile::tempdir().unwrap();
        let ShimCommand { program, leading_args } =
            Companion::prepare(temp.path()).unwrap().command();
        assert_eq!(leading_args, Vec::<OsString>::new());
        let written = fs::metadata(&program).unwrap();
        assert_eq!(written.permissions().mode() & 0o777, 0o700);

        Companion::prepare(temp.path()).unwrap();
        let unchanged = fs::metadata(&program).unwrap();
        assert_eq!(unchanged.modified().unwrap(), written.modified().unwrap());

        fs::write(&program, b"#!/bin/sh\necho brigade-shim 0\n").unwrap();
        Companion::prepare(temp.path()).unwrap();
        assert_eq!(fs::read(&program).unwrap(), COMPANION);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn predict_changes_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let missing = temp.path().join("not there");
        for dir in [temp.path(), &missing] {
            assert_eq!(Companion::predict(dir).unwrap(), None);
        }
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
        let prepared = Companion::prepare(temp.path()).unwrap();
        assert_eq!(Companion::predict(temp.path()).unwrap(), Some(prepared.clone()));
        fs::write(prepared.path(), b"damaged").unwrap();
        assert_eq!(Companion::predict(temp.path()).unwrap(), None, "it will be repaired");
        assert_eq!(fs::read(prepared.path()).unwrap(), b"damaged");
    }

    /// One test, because the whole process shares the flag.
    #[test]
    fn this_program_is_used_only_if_its_main_supports_it() {
        let temp = tempfile::tempdir().unwrap();
        for unusable in [&b""[..], b"#!/bin/sh\necho something else\n", b"\x7fELF"] {
            let error = Companion::from_bytes(temp.path(), unusable).unwrap_err();
            assert!(error.to_string().contains("run_shim_if_requested"), "{error}");
        }
        run_shim_if_requested();
        let ShimCommand { program, leading_args } =
            Companion::from_bytes(temp.path(), b"").unwrap().command();
        assert!(program.is_absolute());
        assert_eq!(leading_args, [SHIM_FLAG]);
    }
}
