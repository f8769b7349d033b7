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
pub(super) struct Heard {
    /// Nothing comes any more.
    pub(super) over: CancellationToken,
    /// There are other tools than before. However often that is said, it is done once.
    pub(super) changed: Notify,
    /// A stream of a service broke: calls under way may be lost, and so may be what it tells of.
    pub(super) broke: AtomicBool,
    /// Calls in a row that were not answered in time.
    unanswered: AtomicU32,
}

impl Heard {
    /// How often in a row there was no answer.
    pub(super) fn no_answer(&self) -> u32 {
        self.unanswered.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A connection whose other side may say as much as it likes.
pub(super) struct Guarded<T> {
    inner: T,
    heard: Arc<Heard>,
    since: Instant,
    unasked: u32,
}

impl<T> Guarded<T> {
    pub(super) fn new(inner: T, heard: Arc<Heard>) -> Self {
        Self { inner, heard, since: Instant::now(), unasked: 0 }
    }

    /// Whether it is to be heard by those who wait.
    fn passes(&mut self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => {
                self.heard.unanswered.store(0, Ordering::Relaxed);
                true
            }
            ServerJsonRpcMessage::Request(_) => self.has_room(),
            ServerJsonRpcMessage::Notification(said) => match &said.notification {
                ServerNotification::ToolListChangedNotification(_) => {
                    self.heard.changed.notify_one();
                    false
                }
                ServerNotification::ProgressNotification(_)
                | ServerNotification::SubscriptionsAcknowledgedNotification(_)
                | ServerNotification::CancelledNotification(_) => self.has_room(),
                // Nobody here asked for what else there is.
                _ => false,
            },
        }
    }

    fn has_room(&mut self) -> bool {
        if self.since.elapsed() >= UNASKED_EVERY {
            (self.since, self.unasked) = (Instant::now(), 0);
        }
        self.unasked = self.unasked.saturating_add(1);
        if self.unasked == UNASKED_MAX {
            tracing::warn!("an MCP server says more than anybody asked for; some of it is dropped");
        }
        self.unasked < UNASKED_MAX
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
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
                self.heard.over.cancel();
                return None;
            };
            if self.passes(&message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.heard.over.cancel();
        self.inner.close().await
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.heard.over.cancel();
    }
}
