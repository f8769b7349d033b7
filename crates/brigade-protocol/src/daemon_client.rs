//! Sends requests to a daemon that may be killed, replaced or not started yet.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::refusal::{Refusal, RefusalKind};
use tokio::sync::Mutex;

use crate::call::Call;
use crate::daemon_connection::{ClientError, DaemonConnection};
use crate::daemon_connector::DaemonConnector;
use crate::frames::ClientIntroduction;
use crate::request_client::RequestClient;
use crate::requests::AnyRequest;

/// The repetition of an operation whose daemon was lost.
#[derive(Clone, Copy, Debug)]
pub struct ReconnectPolicy {
    /// The maximum number of attempts of one operation.
    pub attempts_max: u32,
    /// The pause after the first attempt. It grows with each further one.
    pub pause: Duration,
}

impl ReconnectPolicy {
    /// For a client that nobody watches.
    pub const UNATTENDED: Self = Self { attempts_max: 10, pause: Duration::from_millis(50) };
    /// For short calls of a person.
    pub const INTERACTIVE: Self = Self { attempts_max: 6, pause: Duration::ZERO };
    /// For operations that last as long as a task, whatever happens to daemons.
    pub const UNBOUNDED: Self = Self { attempts_max: u32::MAX, pause: Duration::ZERO };
}

/// A reconnecting client. It connects on first use, so that an idle server does not delay the
/// daemon's idle shutdown. Clones share the connection.
#[derive(Clone, Debug)]
pub struct DaemonClient {
    connector: DaemonConnector,
    introduction: ClientIntroduction,
    connection: Arc<Mutex<Option<DaemonConnection>>>,
}

impl DaemonClient {
    pub fn new(connector: impl Into<DaemonConnector>, introduction: ClientIntroduction) -> Self {
        Self { connector: connector.into(), introduction, connection: Arc::default() }
    }

    /// Sends a request. Sends it again if the daemon did not read it, or if it is repeatable and the
    /// daemon disconnects before it replies.
    pub async fn send_request<A: Call + Clone>(
        &self,
        policy: ReconnectPolicy,
        request: A,
    ) -> Result<A::Reply, ClientError> {
        let is_repeatable = Into::<AnyRequest>::into(request.clone()).is_repeatable();
        let should_repeat =
            if is_repeatable { ClientError::is_lost_daemon } else { is_not_received };
        self.call_while(policy, should_repeat, || request.clone()).await
    }

    async fn call_while<A: Call>(
        &self,
        policy: ReconnectPolicy,
        should_repeat: fn(&ClientError) -> bool,
        new_request: impl Fn() -> A,
    ) -> Result<A::Reply, ClientError> {
        let mut attempts = self.attempts(policy);
        loop {
            let connection = attempts.connect_next().await?;
            match connection.call(new_request()).await {
                Err(error) if attempts.may_continue() && should_repeat(&error) => {}
                Err(error) if error.is_lost_daemon() => {
                    self.disconnect(&connection).await;
                    return Err(error);
                }
                result => return result,
            }
        }
    }

    /// Runs an operation over a connection, and again over one to the next daemon while
    /// `should_repeat` is true for its error. A stream continues where the last attempt ended.
    pub async fn repeat<T, E: From<ClientError>>(
        &self,
        policy: ReconnectPolicy,
        should_repeat: impl Fn(&E) -> bool,
        mut operation: impl AsyncFnMut(DaemonConnection) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempts = self.attempts(policy);
        loop {
            let connection = attempts.connect_next().await?;
            match operation(connection).await {
                Err(error) if attempts.may_continue() && should_repeat(&error) => {}
                result => return result,
            }
        }
    }

    fn attempts(&self, policy: ReconnectPolicy) -> ConnectAttempts<'_> {
        ConnectAttempts { client: self, policy, count: 0, last: None }
    }

    /// Returns the connection. Connects to the daemon if there is none.
    pub async fn connect(&self) -> Result<DaemonConnection, ClientError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let connected = self.connector.connect(self.introduction.clone()).await?;
        Ok(connection.insert(connected).clone())
    }

    /// Drops a connection that was lost, unless another caller has replaced it.
    async fn disconnect(&self, lost: &DaemonConnection) {
        self.connection.lock().await.take_if(|connection| connection.is_same(lost));
    }
}

impl RequestClient for DaemonClient {
    fn introduction(&self) -> &ClientIntroduction {
        &self.introduction
    }

    async fn protocol(&self) -> Result<u32, Refusal> {
        self.connect().await.map(|connection| connection.protocol()).map_err(to_refusal)
    }

    async fn call<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        let result = self.call_while(ReconnectPolicy::UNATTENDED, is_retryable, new_request).await;
        result.map_err(to_refusal)
    }

    async fn call_once<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        let policy = ReconnectPolicy::UNATTENDED;
        self.call_while(policy, is_not_received, new_request).await.map_err(to_refusal)
    }
}

/// The attempts of one operation. After a lost connection, the next attempt uses another one.
struct ConnectAttempts<'a> {
    client: &'a DaemonClient,
    policy: ReconnectPolicy,
    count: u32,
    last: Option<DaemonConnection>,
}

impl ConnectAttempts<'_> {
    async fn connect_next(&mut self) -> Result<DaemonConnection, ClientError> {
        if let Some(lost) = self.last.take() {
            self.client.disconnect(&lost).await;
            tokio::time::sleep(self.policy.pause.saturating_mul(self.count)).await;
        }
        self.count = self.count.saturating_add(1);
        let connection = self.client.connect().await?;
        self.last = Some(connection.clone());
        Ok(connection)
    }

    fn may_continue(&self) -> bool {
        self.count < self.policy.attempts_max
    }
}

fn is_not_received(error: &ClientError) -> bool {
    matches!(error, ClientError::NotReceived)
}

/// Returns true if the daemon was killed, or shuts down to be replaced.
fn is_retryable(error: &ClientError) -> bool {
    match error {
        ClientError::Lost | ClientError::NotReceived => true,
        ClientError::Refused(refusal) => refusal.kind == RefusalKind::Unavailable,
        ClientError::NoDaemon(_)
        | ClientError::NotStarted(_)
        | ClientError::Unreachable { .. }
        | ClientError::NotPermitted(_)
        | ClientError::NoServer(_)
        | ClientError::NotServed(_)
        | ClientError::VersionMismatch { .. }
        | ClientError::Malformed(_) => false,
    }
}

fn to_refusal(error: ClientError) -> Refusal {
    match error {
        ClientError::Refused(refusal) => refusal,
        ClientError::Lost => Refusal::unknown(error.to_string()),
        ClientError::NotServed(_) => Refusal::forbidden(error.to_string()),
        ClientError::NoDaemon(_)
        | ClientError::NotStarted(_)
        | ClientError::Unreachable { .. }
        | ClientError::NotPermitted(_)
        | ClientError::NoServer(_)
        | ClientError::NotReceived
        | ClientError::VersionMismatch { .. } => Refusal::unavailable(error.to_string()),
        ClientError::Malformed(_) => Refusal::internal(error.to_string()),
    }
}
