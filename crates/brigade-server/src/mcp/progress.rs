//! Word of what goes on, for a client that asked for it.

use std::time::{Duration, Instant};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};

use super::task_text;
use super::tool_call::McpCallContext;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Also without news a client hears so often that the call is alive.
const UNCHANGED_INTERVALS_MAX: u32 = 5;

#[derive(Debug)]
pub(super) struct ProgressNotifier {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    started_at: Instant,
}

impl ProgressNotifier {
    pub(super) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        Self { peer, token, started_at: Instant::now() }
    }

    /// Tells on until nobody listens.
    pub(super) async fn send_until_dropped(&self, call: &McpCallContext, tasks: &[String]) {
        let mut before = None;
        let mut quiet = 0;
        loop {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            let message = render_progress(call, tasks).await;
            quiet += 1;
            if before.as_ref() == Some(&message) && quiet < UNCHANGED_INTERVALS_MAX {
                continue;
            }
            quiet = 0;
            // Seconds, which always grow.
            let progress = self.started_at.elapsed().as_secs_f64();
            let said = ProgressNotificationParam::new(self.token.clone(), progress);
            if self.peer.notify_progress(said.with_message(message.clone())).await.is_err() {
                // There is nobody to tell; the call itself goes on.
                std::future::pending::<()>().await;
            }
            before = Some(message);
        }
    }
}

/// The last line of output, or what an agent is at, where one task is waited for.
async fn render_progress(call: &McpCallContext, tasks: &[String]) -> String {
    match tasks {
        [] => "waiting for news".to_owned(),
        [task] => match call.show_task(task).await {
            Ok(info) => task_text::render_status_line(call, &info).await,
            Err(_) => None,
        }
        .unwrap_or_else(|| format!("waiting for {task}")),
        several => format!("waiting for {}", several.join(", ")),
    }
}
