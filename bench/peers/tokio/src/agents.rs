//! The smallest agent loop: model calls and tool calls, until there are no tool calls.

use peers_harness::{BoxError, Measured, Stopwatch};
use tokio::task::JoinSet;

/// One message of a conversation.
#[derive(Clone, Debug)]
enum Message {
    User(String),
    ToolCall { name: String, arguments: String },
    ToolResult(String),
    Assistant(String),
}

impl Message {
    fn text(&self) -> &str {
        match self {
            Self::User(text) | Self::ToolResult(text) | Self::Assistant(text) => text,
            Self::ToolCall { arguments, .. } => arguments,
        }
    }
}

/// Replies as the script says: one tool call, then a final message.
async fn call_scripted_model(messages: &[Message]) -> Message {
    assert!(messages.iter().all(|message| !message.text().is_empty()));
    match messages.last() {
        Some(Message::ToolResult(_)) => Message::Assistant("Done.".to_owned()),
        _ => {
            Message::ToolCall { name: "look".to_owned(), arguments: r#"{"at":"stove"}"#.to_owned() }
        }
    }
}

async fn look(_arguments: &str) -> String {
    "It is hot.".to_owned()
}

async fn run_agent() -> String {
    let mut messages = vec![Message::User("Look.".to_owned())];
    loop {
        let reply = call_scripted_model(&messages.clone()).await;
        messages.push(reply.clone());
        match reply {
            Message::ToolCall { name, arguments } if name == "look" => {
                messages.push(Message::ToolResult(look(&arguments).await));
            }
            Message::Assistant(text) => return text,
            Message::ToolCall { .. } | Message::ToolResult(_) | Message::User(_) => {
                return String::new();
            }
        }
    }
}

pub(crate) async fn one_after_another(count: usize) -> Result<Measured, BoxError> {
    let watch = Stopwatch::start();
    for _ in 0..count {
        let mut agent = JoinSet::new();
        agent.spawn(run_agent());
        let text = agent.join_next().await.ok_or("an agent")??;
        assert_eq!(text, "Done.");
    }
    Ok(watch.stop().into())
}

pub(crate) async fn at_once(count: usize) -> Result<Measured, BoxError> {
    let watch = Stopwatch::start();
    let mut agents = JoinSet::new();
    for _ in 0..count {
        agents.spawn(run_agent());
    }
    while let Some(text) = agents.join_next().await {
        assert_eq!(text?, "Done.");
    }
    Ok(watch.stop().into())
}
