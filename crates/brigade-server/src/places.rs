//! Where a daemon keeps its things: one state folder, one daemon.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use brigade_process::shim::fnv;

/// What fits into the address of a Unix socket everywhere.
const SOCKET_PATH_MAX: usize = 100;

/// A state folder and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    folder: PathBuf,
}

impl Places {
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().to_owned() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn store(&self) -> PathBuf {
        self.folder.join("brigade.db")
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("daemon.log")
    }

    /// Held by the daemon for as long as it lives.
    pub fn lock(&self) -> PathBuf {
        self.folder.join("daemon.lock")
    }

    /// In the folder, or for a folder with a long path in a folder of the user's for such things.
    pub fn socket(&self) -> PathBuf {
        let here = self.folder.join("brigade.sock");
        if here.as_os_str().len() <= SOCKET_PATH_MAX {
            return here;
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let base = runtime.filter(|path| path.is_absolute()).unwrap_or_else(|| {
            std::env::temp_dir().join(format!("brigade-{}", rustix::process::getuid().as_raw()))
        });
        base.join(format!(
            "brigade-{:016x}.sock",
            fnv::of_bytes(self.folder.as_os_str().as_bytes())
        ))
    }

    /// Makes the folder, and that of the socket, for nobody else to look into.
    pub fn make(&self) -> io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.folder)?;
        own(&self.folder)?;
        match self.socket().parent() {
            Some(parent) if parent != self.folder => {
                builder.create(parent)?;
                own(parent)
            }
            _ => Ok(()),
        }
    }
}

/// A folder of somebody else's is no place for a socket or a store: its owner could replace them.
fn own(folder: &Path) -> io::Result<()> {
    let owner = std::fs::metadata(folder)?.uid();
    if owner == rustix::process::getuid().as_raw() {
        return Ok(());
    }
    let problem = format!("{} belongs to another user ({owner})", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_still_has_a_socket() {
        let short = Places::new("/home/cook/.local/state/brigade");
        assert_eq!(short.socket(), Path::new("/home/cook/.local/state/brigade/brigade.sock"));
        let long = Places::new(format!("/{}", "x/".repeat(100)));
        assert!(long.socket().as_os_str().len() <= SOCKET_PATH_MAX);
        let other = Places::new(format!("/{}y", "x/".repeat(100)));
        assert_ne!(long.socket(), other.socket());
    }
}
