//! The daemon's socket, which it binds again if it was removed.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use brigade_protocol::daemon_lock::FileIdentity;
use brigade_protocol::state_dir::{ShortSocketPath, StateDir};

/// A listener and its socket file.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The identity of the file. The open listener reserves it, so that no other file gets it.
    identity: FileIdentity,
}

impl BoundSocket {
    /// Binds the socket of a state directory. The caller holds its lock, so that no other daemon
    /// uses an existing socket.
    pub(crate) fn bind(state_dir: &StateDir) -> io::Result<Self> {
        state_dir.create_socket_dir()?;
        let path = state_dir.socket_path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(ShortSocketPath::of(&path)?.path())?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let identity = FileIdentity::of(&fs::symlink_metadata(&path)?);
        Ok(Self { listener, path, identity })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    /// Returns true if the path still leads to this socket.
    pub(crate) fn is_in_place(&self) -> bool {
        is_at(&self.path, self.identity)
    }

    /// Stops listening and removes the file, unless another daemon replaced it.
    pub(crate) fn close(self) {
        if self.is_in_place() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(path: &Path, identity: FileIdentity) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| FileIdentity::of(&metadata) == identity)
}
