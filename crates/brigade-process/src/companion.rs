//! The program that is started as a shim: the companion binary, or this one once more.

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

/// Empty when it could not be built.
static COMPANION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/brigade-shim"));

/// The first argument of this program when it is to be a shim.
const SHIM_FLAG: &str = "--brigade-shim";

/// Whether this program can be re-executed: without the line in its main it would do its usual work.
static CAN_REEXECUTE_AS_SHIM: AtomicBool = AtomicBool::new(false);

/// Becomes a shim and never returns when this process was started as one.
///
/// A program that uses Brigade as a library puts this first in its `main`, before it starts threads
/// or opens files. It is what makes background commands work where the companion binary cannot be
/// executed: on a system it was not built for, or with a state directory that is mounted `noexec`.
pub fn run_shim_if_requested() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == SHIM_FLAG) {
        process::exit(shim::main(arguments));
    }
    CAN_REEXECUTE_AS_SHIM.store(true, Ordering::Relaxed);
}

/// How a shim is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Companion {
    program: PathBuf,
    leading_args: Vec<OsString>,
}

impl Companion {
    /// Puts the companion binary into the folder, or falls back to this program when that cannot be
    /// executed. The folder exists.
    pub fn prepare(folder: &Path) -> io::Result<Self> {
        Self::from_bytes(folder, COMPANION)
    }

    /// What `prepare` would come to, as far as that can be told without changing anything. None where
    /// the binary is not in the folder yet and nothing speaks against it.
    pub fn predict(folder: &Path) -> io::Result<Option<Self>> {
        Self::predict_from_bytes(folder, COMPANION)
    }

    fn predict_from_bytes(folder: &Path, binary: &[u8]) -> io::Result<Option<Self>> {
        if binary.is_empty() {
            return Self::reexecute_self(not_built_error()).map(Some);
        }
        let program = binary_path(folder, binary);
        if !fs::read(&program).is_ok_and(|there| there == binary) {
            return if is_mounted_noexec(folder) {
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

    /// The program, and the arguments that stand before those of the shim.
    pub fn command(&self) -> (PathBuf, Vec<OsString>) {
        (self.program.clone(), self.leading_args.clone())
    }

    /// The file that is executed.
    pub fn path(&self) -> &Path {
        &self.program
    }

    /// One that can be asked something now: the binary where it is installed, or this program.
    pub(crate) fn find_usable(folder: &Path) -> Option<Self> {
        match Self::predict(folder) {
            Ok(Some(companion)) => Some(companion),
            Ok(None) | Err(_) => Self::reexecute_self(not_built_error()).ok(),
        }
    }

    /// Has a shim try which namespaces it may make. What it cannot be asked is not known.
    pub fn probe_namespaces(&self) -> NamespaceSupport {
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args).arg(shim::PROBE_NAMESPACES).stdin(Stdio::null());
        let answer = command.output().ok().filter(|answer| answer.status.success());
        answer.map_or(NamespaceSupport::UNKNOWN, |answer| {
            NamespaceSupport::parse(&String::from_utf8_lossy(&answer.stdout))
        })
    }

    fn from_bytes(folder: &Path, binary: &[u8]) -> io::Result<Self> {
        let failure = match install(folder, binary) {
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

    /// The reason why the binary cannot be used is part of the error.
    fn reexecute_self(failure: io::Error) -> io::Result<Self> {
        if !CAN_REEXECUTE_AS_SHIM.load(Ordering::Relaxed) {
            let advice = format!(
                "the companion binary cannot be used ({failure}); call \
                 brigade_process::companion::run_if_asked() first in main, so that this program \
                 can take its place"
            );
            return Err(io::Error::new(failure.kind(), advice));
        }
        // A link that stays right when the file is replaced by a newer one.
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
        // Another thread that starts a process at this moment holds the file open for writing,
        // until that process is executed.
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
        Err(io::Error::other("it does not answer as a shim does"))
    }
}

/// Tells the drafts of one process apart.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// Several runtimes may do this at once: each writes a file of its own and renames it.
fn install(folder: &Path, binary: &[u8]) -> io::Result<PathBuf> {
    if binary.is_empty() {
        return Err(not_built_error());
    }
    let path = binary_path(folder, binary);
    if fs::read(&path).is_ok_and(|there| there == binary) {
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        return Ok(path);
    }
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = folder.join(format!(".brigade-shim-{}-{number}", process::id()));
    // A draft of a process that had this pid before may lie there.
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

fn binary_path(folder: &Path, binary: &[u8]) -> PathBuf {
    folder.join(format!("brigade-shim-{:016x}", shim::fnv::of_bytes(binary)))
}

fn not_built_error() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "it was not built")
}

/// Whether the folder is on a file system that is mounted `noexec`.
fn is_mounted_noexec(folder: &Path) -> bool {
    use rustix::fs::{StatVfsMountFlags, statvfs};
    statvfs(folder).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_written_once_and_mended_when_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (program, leading) = Companion::prepare(folder.path()).unwrap().command();
        assert_eq!(leading, Vec::<OsString>::new());
        let written = fs::metadata(&program).unwrap();
        assert_eq!(written.permissions().mode() & 0o777, 0o700);

        Companion::prepare(folder.path()).unwrap();
        let kept = fs::metadata(&program).unwrap();
        assert_eq!(kept.modified().unwrap(), written.modified().unwrap());

        fs::write(&program, b"#!/bin/sh\necho brigade-shim 0\n").unwrap();
        Companion::prepare(folder.path()).unwrap();
        assert_eq!(fs::read(&program).unwrap(), COMPANION);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn foreseeing_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("not there");
        for folder in [folder.path(), &missing] {
            assert_eq!(Companion::predict(folder).unwrap(), None);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let prepared = Companion::prepare(folder.path()).unwrap();
        assert_eq!(Companion::predict(folder.path()).unwrap(), Some(prepared.clone()));
        fs::write(prepared.path(), b"damaged").unwrap();
        assert_eq!(Companion::predict(folder.path()).unwrap(), None, "it will be mended");
        assert_eq!(fs::read(prepared.path()).unwrap(), b"damaged");
    }

    /// One test, because the flag is one for the process.
    #[test]
    fn this_program_takes_its_place_only_when_it_can() {
        let folder = tempfile::tempdir().unwrap();
        for unusable in [&b""[..], b"#!/bin/sh\necho something else\n", b"\x7fELF"] {
            let refused = Companion::from_bytes(folder.path(), unusable).unwrap_err();
            assert!(refused.to_string().contains("run_if_asked"), "{refused}");
        }
        run_shim_if_requested();
        let (program, leading) = Companion::from_bytes(folder.path(), b"").unwrap().command();
        assert!(program.is_absolute());
        assert_eq!(leading, [SHIM_FLAG]);
    }
}
