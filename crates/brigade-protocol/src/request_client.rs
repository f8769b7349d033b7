//! The traits by which a caller sends requests without knowing where their handlers run.
//!
//! ```text
//!   RequestClientFactory ─ one client for each introduction ─ RequestClient ─ Call ─ its reply
//! ```
//!
//! [`DaemonConnector`](crate::daemon_connector::DaemonConnector) and
//! [`DaemonClient`](crate::daemon_client::DaemonClient) send requests to a daemon.
//! A program that runs the handlers itself implements both traits without a connection.

use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;

use crate::call::Call;
use crate::frames::{ClientIntroduction, PROTOCOL_VERSION};

/// A client that sends requests under one introduction.
pub trait RequestClient: Send + Sync + 'static {
    /// Returns the introduction, whose role the handlers check.
    fn introduction(&self) -> &ClientIntroduction;

    /// Returns the protocol of the handlers. A request of a later protocol needs it.
    fn protocol(&self) -> impl Future<Output = Result<u32, Refusal>> + Send {
        std::future::ready(Ok(PROTOCOL_VERSION))
    }

    /// Sends a repeatable request, again if the connection ends before the reply. Builds the
    /// request anew for each attempt, since a timeout shrinks.
    fn call<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> impl Future<Output = Result<C::Reply, Refusal>> + Send;

    /// Sends a request that must not be repeated, again only if no handler has read it.
    fn call_once<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> impl Future<Output = Result<C::Reply, Refusal>> + Send;
}

/// A factory of clients.
pub trait RequestClientFactory: Send + Sync + 'static {
    type Client: RequestClient;

    /// Returns a client. It connects on first use, if it connects at all.
    fn new_client(&self, introduction: ClientIntroduction) -> Self::Client;

    /// Signals the presence of a conversation, also between requests, until the future is dropped.
    /// It ends early if there is nothing to signal.
    fn hold_presence(
        &self,
        conversation: ConversationId,
    ) -> impl Future<Output = ()> + Send + 'static;
}
