//! Asking a daemon that may be killed, upgraded or not there yet.

use std::time::Duration;

use brigade_model::refusal::{Refusal, RefusalKind};
use tokio::sync::Mutex;

use crate::call::Call;
use crate::daemon_connection::{ClientError, DaemonConnection};
use crate::daemon_launcher::DaemonLauncher;
use crate::frames::ClientIntroduction;

/// How often one question is asked again.
const CALL_TRIES: u32 = 10;
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A connection for one call. It is made when it is first needed, so that a bridge that has nothing
/// to do does not keep a daemon from leaving.
#[derive(Debug)]
pub(super) struct DaemonClient {
    launcher: DaemonLauncher,
    pub(super) introduction: ClientIntroduction,
    connection: Mutex<Option<DaemonConnection>>,
}

impl DaemonClient {
    pub(super) fn new(starter: DaemonLauncher, who: ClientIntroduction) -> Self {
        Self { launcher: starter, introduction: who, connection: Mutex::new(None) }
    }

    /// Asks what may be asked twice, as often as the daemon goes away before it answers. The
    /// question is made anew each time, since time passes.
    pub(super) async fn call<A: Call>(
        &self,
        question: impl Fn() -> A,
    ) -> Result<A::Reply, Refusal> {
        let mut tries = 0;
        loop {
            tries += 1;
            let client = self.connect().await?;
            match client.call(question()).await {
                Ok(done) => return Ok(done),
                Err(error) if tries < CALL_TRIES && is_retryable(&error) => {}
                Err(error) => return Err(to_refusal(error)),
            }
            self.disconnect().await;
            tokio::time::sleep(RETRY_PAUSE * tries).await;
        }
    }

    /// Asks what must not be done twice: again only if it was not heard.
    pub(super) async fn call_once<A: Call>(
        &self,
        question: impl Fn() -> A,
    ) -> Result<A::Reply, Refusal> {
        for tries in 1..CALL_TRIES {
            let client = self.connect().await?;
            match client.call(question()).await {
                Err(ClientError::NotReceived) => {}
                answered => return answered.map_err(to_refusal),
            }
            self.disconnect().await;
            tokio::time::sleep(RETRY_PAUSE * tries).await;
        }
        Err(Refusal::unavailable("the daemon keeps leaving"))
    }

    async fn connect(&self) -> Result<DaemonConnection, Refusal> {
        let mut client = self.connection.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connected =
            self.launcher.connect(self.introduction.clone()).await.map_err(to_refusal)?;
        Ok(client.insert(connected).clone())
    }

    async fn disconnect(&self) {
        self.connection.lock().await.take();
    }
}

/// It was killed, or is leaving to make room for the next one.
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
