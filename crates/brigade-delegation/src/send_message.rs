//! `send_message`: writes a line to a process, or sends a message or an answer to an agent.

use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::audience::Audience;
use crate::delegation_reply::DelegationReply;
use crate::tool_args::{ArgumentDoc, ToolArgs, ToolHints, require_text};

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
    /// Deliver it to a sub-agent now, not at its next step: its current model call is aborted.
    #[serde(default)]
    pub interrupt: bool,
    /// The number of the question that this answers; needed only while a sub-agent asks several.
    #[serde(default)]
    pub question: Option<u32>,
    /// The number of the question or message that this answers.
    #[serde(default)]
    pub reply_to: Option<u64>,
    /// A name for the message, such as "progress". Its reader sees it, and a job can wait for it.
    #[serde(default)]
    pub name: Option<String>,
}

impl ToolArgs for SendMessage {
    const NAME: &'static str = "send_message";
    const TITLE: &'static str = "Send a message";
    // A message reaches only tasks of the caller.
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

    fn argument_docs(audience: Audience) -> Vec<ArgumentDoc> {
        match audience {
            Audience::Agent => vec![
                ArgumentDoc::new(
                    "to",
                    "An address or name of a task that you started, `parent`, or `all` for all of them.",
                ),
                ArgumentDoc::new(
                    "message",
                    "The text; for a command, one line of its standard input.",
                ),
            ],
            Audience::Client(_) => vec![
                ArgumentDoc::new("to", "Address or name."),
                ArgumentDoc::new(
                    "message",
                    "The text; for a command, one line of its standard input, without the newline. \
                     Optional with close.",
                ),
            ],
        }
    }
}

impl SendMessage {
    /// Returns the text. A blank text is refused.
    pub fn text(&self) -> Result<&str, Refusal> {
        let message = self.message.as_deref().unwrap_or_default();
        require_text("message", message)?;
        Ok(message)
    }

    /// Refuses a name for a line of a command's standard input, which cannot have one.
    pub fn check_unnamed_line(&self, command: &str) -> Result<(), Refusal> {
        match self.name {
            Some(_) => Err(Refusal::invalid(format!(
                "{command} is a command, and a line of its standard input has no name; omit `name`"
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a name for an answer, which reaches the question and not the inbox.
    pub fn check_unnamed_answer(&self, asking: &str) -> Result<(), Refusal> {
        match self.name {
            Some(_) => Err(Refusal::conflict(format!(
                "{asking} waits for an answer, which has no name; omit `name` to answer its question"
            ))),
            None => Ok(()),
        }
    }
}

/// The delivery state of a message at the time of the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendMessageReply {
    /// A line of input for a process.
    InputLine { closes_input: bool },
    /// The end of a process's input, without a line.
    InputClosed,
    /// The answer to a question.
    Answered { question: Option<u32> },
    /// A message to a task whose delivery state is not known here.
    Sent,
    /// A message to an agent that is alive.
    Delivered { interrupts: bool },
    /// A message to an agent that had ended and continues with it.
    Resumed,
    /// A message to several tasks.
    Broadcast { count: usize },
}

impl SendMessageReply {
    pub fn render(&self, to: &str) -> DelegationReply {
        let text = match self {
            Self::InputLine { closes_input: false } => format!("The line was sent to {to}."),
            Self::InputLine { closes_input: true } => {
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
            Self::InputLine { closes_input: true } | Self::InputClosed => {
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
