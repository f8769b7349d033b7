//! What an agent has said and done.

use std::time::Duration;

use brigade_server::requests::{Show, Transcript};
use brigade_server::{Client, Target};

use crate::context::Context;
use crate::exit::Failure;
use crate::show;

const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// All of it; `None` for what is no agent.
pub(crate) async fn whole(
    context: &Context,
    client: &mut Client,
    target: &Target,
) -> Result<Option<String>, Failure> {
    let mut text = String::new();
    loop {
        let from = text.len() as u64;
        let asked = Transcript { target: target.clone(), from, max_bytes: None };
        let Some(said) = context.ask_over(client, asked).await? else { return Ok(None) };
        text.push_str(&said.text);
        if said.next >= said.total || said.text.is_empty() {
            return Ok(Some(text));
        }
    }
}

/// What comes after what was shown, until the agent has ended. Where an answer came in between, which
/// happens when calls are made side by side, it is shown again from there.
pub(crate) async fn follow(
    context: &Context,
    client: &mut Client,
    (target, mut shown): (&Target, String),
    mut print: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let task = context.ask_over(client, Show { target: target.clone() }).await?;
        let Some(text) = whole(context, client, target).await? else { return Ok(()) };
        let same = shown.bytes().zip(text.bytes()).take_while(|(one, other)| one == other).count();
        let from = if same == shown.len() { same } else { line_start(&text, same) };
        if from < text.len() {
            print(&text[from..])?;
        }
        shown = text;
        if !task.living {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// The last so many bytes, or a little less.
pub(crate) async fn tail(client: &Client, target: Target, bytes: u64) -> Option<String> {
    let (from, max_bytes) = (u64::MAX, Some(0));
    let end = client.ask(Transcript { target: target.clone(), from, max_bytes }).await.ok()??;
    let from = end.total.saturating_sub(bytes);
    let said = client.ask(Transcript { target, from, max_bytes: None }).await.ok()??;
    Some(show::plain(&said.text))
}
