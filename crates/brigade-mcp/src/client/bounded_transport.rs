//! What a server says without being asked, kept within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage, ServerNotification};
use rmcp::transport::Transport;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How much of what was not asked for is heard in a while. The rest is dropped as it is read.
const UNASKED_MAX: u32 = 100;
const UNASKED_EVERY: Duration = Duration::from_secs(1);

/// What is heard of a connection beside the answers to calls.
#[derive(Debug, Default)]
pub(super) struct ConnectionSignals {
    /// Nothing comes any more.
    pub(super) closed: CancellationToken,
    /// There are other tools than before. However often that is said, it is done once.
    pub(super) tools_changed: Notify,
    /// A stream of a service broke: calls under way may be lost, and so may be what it tells of.
    pub(super) stream_broke: AtomicBool,
    /// Calls in a row that were not answered in time.
    unanswered: AtomicU32,
}

impl ConnectionSignals {
    /// How often in a row there was no answer.
    pub(super) fn count_unanswered(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A connection whose other side may say as much as it likes.
pub(super) struct BoundedTransport<T> {
    inner: T,
    signals: Arc<ConnectionSignals>,
    window_start: Instant,
    unasked: u32,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(inner: T, heard: Arc<ConnectionSignals>) -> Self {
        Self { inner, signals: heard, window_start: Instant::now(), unasked: 0 }
    }

    /// Whether it is to be heard by those who wait.
    fn admits(&mut self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => {
                self.signals.unanswered.store(0, Ordering::Relaxed);
                true
            }
            ServerJsonRpcMessage::Request(_) => self.is_within_rate(),
            ServerJsonRpcMessage::Notification(said) => match &said.notification {
                ServerNotification::ToolListChangedNotification(_) => {
                    self.signals.tools_changed.notify_one();
                    false
                }
                ServerNotification::ProgressNotification(_)
                | ServerNotification::SubscriptionsAcknowledgedNotification(_)
                | ServerNotification::CancelledNotification(_) => self.is_within_rate(),
                // Nobody here asked for what else there is.
                _ => false,
            },
        }
    }

    fn is_within_rate(&mut self) -> bool {
        if self.window_start.elapsed() >= UNASKED_EVERY {
            (self.window_start, self.unasked) = (Instant::now(), 0);
        }
        self.unasked = self.unasked.saturating_add(1);
        if self.unasked == UNASKED_MAX {
            tracing::warn!("an MCP server says more than anybody asked for; some of it is dropped");
        }
        self.unasked < UNASKED_MAX
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.signals.closed.cancel();
                return None;
            };
            if self.admits(&message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.signals.closed.cancel();
        self.inner.close().await
    }
}

impl<T> Drop for BoundedTransport<T> {
    fn drop(&mut self) {
        self.signals.closed.cancel();
    }
}
