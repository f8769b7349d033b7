//! The path of a program in the search path, and its version.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use brigade_model::plain_text::PlainText;
use brigade_model::truncate::truncate_chars;
use brigade_protocol::daemon_launcher::STORE_VARIABLE;
use brigade_protocol::remote_daemon::TOKEN_VARIABLE;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// The time that a program has to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes of the output that are read.
const OUTPUT_MAX: u64 = 4096;
const VERSION_CHARS_MAX: usize = 60;

/// An empty directory for programs that print their version. It is removed on drop.
#[derive(Debug)]
pub(super) struct ProbeDirectory(PathBuf);

impl ProbeDirectory {
    pub(super) fn create() -> std::io::Result<Self> {
        let name = format!("brigade-version-{}", brigade_runtime::new_key());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ProbeDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a directory cannot be removed");
        }
    }
}

/// The file of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProgramFile {
    Executable(PathBuf),
    /// A file without the permission to execute it, where no other one has that permission.
    NotExecutable(PathBuf),
    Missing,
}

/// Returns the file of a program: in the search path of this process, or by its absolute path.
pub(super) fn find_program(program: &str) -> ProgramFile {
    let paths: Vec<PathBuf> = match program.contains('/') {
        true => vec![PathBuf::from(program)],
        false => {
            let search_path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&search_path).map(|folder| folder.join(program)).collect()
        }
    };
    let mut files = paths.into_iter().filter(|path| path.is_absolute() && path.is_file());
    let Some(first) = files.next() else { return ProgramFile::Missing };
    let is_executable = |path: &PathBuf| access(path, Access::EXEC_OK).is_ok();
    let found = std::iter::once(first.clone()).chain(files).find(is_executable);
    found.map_or(ProgramFile::NotExecutable(first), ProgramFile::Executable)
}

/// Returns the first line that the program prints for `--version`, if it does so in time. The error
/// is the reason why the program cannot be started.
pub(super) async fn read_version(
    program: &Path,
    directory: &ProbeDirectory,
) -> Result<Option<String>, String> {
    let started = Command::new(program)
        .arg("--version")
        .env("NO_COLOR", "1")
        .env_remove(STORE_VARIABLE)
        .env_remove(TOKEN_VARIABLE)
        .current_dir(&directory.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let group = match started {
        Ok(child) => ProcessGroup(child),
        Err(error) => return find_start_problem(program, &error).map_or(Ok(None), Err),
    };
    Ok(tokio::time::timeout(VERSION_TIMEOUT, group.read_first_line()).await.ok().flatten())
}

/// Returns the problem of a program that did not start, unless it is one of this moment, such as too
/// many processes.
fn find_start_problem(program: &Path, error: &io::Error) -> Option<String> {
    let shown = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            Some(format!("{shown} cannot be executed: the interpreter that it names is missing"))
        }
        io::ErrorKind::PermissionDenied => Some(format!("{shown} cannot be executed: {error}")),
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => Some(format!(
            "{shown} has a format that this machine cannot execute; is its installation complete?"
        )),
        _ => None,
    }
}

/// A program and its descendants, which are killed on drop. Some programs start themselves again as
/// a child.
struct ProcessGroup(Child);

impl ProcessGroup {
    async fn read_first_line(mut self) -> Option<String> {
        let mut output = Vec::new();
        let stdout = self.0.stdout.take()?;
        stdout.take(OUTPUT_MAX).read_to_end(&mut output).await.ok()?;
        let text = String::from_utf8_lossy(&output);
        let line = PlainText::line(text.lines().find(|line| !line.trim().is_empty())?);
        Some(truncate_chars(line.as_str().trim(), VERSION_CHARS_MAX))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // The id is that of an unreaped child, so no other process has it.
        let id = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = id {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write_program(path: &Path, script: &str) {
        fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn find(path: &Path) -> ProgramFile {
        find_program(path.to_str().unwrap())
    }

    #[tokio::test]
    async fn a_version_is_the_first_line_in_an_empty_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cook");
        let probe = ProbeDirectory::create().unwrap();
        for (script, expect) in [
            (
                "echo; echo \"cook 1.2 $1 $(ls -A | wc -l)\"; echo more",
                Some("cook 1.2 --version 0"),
            ),
            ("printf '\\0332.0'", Some("\u{fffd}2.0")),
            ("echo problem >&2; exit 1", None),
            ("yes", Some("y")),
        ] {
            write_program(&path, script);
            assert_eq!(find(&path), ProgramFile::Executable(path.clone()));
            let version = read_version(&path, &probe).await;
            assert_eq!(version, Ok(expect.map(str::to_owned)), "{script}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find(&path), ProgramFile::NotExecutable(path));
        assert_eq!(find_program("no-such-program-of-brigade"), ProgramFile::Missing);
        assert!(matches!(find_program("sh"), ProgramFile::Executable(_)));
    }

    #[tokio::test]
    async fn a_file_that_the_system_cannot_execute_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cook");
        let probe = ProbeDirectory::create().unwrap();
        write_program(&path, "");
        for (content, expect) in [
            (&b"\x7fELF\0\0\0"[..], "has a format that this machine cannot execute"),
            (b"#!/no/such/interpreter\n", "the interpreter that it names is missing"),
            // A text without `#!`, as npm leaves one whose install script did not run.
            (b"echo 1.0\n", "has a format that this machine cannot execute"),
        ] {
            fs::write(&path, content).unwrap();
            // Another test may start a process that has the file open for a moment.
            let problem = loop {
                if let Err(problem) = read_version(&path, &probe).await {
                    break problem;
                }
                tokio::task::yield_now().await;
            };
            assert!(problem.contains(expect), "{problem}");
        }
    }

    #[tokio::test]
    async fn a_program_that_does_not_answer_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cook");
        let pid_file = dir.path().join("pid");
        write_program(&path, &format!("sleep 1000 & echo $! > {}; wait", pid_file.display()));
        let probe = ProbeDirectory::create().unwrap();
        assert_eq!(read_version(&path, &probe).await, Ok(None));
        let child = fs::read_to_string(&pid_file).unwrap();
        let stat = PathBuf::from(format!("/proc/{}/stat", child.trim()));
        let is_alive = || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        // The kernel ends a killed process a moment later.
        while is_alive() {
            tokio::task::yield_now().await;
        }
        let probed = probe.0.clone();
        drop(probe);
        assert!(!probed.exists());
    }
}
