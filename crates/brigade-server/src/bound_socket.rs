//! The daemon's socket, which it binds again when somebody removed it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::state_dir::{ShortSocketPath, StateDir};

/// A listener, and the file that leads to it.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode. The listener holds them, so that no other file gets them.
    identity: (u64, u64),
}

impl BoundSocket {
    /// Binds the socket of a folder. The folder's lock is the caller's, so that a socket that is there belongs to
    /// nobody.
    pub(crate) fn bind(places: &StateDir) -> io::Result<Self> {
        places.create_socket_dir()?;
        let path = places.socket_path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(ShortSocketPath::of(&path)?.path())?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let about = fs::symlink_metadata(&path)?;
        Ok(Self { listener, path, identity: (about.dev(), about.ino()) })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    /// Returns whether its path still leads to it.
    pub(crate) fn is_in_place(&self) -> bool {
        is_at(&self.path, self.identity)
    }

    /// Stops listening and removes the file, unless it is another's by now.
    pub(crate) fn close(self) {
        if self.is_in_place() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(path: &Path, identity: (u64, u64)) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| (about.dev(), about.ino()) == identity)
}
