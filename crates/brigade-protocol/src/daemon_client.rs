//! Sends requests to a daemon that may be killed, replaced or not started yet.

use std::time::Duration;

use brigade_model::ids::ConversationId;
use brigade_model::refusal::{Refusal, RefusalKind};
use tokio::sync::Mutex;

use crate::call::Call;
use crate::conversation_presence;
use crate::daemon_connection::{ClientError, DaemonConnection};
use crate::daemon_launcher::DaemonLauncher;
use crate::frames::ClientIntroduction;
use crate::request_client::{RequestClient, RequestClientFactory};

/// The maximum number of attempts of one call.
const CALL_TRIES: u32 = 10;
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A reconnecting client for one tool call. It connects on first use, so that an idle server does
/// not delay the daemon's idle shutdown.
#[derive(Debug)]
pub struct DaemonClient {
    launcher: DaemonLauncher,
    introduction: ClientIntroduction,
    connection: Mutex<Option<DaemonConnection>>,
}

impl DaemonClient {
    pub fn new(launcher: DaemonLauncher, introduction: ClientIntroduction) -> Self {
        Self { launcher, introduction, connection: Mutex::new(None) }
    }

    async fn connect(&self) -> Result<DaemonConnection, Refusal> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let connected =
            self.launcher.connect(self.introduction.clone()).await.map_err(to_refusal)?;
        Ok(connection.insert(connected).clone())
    }

    async fn disconnect(&self) {
        self.connection.lock().await.take();
    }
}

impl RequestClient for DaemonClient {
    fn introduction(&self) -> &ClientIntroduction {
        &self.introduction
    }

    async fn call<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        let mut tries = 0;
        loop {
            tries += 1;
            let client = self.connect().await?;
            match client.call(new_request()).await {
                Ok(reply) => return Ok(reply),
                Err(error) if tries < CALL_TRIES && is_retryable(&error) => {}
                Err(error) => return Err(to_refusal(error)),
            }
            self.disconnect().await;
            tokio::time::sleep(RETRY_PAUSE * tries).await;
        }
    }

    async fn call_once<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        for tries in 1..CALL_TRIES {
            let client = self.connect().await?;
            match client.call(new_request()).await {
                Err(ClientError::NotReceived) => {}
                result => return result.map_err(to_refusal),
            }
            self.disconnect().await;
            tokio::time::sleep(RETRY_PAUSE * tries).await;
        }
        Err(Refusal::unavailable("the daemon keeps shutting down"))
    }
}

impl RequestClientFactory for DaemonLauncher {
    type Client = DaemonClient;

    fn new_client(&self, introduction: ClientIntroduction) -> DaemonClient {
        DaemonClient::new(self.clone(), introduction)
    }

    fn hold_presence(
        &self,
        conversation: ConversationId,
    ) -> impl Future<Output = ()> + Send + 'static {
        // A client inside a task acts as that task, which has no conversation.
        let is_within_task = !self.may_start;
        let state_dir = self.state_dir.clone();
        async move {
            if !is_within_task {
                conversation_presence::hold_presence(state_dir, conversation).await;
            }
        }
    }
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
        | ClientError::VersionMismatch { .. }
        | ClientError::Malformed(_) => false,
    }
}

fn to_refusal(error: ClientError) -> Refusal {
    match error {
        ClientError::Refused(refusal) => refusal,
        ClientError::Lost => Refusal::unknown(error.to_string()),
        ClientError::NoDaemon(_)
        | ClientError::NotStarted(_)
        | ClientError::Unreachable { .. }
        | ClientError::NotPermitted(_)
        | ClientError::NotReceived
        | ClientError::VersionMismatch { .. } => Refusal::unavailable(error.to_string()),
        ClientError::Malformed(_) => Refusal::internal(error.to_string()),
    }
}
