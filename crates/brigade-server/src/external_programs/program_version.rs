//! The path of a program in the search path, and its version.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use brigade_model::plain_text::PlainText;
use brigade_model::truncate::truncate_chars;
use rustix::fs::{Access, access};
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

/// Returns the path of a program: in the search path of this process, or by its absolute path.
pub(super) fn find_program(program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        let path = Some(PathBuf::from(program)).filter(|path| path.is_absolute());
        return path.filter(is_program);
    }
    let search_path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&search_path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(program)).find(is_program)
}

/// Returns the first line that the program prints for `--version`, if it does so in time.
pub(super) async fn read_version(program: &Path, directory: &ProbeDirectory) -> Option<String> {
    let started = Command::new(program)
        .arg("--version")
        .env("NO_COLOR", "1")
        .current_dir(&directory.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let group = ProcessGroup(started.ok()?);
    tokio::time::timeout(VERSION_TIMEOUT, group.read_first_line()).await.ok()?
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
            assert_eq!(find_program(path.to_str().unwrap()), Some(path.clone()));
            let version = read_version(&path, &probe).await;
            assert_eq!(version.as_deref(), expect, "{script}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find_program(path.to_str().unwrap()), None, "it cannot be executed");
        assert_eq!(find_program("no-such-program-of-brigade"), None);
        assert!(find_program("sh").is_some());
    }

    #[tokio::test]
    async fn a_program_that_does_not_answer_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cook");
        let pid_file = dir.path().join("pid");
        write_program(&path, &format!("sleep 1000 & echo $! > {}; wait", pid_file.display()));
        let probe = ProbeDirectory::create().unwrap();
        assert_eq!(read_version(&path, &probe).await, None);
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
