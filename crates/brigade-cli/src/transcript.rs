//! Reads and follows the transcript of an agent.

use std::time::Duration;

use brigade_model::plain_text::PlainText;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{ReadTranscriptRequest, ShowTaskRequest};
use brigade_protocol::{DaemonConnection, TaskTarget};

use crate::context::call_over;
use crate::exit_code::CliError;

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Reads the whole transcript; `None` for a task that is not an agent.
pub(crate) async fn read_transcript(
    client: &DaemonClient,
    target: &TaskTarget,
) -> Result<Option<String>, CliError> {
    read_from(client, target, 0).await
}

/// Reads the transcript from a byte offset.
async fn read_from(
    client: &DaemonClient,
    target: &TaskTarget,
    offset: u64,
) -> Result<Option<String>, CliError> {
    let mut text = String::new();
    loop {
        let from = offset + text.len() as u64;
        let request = ReadTranscriptRequest { target: target.clone(), from, max_bytes: None };
        let Some(part) = call_over(client, request).await? else { return Ok(None) };
        text.push_str(&part.text);
        if part.next >= part.total || part.text.is_empty() {
            return Ok(Some(text));
        }
    }
}

/// A place in the transcript of a task.
#[derive(Clone, Debug)]
pub(crate) struct TranscriptCursor {
    pub(crate) target: TaskTarget,
    pub(crate) offset: u64,
}

/// Prints the transcript from a cursor on, until the agent ends.
pub(crate) async fn follow_transcript(
    client: &DaemonClient,
    mut cursor: TranscriptCursor,
    mut print: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    loop {
        let target = cursor.target.clone();
        let task = call_over(client, ShowTaskRequest { target }).await?;
        let text = read_from(client, &cursor.target, cursor.offset).await?;
        let Some(text) = text else { return Ok(()) };
        if !text.is_empty() {
            print(&text)?;
            cursor.offset += text.len() as u64;
        }
        if !task.alive {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads the last `bytes` of a transcript, or a little less.
pub(crate) async fn read_tail(
    client: &DaemonConnection,
    target: TaskTarget,
    bytes: u64,
) -> Option<String> {
    let from = u64::MAX;
    let max_bytes = Some(0);
    let end = client
        .call(ReadTranscriptRequest { target: target.clone(), from, max_bytes })
        .await
        .ok()??;
    let from = end.total.saturating_sub(bytes);
    let tail =
        client.call(ReadTranscriptRequest { target, from, max_bytes: None }).await.ok()??;
    Some(PlainText::of(&tail.text).into_string())
}
