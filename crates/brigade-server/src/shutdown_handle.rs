//! The handle that asks a daemon to shut down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Shuts down a daemon. Clones are handles of the same daemon.
#[derive(Clone, Debug, Default)]
pub struct ShutdownHandle {
    is_requested: Arc<AtomicBool>,
    /// Cancelled by the first request.
    pub(crate) drain_token: CancellationToken,
    /// Cancelled when the daemon serves no more.
    pub(crate) shutdown_token: CancellationToken,
}

impl ShutdownHandle {
    /// Asks the daemon to drain and then shut down. A further request ends the drain.
    pub fn request_shutdown(&self) {
        if self.is_requested.swap(true, Ordering::Relaxed) {
            self.shutdown_token.cancel();
        }
        self.drain_token.cancel();
    }
}
