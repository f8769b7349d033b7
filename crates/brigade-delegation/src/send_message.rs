//! `send_message`: a line of input for a command; a message or an answer for an agent.

use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::audience::Audience;
use crate::delegation_reply::DelegationReply;
use crate::tool_args::{ToolArgs, ToolHints, require_text};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// Address or name.
    pub to: String,
    /// The text.
    #[serde(default)]
    pub message: Option<String>,
    /// Close a command's standard input after this.
    #[serde(default)]
    pub close: bool,
    /// Deliver it to a sub-agent now, not at its next step: what its model is saying is broken off.
    #[serde(default)]
    pub interrupt: bool,
    /// The number of the question that this answers; needed only while a sub-agent asks several.
    #[serde(default)]
    pub question: Option<u32>,
    /// The number of the question or message that this answers.
    #[serde(default)]
    pub reply_to: Option<u64>,
}

impl ToolArgs for SendMessage {
    const NAME: &'static str = "send_message";
    const TITLE: &'static str = "Send a message";
    // It reaches only tasks of the caller.
    const HINTS: ToolHints = ToolHints {
        is_read_only: false,
        is_destructive: false,
        is_idempotent: false,
        is_open_world: false,
    };

    fn description(audience: Audience) -> String {
        match audience {
            Audience::Agent => {
                "Send a message to a task that you started, to your parent, or to all your tasks: to \
                 steer a sub-agent, to answer its question, to write a line to the standard input of a \
                 command. A sub-agent that has ended continues with the message. Not for ending a task \
                 (use stop_task), and not for your result: that is your last message."
            }
            Audience::Client(_) => {
                "Send a message to a sub-agent: it answers the sub-agent's open question, or else \
                 reaches it at its next step. A sub-agent that has ended continues with the message. \
                 For a command that was started with stdin: true, it is one line of standard input. \
                 Each call sends it again. Not for ending a task: use stop_task."
            }
        }
        .to_owned()
    }

    fn hidden_args(audience: Audience) -> &'static [&'static str] {
        if audience.is_agent() { &["close", "question"] } else { &["reply_to"] }
    }

    fn required_args(audience: Audience) -> &'static [&'static str] {
        if audience.is_agent() { &["message"] } else { &[] }
    }

    fn argument_docs(audience: Audience) -> Vec<(&'static str, String)> {
        let (to, message) = match audience {
            Audience::Agent => (
                "An address or name of a task that you started, `parent`, or `all` for all of them.",
                "The text; for a command, one line of its standard input.",
            ),
            Audience::Client(_) => (
                "Address or name.",
                "The text; for a command, one line of its standard input, without the newline. It \
                 may be left out with close.",
            ),
        };
        vec![("to", to.to_owned()), ("message", message.to_owned())]
    }
}

impl SendMessage {
    /// The text; refused where there is none.
    pub fn text(&self) -> Result<&str, Refusal> {
        let message = self.message.as_deref().unwrap_or_default();
        require_text("message", message)?;
        Ok(message)
    }
}

/// The fate of a message, as far as it is known at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendMessageReply {
    /// A line of input for a command.
    InputLine { closes: bool },
    /// Only the end of a command's input.
    InputClosed,
    /// The answer to a question.
    Answered { question: Option<u32> },
    /// A message to a task of which no more is known here.
    Sent,
    /// A message to an agent that lives.
    Delivered { interrupts: bool },
    /// A message to an agent that had ended, and continues with it.
    Resumed,
    /// A message to so many tasks.
    Broadcast { count: usize },
}

impl SendMessageReply {
    pub fn render(&self, to: &str) -> DelegationReply {
        let text = match self {
            Self::InputLine { closes: false } => format!("The line was sent to {to}."),
            Self::InputLine { closes: true } => {
                format!("The line was sent to {to}, and its standard input is closed after it.")
            }
            Self::InputClosed => format!("The standard input of {to} is closed."),
            Self::Answered { .. } => format!("The question of {to} is answered, and it continues."),
            Self::Sent => format!("The message was sent to {to}."),
            Self::Delivered { interrupts: true } => {
                format!("The message was sent to {to}, which reads it at once.")
            }
            Self::Delivered { interrupts: false } => {
                format!("The message was sent to {to}, which reads it at its next step.")
            }
            Self::Resumed => format!(
                "{to} had ended and continues with the message. Call wait_tasks for its result."
            ),
            Self::Broadcast { count: 0 } => {
                "The message was sent to nobody: no task of yours is running.".to_owned()
            }
            Self::Broadcast { count } => format!("The message was sent to {count} tasks."),
        };
        let mut reply = DelegationReply::new(text);
        reply.set_field("to", json!(to));
        match self {
            Self::InputLine { closes: true } | Self::InputClosed => {
                reply.set_field("closed", json!(true))
            }
            Self::Answered { question: Some(question) } => {
                reply.set_field("answered", json!(question))
            }
            Self::Resumed => reply.set_field("resumed", json!(true)),
            _ => {}
        }
        reply
    }
}
