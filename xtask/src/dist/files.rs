//! Files, digests and archives that depend on nothing but their content.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::cargo::target_dir;

/// Reads a file. The error names it.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a text file. The error names it.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes a file and the directories above it.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(parent).and_then(|()| fs::write(path, bytes));
    written.map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes a file that can be executed.
pub(super) fn write_program(path: &Path, bytes: &[u8]) -> Result<(), String> {
    write(path, bytes)?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, executable).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns an empty directory for the content of one package.
pub(super) fn work_dir(name: &str) -> Result<PathBuf, String> {
    let dir = target_dir().join("dist-work").join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

/// Returns the paths of all files below a directory, relative to it and sorted.
pub(super) fn list_files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        let entries = fs::read_dir(&next).map_err(|e| format!("{}: {e}", next.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", next.display()))?.path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else if let Ok(relative) = path.strip_prefix(dir) {
                files.push(relative.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Copies all files below a directory with their modes.
pub(super) fn copy_files(from: &Path, to: &Path) -> Result<(), String> {
    for file in list_files(from)? {
        let target = to.join(&file);
        let parent = target.parent().unwrap_or(to);
        let copied = fs::create_dir_all(parent).and_then(|()| fs::copy(from.join(&file), &target));
        copied.map_err(|e| format!("{}: {e}", target.display()))?;
    }
    Ok(())
}

/// Writes a compressed tar archive of entries of a directory. Order, owners, modes and times do not
/// depend on the machine.
pub(super) fn write_tar_gz(
    dir: &Path,
    entries: &[&str],
    date: u64,
    to: &Path,
) -> Result<(), String> {
    let mut tar = tar_command(dir, date);
    tar.arg("--use-compress-program=gzip --no-name -9").arg("--file").arg(to).args(entries);
    run_quiet(&mut tar).map(drop)
}

/// Returns the call of tar that creates a reproducible archive. `--file` and the entries are missing.
pub(super) fn tar_command(dir: &Path, date: u64) -> Command {
    let mut tar = Command::new("tar");
    tar.env_remove("TAR_OPTIONS").env_remove("GZIP").env("LC_ALL", "C");
    tar.args(["--create", "--format=ustar", "--sort=name", "--owner=0", "--group=0"]);
    tar.args(["--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.arg(format!("--mtime=@{date}")).arg("--directory").arg(dir);
    tar
}

/// Compresses bytes. The result has no name and no time.
pub(super) fn gzip(content: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("gzip: {error}");
    let mut gzip = Command::new("gzip");
    gzip.args(["--no-name", "-9"]).env_remove("GZIP");
    gzip.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = gzip.spawn().map_err(failed)?;
    let mut input = child.stdin.take().ok_or("gzip has no input")?;
    // In a thread: gzip stops reading while nobody reads its output.
    let (written, output) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || input.write_all(content));
        let output = child.wait_with_output();
        (writer.join(), output)
    });
    let output = output.map_err(failed)?;
    written.map_err(|_| "gzip: its input could not be written")?.map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("gzip failed with {}", output.status))
}

/// Returns a time in the form of RFC 3339.
pub(super) fn format_date(seconds: u64) -> Result<String, String> {
    let mut date = Command::new("date");
    date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ", "--date"]).arg(format!("@{seconds}"));
    Ok(String::from_utf8_lossy(&run_quiet(&mut date)?).trim().to_owned())
}

/// Returns the SHA-256 digest in lower-case hexadecimal digits.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 digest as the files `RECORD` of Python packages have it.
pub(super) fn sha256_base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(bytes))
}

/// Runs a command and returns its output. The error has what it wrote to stderr.
pub(super) fn run_quiet(command: &mut Command) -> Result<Vec<u8>, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed with {}: {}", output.status, stderr.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_depends_on_names_and_content_alone() {
        let root = std::env::temp_dir().join(format!("xtask-tar-{}", std::process::id()));
        let mut archives = Vec::new();
        for (at, order) in [["x/b", "x/a"], ["x/a", "x/b"]].into_iter().enumerate() {
            let dir = root.join(at.to_string());
            for name in order {
                write(&dir.join(name), name.as_bytes()).expect("a file");
                let mode = fs::Permissions::from_mode(if at == 0 { 0o600 } else { 0o664 });
                fs::set_permissions(dir.join(name), mode).expect("the file exists");
            }
            let archive = root.join(format!("{at}.tar.gz"));
            write_tar_gz(&dir, &["x"], 1_000_000_000, &archive).expect("tar and gzip");
            archives.push(read(&archive).expect("the archive exists"));
        }
        fs::remove_dir_all(&root).expect("the directory exists");
        assert_eq!(archives[0], archives[1]);
    }

    #[test]
    fn digests_and_dates_have_the_published_values() {
        // The example "abc" of the standard.
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), hex);
        assert_eq!(format_date(1_000_000_000), Ok("2001-09-09T01:46:40Z".into()));
        assert_eq!(sha256_base64(b"abc"), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
    }
}
