//! Progress notifications for a client that asked for them.

use std::time::{Duration, Instant};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};

use super::task_text;
use super::tool_call::McpCallContext;
use brigade_protocol::RequestClient;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The number of intervals after which an unchanged message is sent again, to show that the call is
/// alive.
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

    /// Sends notifications until the future is dropped.
    pub(super) async fn send_until_dropped<C: RequestClient>(
        &self,
        call: &McpCallContext<C>,
        tasks: &[String],
    ) {
        let mut last_message = None;
        let mut unchanged_intervals = 0;
        loop {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            let message = render_progress(call, tasks).await;
            unchanged_intervals += 1;
            let is_unchanged = last_message.as_ref() == Some(&message);
            if is_unchanged && unchanged_intervals < UNCHANGED_INTERVALS_MAX {
                continue;
            }
            unchanged_intervals = 0;
            // The protocol requires a value that grows.
            let progress = self.started_at.elapsed().as_secs_f64();
            let params = ProgressNotificationParam::new(self.token.clone(), progress);
            if self.peer.notify_progress(params.with_message(message.clone())).await.is_err() {
                // The client disconnected; the call itself continues.
                std::future::pending::<()>().await;
            }
            last_message = Some(message);
        }
    }
}

/// Renders the activity of a single task, or the names of several.
async fn render_progress<C: RequestClient>(call: &McpCallContext<C>, tasks: &[String]) -> String {
    match tasks {
        [] => "waiting for tasks".to_owned(),
        [task] => match call.show_task(task).await {
            Ok(info) => task_text::render_status_line(call, &info).await,
            Err(_) => None,
        }
        .unwrap_or_else(|| format!("waiting for {task}")),
        several => format!("waiting for {}", several.join(", ")),
    }
}
