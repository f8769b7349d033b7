//! Bounds the unsolicited messages of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage, ServerNotification};
use rmcp::transport::Transport;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The maximum number of unsolicited messages per interval. Further ones are dropped.
const UNSOLICITED_MAX: u32 = 100;
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);

/// Signals of a connection beside the replies to calls.
#[derive(Debug, Default)]
pub(super) struct ConnectionSignals {
    /// Cancelled when no further message can arrive.
    pub(super) closed: CancellationToken,
    /// Notified when the server's tools changed. Several notifications become one.
    pub(super) tools_changed: Notify,
    /// True after a stream of a service broke: running calls and notifications may be lost.
    pub(super) stream_broke: AtomicBool,
    /// The number of consecutive calls without a reply in time.
    unanswered: AtomicU32,
}

impl ConnectionSignals {
    /// Counts a call without a reply and returns the number of consecutive ones.
    pub(super) fn count_unanswered(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A transport that drops excess messages of the server.
pub(super) struct BoundedTransport<T> {
    inner: T,
    signals: Arc<ConnectionSignals>,
    window_start: Instant,
    unsolicited: u32,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(inner: T, signals: Arc<ConnectionSignals>) -> Self {
        Self { inner, signals, window_start: Instant::now(), unsolicited: 0 }
    }

    /// Returns true if the message is to be passed on.
    fn admits(&mut self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => {
                self.signals.unanswered.store(0, Ordering::Relaxed);
                true
            }
            ServerJsonRpcMessage::Request(_) => self.is_within_rate(),
            ServerJsonRpcMessage::Notification(message) => match &message.notification {
                ServerNotification::ToolListChangedNotification(_) => {
                    self.signals.tools_changed.notify_one();
                    false
                }
                ServerNotification::ProgressNotification(_)
                | ServerNotification::SubscriptionsAcknowledgedNotification(_)
                | ServerNotification::CancelledNotification(_) => self.is_within_rate(),
                // Brigade subscribes to no other notifications.
                _ => false,
            },
        }
    }

    fn is_within_rate(&mut self) -> bool {
        if self.window_start.elapsed() >= UNSOLICITED_INTERVAL {
            self.window_start = Instant::now();
            self.unsolicited = 0;
        }
        self.unsolicited = self.unsolicited.saturating_add(1);
        if self.unsolicited == UNSOLICITED_MAX {
            tracing::warn!("an MCP server sends too many unsolicited messages; some are dropped");
        }
        self.unsolicited < UNSOLICITED_MAX
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
