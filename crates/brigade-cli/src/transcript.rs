//! What an agent has said and done.

use std::time::Duration;

use brigade_model::plain_text::PlainText;
use brigade_server::requests::{ReadTranscriptRequest, ShowTaskRequest};
use brigade_server::{DaemonConnection, TaskTarget};

use crate::context::CliContext;
use crate::exit_code::CliError;

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// All of it; `None` for what is no agent.
pub(crate) async fn read_transcript(
    context: &CliContext,
    client: &mut DaemonConnection,
    target: &TaskTarget,
) -> Result<Option<String>, CliError> {
    read_from(context, client, target, 0).await
}

/// What comes after so many bytes of it.
async fn read_from(
    context: &CliContext,
    client: &mut DaemonConnection,
    target: &TaskTarget,
    shown: u64,
) -> Result<Option<String>, CliError> {
    let mut text = String::new();
    loop {
        let from = shown + text.len() as u64;
        let asked = ReadTranscriptRequest { target: target.clone(), from, max_bytes: None };
        let Some(said) = context.call_over(client, asked).await? else { return Ok(None) };
        text.push_str(&said.text);
        if said.next >= said.total || said.text.is_empty() {
            return Ok(Some(text));
        }
    }
}

/// What comes after so many bytes that were shown, until the agent has ended.
pub(crate) async fn follow_transcript(
    context: &CliContext,
    client: &mut DaemonConnection,
    (target, mut shown): (&TaskTarget, u64),
    mut print: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    loop {
        let task = context.call_over(client, ShowTaskRequest { target: target.clone() }).await?;
        let Some(text) = read_from(context, client, target, shown).await? else { return Ok(()) };
        if !text.is_empty() {
            print(&text)?;
            shown += text.len() as u64;
        }
        if !task.alive {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The last so many bytes, or a little less.
pub(crate) async fn read_tail(
    client: &DaemonConnection,
    target: TaskTarget,
    bytes: u64,
) -> Option<String> {
    let (from, max_bytes) = (u64::MAX, Some(0));
    let end = client
        .call(ReadTranscriptRequest { target: target.clone(), from, max_bytes })
        .await
        .ok()??;
    let from = end.total.saturating_sub(bytes);
    let said =
        client.call(ReadTranscriptRequest { target, from, max_bytes: None }).await.ok()??;
    Some(PlainText::of(&said.text).into_string())
}
