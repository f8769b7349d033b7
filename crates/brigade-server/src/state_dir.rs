//! Where a daemon keeps its things: one state folder, one daemon.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brigade_process::sandbox::SOCKET_FOLDER;
use brigade_process::shim::fnv;

/// What fits into the address of a Unix socket everywhere.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Whether an open folder has a path of its own, which is short.
const CAN_SHORTEN: bool = cfg!(target_os = "linux");

/// A state folder and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self { path: folder.as_ref().to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn store_path(&self) -> PathBuf {
        self.path.join("brigade.db")
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("daemon.log")
    }

    /// The definitions that the operator trusts.
    pub fn trust_path(&self) -> PathBuf {
        self.path.join("trust.json")
    }

    /// Held by the daemon for as long as it lives.
    pub fn lock_path(&self) -> PathBuf {
        self.path.join("daemon.lock")
    }

    /// The secret that the operator shows, see [`crate::operator_key`].
    pub fn operator_key_path(&self) -> PathBuf {
        self.path.join("operator.key")
    }

    /// Known from the folder and the user alone, whatever the surroundings of who asks. It has a directory
    /// of its own, the only one here that a sandboxed command sees: the next daemon makes it anew.
    pub fn socket_path(&self) -> PathBuf {
        let here = self.path.join(SOCKET_FOLDER).join("brigade.sock");
        if CAN_SHORTEN || fits_socket_address(&here) { here } else { self.fallback_socket_path() }
    }

    /// In a folder of the user's for such things, for a system where a long path cannot be bound.
    fn fallback_socket_path(&self) -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        let folder = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = format!("{:016x}.sock", fnv::of_bytes(folder.as_os_str().as_bytes()));
        PathBuf::from(format!("/tmp/brigade-{user}")).join(name)
    }

    /// Takes from everybody else what is there already. The folder may be one that others can look into.
    pub(crate) fn restrict_permissions(&self) -> io::Result<()> {
        let beside = |suffix: &str| {
            let mut path = self.store_path().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        for path in [self.store_path(), beside("-wal"), beside("-shm"), beside(".lock")] {
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
    pub fn create(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        check_ownership(&self.path)?;
        self.create_socket_dir()
    }

    /// Makes the folder of the socket alone: the state folder has to be there.
    pub(crate) fn create_socket_dir(&self) -> io::Result<()> {
        let socket = self.socket_path();
        let Some(parent) = socket.parent().filter(|parent| *parent != self.path) else {
            return Ok(());
        };
        match std::fs::DirBuilder::new().mode(0o700).create(parent) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => check_ownership(parent),
        }
    }
}

/// A socket's path in few enough bytes, for as long as this is held.
#[derive(Debug)]
pub(crate) struct ShortSocketPath {
    path: PathBuf,
    /// Keeps the number in the path from meaning another folder.
    _dir: Option<OwnedFd>,
}

impl ShortSocketPath {
    pub(crate) fn of(socket: &Path) -> io::Result<Self> {
        match (socket.parent(), socket.file_name()) {
            (Some(folder), Some(name)) if CAN_SHORTEN && !fits_socket_address(socket) => {
                let folder: OwnedFd = File::open(folder)?.into();
                let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
                Ok(Self { path: Path::new(&path).join(name), _dir: Some(folder) })
            }
            _ => Ok(Self { path: socket.to_owned(), _dir: None }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn fits_socket_address(socket: &Path) -> bool {
    socket.as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// A folder that somebody else owns or writes to is no place for a socket or a store: he could replace
/// them.
fn check_ownership(folder: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_is_in_its_folder_and_else_in_one_of_the_users() {
        let short = StateDir::new("/home/cook/.local/state/brigade");
        assert_eq!(
            short.socket_path(),
            Path::new("/home/cook/.local/state/brigade/socket/brigade.sock")
        );
        let long = StateDir::new(format!("/{}", "x/".repeat(100)));
        assert_eq!(long.socket_path().starts_with(long.path()), CAN_SHORTEN);
        assert!(fits_socket_address(&long.fallback_socket_path()));
        let other = StateDir::new(format!("/{}y", "x/".repeat(100)));
        assert_ne!(long.fallback_socket_path(), other.fallback_socket_path());
    }

    #[test]
    fn a_long_path_is_bound_and_reached_by_a_short_one() {
        let root = tempfile::tempdir().expect("a folder");
        let places = StateDir::new(root.path().join("long/".repeat(40)));
        places.create().expect("its folder");
        let short = ShortSocketPath::of(&places.socket_path()).expect("a way to it");
        assert!(fits_socket_address(short.path()), "{short:?}");
        let _listener = UnixListener::bind(short.path()).expect("a socket");
        assert!(places.socket_path().exists());
        let again = ShortSocketPath::of(&places.socket_path()).expect("a way to it");
        UnixStream::connect(again.path()).expect("somebody listens");
    }
}
