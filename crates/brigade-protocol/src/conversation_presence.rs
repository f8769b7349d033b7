//! Signals the presence of a conversation to the daemon, also between requests.

use std::time::Duration;

use brigade_model::ids::ConversationId;

use crate::daemon_connection::ClientError;
use crate::daemon_connector::DaemonConnector;
use crate::frames::{ClientIntroduction, ClientRole};

/// The pause between attempts to connect, shorter than the time after which a conversation lapses.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after a refusal, so that the daemon is not kept busy.
const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// The client name of the connection. It sends no requests, so that the name has no effect.
const PRESENCE_CLIENT_NAME: &str = "mcp";

/// Keeps a connection to the running daemon until the future is dropped. It starts no daemon and
/// sends no request, which would delay the daemon's idle shutdown.
pub(crate) async fn hold_presence(connector: DaemonConnector, conversation: ConversationId) {
    loop {
        let role = ClientRole::Client(PRESENCE_CLIENT_NAME.to_owned());
        let introduction = ClientIntroduction { role, conversation: Some(conversation.clone()) };
        let pause = match connector.connect_once(introduction).await {
            Ok(connection) => {
                connection.wait_closed().await;
                RECONNECT_INTERVAL
            }
            Err(ClientError::NoDaemon(_) | ClientError::NoServer(_)) => RECONNECT_INTERVAL,
            Err(_) => REFUSED_RETRY_INTERVAL,
        };
        tokio::time::sleep(pause).await;
    }
}
