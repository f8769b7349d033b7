//! Signals the presence of a conversation to the daemon, also between requests.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use brigade_model::ids::ConversationId;
use tokio_util::sync::CancellationToken;

use brigade_protocol::daemon_connection::{ClientError, DaemonConnection};
use brigade_protocol::daemon_launcher::DaemonLauncher;
use brigade_protocol::frames::{ClientIntroduction, ClientRole};

/// The pause between attempts to connect, shorter than the time after which a conversation lapses.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after a refusal, so that the daemon is not kept busy.
const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// The client name of the connection. It sends no requests, so that the name has no effect.
const PRESENCE_CLIENT_NAME: &str = "mcp";

/// Returns a random id.
pub(super) fn new_conversation_id() -> ConversationId {
    let random = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    let digits = format!("{:016x}{:016x}", random(), random());
    digits.parse().unwrap_or_else(|_| ConversationId::unrecorded())
}

/// Keeps a connection to the running daemon until the client disconnects. It starts no daemon and
/// sends no request, which would delay the daemon's idle shutdown.
pub(super) async fn hold_presence(
    launcher: DaemonLauncher,
    id: ConversationId,
    disconnected: CancellationToken,
) {
    // A client inside a task acts as that task, which has no conversation.
    if !launcher.may_start {
        return;
    }
    loop {
        let role = ClientRole::Client(PRESENCE_CLIENT_NAME.to_owned());
        let introduction = ClientIntroduction { role, conversation: Some(id.clone()) };
        let pause = match DaemonConnection::connect(&launcher.state_dir, introduction).await {
            Ok(client) => {
                tokio::select! {
                    () = client.wait_closed() => {}
                    () = disconnected.cancelled() => return,
                }
                RECONNECT_INTERVAL
            }
            Err(ClientError::NoDaemon(_)) => RECONNECT_INTERVAL,
            Err(_) => REFUSED_RETRY_INTERVAL,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = disconnected.cancelled() => return,
        }
    }
}
