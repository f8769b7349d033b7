//! The state directory, which belongs to one daemon, and the paths of its files.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brigade_process::sandbox::SOCKET_DIR;
use brigade_process::shim::fnv;

/// The length of a path that fits into the address of a Unix socket on every system.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// True if an open directory has a short path of its own.
const CAN_SHORTEN: bool = cfg!(target_os = "linux");

/// A state directory and the paths of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn store_path(&self) -> PathBuf {
        self.path.join("brigade.db")
    }

    /// Returns the path of the file that names the store outside of the directory.
    pub fn store_binding_path(&self) -> PathBuf {
        self.path.join("store.json")
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("daemon.log")
    }

    /// Returns the path of the file with the trusted definitions.
    pub fn trust_path(&self) -> PathBuf {
        self.path.join("trust.json")
    }

    /// Returns the path of the lock file, which the daemon holds while it runs.
    pub fn lock_path(&self) -> PathBuf {
        self.path.join("daemon.lock")
    }

    /// Returns the path of the operator key, see [`crate::operator_key`].
    pub fn operator_key_path(&self) -> PathBuf {
        self.path.join("operator.key")
    }

    /// Returns the path of the socket, which depends only on the directory and the user.
    ///
    /// The socket has a subdirectory of its own, the only one that a sandboxed process sees: each
    /// daemon creates the socket anew.
    pub fn socket_path(&self) -> PathBuf {
        let path = self.path.join(SOCKET_DIR).join("brigade.sock");
        if CAN_SHORTEN || fits_socket_address(&path) { path } else { self.fallback_socket_path() }
    }

    /// Returns a path in a directory of the user, for systems that cannot bind a long path.
    fn fallback_socket_path(&self) -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        let state_dir = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = format!("{:016x}.sock", fnv::of_bytes(state_dir.as_os_str().as_bytes()));
        PathBuf::from(format!("/tmp/brigade-{user}")).join(name)
    }

    /// Removes the permissions of other users on existing files. They may be able to read the
    /// directory.
    pub fn restrict_permissions(&self) -> io::Result<()> {
        let store_file = |suffix: &str| {
            let mut path = self.store_path().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        let suffixes = ["", "-wal", "-shm", ".lock"];
        for path in suffixes.map(store_file) {
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.mode() & 0o077 != 0 => {
                    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates the directory and that of the socket, which other users cannot read.
    pub fn create(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        check_ownership(&self.path)?;
        self.create_socket_dir()
    }

    /// Creates the directory of the socket. The state directory must exist.
    pub fn create_socket_dir(&self) -> io::Result<()> {
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

/// A short path of a socket, valid until this is dropped.
#[derive(Debug)]
pub struct ShortSocketPath {
    path: PathBuf,
    /// Keeps the descriptor in the path open, so that it does not name another directory.
    _dir: Option<OwnedFd>,
}

impl ShortSocketPath {
    pub fn of(socket: &Path) -> io::Result<Self> {
        match (socket.parent(), socket.file_name()) {
            (Some(parent), Some(name)) if CAN_SHORTEN && !fits_socket_address(socket) => {
                let dir: OwnedFd = File::open(parent)?.into();
                let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
                Ok(Self { path: Path::new(&path).join(name), _dir: Some(dir) })
            }
            _ => Ok(Self { path: socket.to_owned(), _dir: None }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn fits_socket_address(socket: &Path) -> bool {
    socket.as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// Refuses a directory that another user owns or can write to, since they could replace the socket
/// or the store.
fn check_ownership(dir: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(dir)?;
    let owner = metadata.uid();
    let mode = metadata.mode() & 0o777;
    let shown = dir.display();
    let problem = if owner != rustix::process::getuid().as_raw() {
        format!("{shown} belongs to another user ({owner}); name another directory")
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
    fn a_socket_is_in_the_state_directory_or_in_one_of_the_user() {
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
        let root = tempfile::tempdir().expect("a temporary directory");
        let state_dir = StateDir::new(root.path().join("long/".repeat(40)));
        state_dir.create().expect("the state directory");
        let short = ShortSocketPath::of(&state_dir.socket_path()).expect("a short path");
        assert!(fits_socket_address(short.path()), "{short:?}");
        let _listener = UnixListener::bind(short.path()).expect("a socket");
        assert!(state_dir.socket_path().exists());
        let again = ShortSocketPath::of(&state_dir.socket_path()).expect("a short path");
        UnixStream::connect(again.path()).expect("a listener");
    }
}
