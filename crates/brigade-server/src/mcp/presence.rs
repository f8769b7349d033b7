//! Says that a conversation is there, also while nothing is asked.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use brigade_model::ids::ConversationId;
use tokio_util::sync::CancellationToken;

use crate::daemon_connection::{ClientError, DaemonConnection};
use crate::daemon_launcher::DaemonLauncher;
use crate::frames::{ClientIntroduction, ClientRole};

/// How often a daemon is looked for. It waits longer than this for those that it knew before.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(5);
/// The same where a daemon is there and refuses: it is not to be kept busy with that.
const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// The connection asks nothing, so the name matters to nobody.
const PRESENCE_CLIENT_NAME: &str = "mcp";

/// An id that no other conversation has.
pub(super) fn new_conversation_id() -> ConversationId {
    let random = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    let digits = format!("{:016x}{:016x}", random(), random());
    digits.parse().unwrap_or_else(|_| ConversationId::unrecorded())
}

/// Keeps a connection to whatever daemon there is until the client is gone. It starts none, and asks
/// nothing that would keep one from leaving.
pub(super) async fn hold_presence(
    starter: DaemonLauncher,
    id: ConversationId,
    gone: CancellationToken,
) {
    // Within a task the client acts as that task, which has no conversation.
    if !starter.may_start {
        return;
    }
    loop {
        let who = ClientRole::Client(PRESENCE_CLIENT_NAME.to_owned());
        let introduction = ClientIntroduction { role: who, conversation: Some(id.clone()) };
        let pause = match DaemonConnection::connect(&starter.state_dir, introduction).await {
            Ok(client) => {
                tokio::select! {
                    () = client.wait_closed() => {}
                    () = gone.cancelled() => return,
                }
                RECONNECT_INTERVAL
            }
            Err(ClientError::NoDaemon(_)) => RECONNECT_INTERVAL,
            Err(_) => REFUSED_RETRY_INTERVAL,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = gone.cancelled() => return,
        }
    }
}
