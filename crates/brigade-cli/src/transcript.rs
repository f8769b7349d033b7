//! What an agent has said and done.

use std::time::Duration;

use brigade_model::plain_text::PlainText;
use brigade_server::requests::{Show, Transcript};
use brigade_server::{Client, Target};

use crate::context::Context;
use crate::exit::Failure;

const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// All of it; `None` for what is no agent.
pub(crate) async fn whole(
    context: &Context,
    client: &mut Client,
    target: &Target,
) -> Result<Option<String>, Failure> {
    after(context, client, target, 0).await
}

/// What comes after so many bytes of it.
async fn after(
    context: &Context,
    client: &mut Client,
    target: &Target,
    shown: u64,
) -> Result<Option<String>, Failure> {
    let mut text = String::new();
    loop {
        let from = shown + text.len() as u64;
        let asked = Transcript { target: target.clone(), from, max_bytes: None };
        let Some(said) = context.ask_over(client, asked).await? else { return Ok(None) };
        text.push_str(&said.text);
        if said.next >= said.total || said.text.is_empty() {
            return Ok(Some(text));
        }
    }
}

/// What comes after so many bytes that were shown, until the agent has ended.
pub(crate) async fn follow(
    context: &Context,
    client: &mut Client,
    (target, mut shown): (&Target, u64),
    mut print: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let task = context.ask_over(client, Show { target: target.clone() }).await?;
        let Some(text) = after(context, client, target, shown).await? else { return Ok(()) };
        if !text.is_empty() {
            print(&text)?;
            shown += text.len() as u64;
        }
        if !task.living {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// The last so many bytes, or a little less.
pub(crate) async fn tail(client: &Client, target: Target, bytes: u64) -> Option<String> {
    let (from, max_bytes) = (u64::MAX, Some(0));
    let end = client.ask(Transcript { target: target.clone(), from, max_bytes }).await.ok()??;
    let from = end.total.saturating_sub(bytes);
    let said = client.ask(Transcript { target, from, max_bytes: None }).await.ok()??;
    Some(PlainText::of(&said.text).into_string())
}
