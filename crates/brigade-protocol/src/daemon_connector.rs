//! The ways to a daemon: the socket of a state directory, or servers.

use brigade_model::ids::ConversationId;

use crate::conversation_presence;
use crate::daemon_client::DaemonClient;
use crate::daemon_connection::{ClientError, DaemonConnection};
use crate::daemon_launcher::DaemonLauncher;
use crate::frames::ClientIntroduction;
use crate::remote_daemon::RemoteDaemon;
use crate::request_client::RequestClientFactory;

/// A way to the daemon. Cheap to clone.
#[derive(Clone, Debug)]
pub enum DaemonConnector {
    /// The daemon of a state directory, which is started if none runs.
    Local(DaemonLauncher),
    /// A daemon that is neither started nor replaced.
    Remote(RemoteDaemon),
}

impl DaemonConnector {
    /// Connects to the daemon. Starts one if that is possible.
    pub async fn connect(
        &self,
        introduction: ClientIntroduction,
    ) -> Result<DaemonConnection, ClientError> {
        match self {
            Self::Local(launcher) => launcher.connect(introduction).await,
            Self::Remote(remote) => remote.connect(introduction).await,
        }
    }

    /// Connects to a daemon that runs, without waiting for one.
    pub(crate) async fn connect_once(
        &self,
        introduction: ClientIntroduction,
    ) -> Result<DaemonConnection, ClientError> {
        match self {
            Self::Local(launcher) => {
                DaemonConnection::connect(&launcher.state_dir, introduction).await
            }
            Self::Remote(remote) => remote.connect_once(introduction).await,
        }
    }

    /// Returns true if this process is part of a task of the daemon, and acts as that task.
    pub fn is_within_task(&self) -> bool {
        match self {
            Self::Local(launcher) => launcher.start_policy.is_within_task(),
            // The token says who is calling.
            Self::Remote(_) => false,
        }
    }
}

impl From<DaemonLauncher> for DaemonConnector {
    fn from(launcher: DaemonLauncher) -> Self {
        Self::Local(launcher)
    }
}

impl From<RemoteDaemon> for DaemonConnector {
    fn from(remote: RemoteDaemon) -> Self {
        Self::Remote(remote)
    }
}

impl RequestClientFactory for DaemonConnector {
    type Client = DaemonClient;

    fn new_client(&self, introduction: ClientIntroduction) -> DaemonClient {
        DaemonClient::new(self.clone(), introduction)
    }

    fn hold_presence(
        &self,
        conversation: ConversationId,
    ) -> impl Future<Output = ()> + Send + 'static {
        let connector = self.clone();
        async move {
            // A client inside a task acts as that task, which has no conversation.
            if !connector.is_within_task() {
                conversation_presence::hold_presence(connector, conversation).await;
            }
        }
    }
}
