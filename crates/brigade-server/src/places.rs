//! Where a daemon keeps its things: one state folder, one daemon.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brigade_process::shim::fnv;
use rustix::fs::OFlags;

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

    /// Takes from everybody else what is there already. The folder may be one that others can look into.
    pub(crate) fn make_private(&self) -> io::Result<()> {
        let beside = |suffix: &str| {
            let mut path = self.store().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        for path in [self.store(), beside("-wal"), beside("-shm"), beside(".lock")] {
            match std::fs::metadata(&path) {
                Ok(about) if about.mode() & 0o077 != 0 => {
                    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
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

/// A folder that somebody else owns or writes to is no place for a socket or a store: he could replace
/// them.
fn own(folder: &Path) -> io::Result<()> {
    let about = std::fs::metadata(folder)?;
    let (owner, mode, shown) = (about.uid(), about.mode() & 0o777, folder.display());
    let problem = if owner != rustix::process::getuid().as_raw() {
        format!("{shown} belongs to another user ({owner}); name another folder")
    } else if mode & 0o022 != 0 {
        format!("others can write to {shown} (mode {mode:o}): chmod 700 {shown}")
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Opens a file that is for nobody else, and never what a link leads to. It is made if there is none.
pub(crate) fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let file = options.create(true).mode(0o600).custom_flags(no_link).open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
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
