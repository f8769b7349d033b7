//! A message to a task: to a command it is a line of its input, to an agent words or an answer.

use brigade_model::json::Json;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::model::ToolAnnotations;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::tool::{Answer, Call, Tool};
use crate::info::TaskInfo;
use crate::requests::Send;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendMessage {
    /// Address or name.
    to: String,
    /// What to say; to a command the line to write, without its end. May be left out with close.
    #[serde(default)]
    message: Option<String>,
    /// Close a command's standard input after this.
    #[serde(default)]
    close: bool,
    /// The number of the question that this answers; needed only while a sub-agent asks several.
    #[serde(default)]
    question: Option<u32>,
    /// A sub-agent is to hear it now, not at its next step: what its model is saying is broken off.
    #[serde(default)]
    interrupt: bool,
}

impl Tool for SendMessage {
    const NAME: &'static str = "send_message";
    const TITLE: &'static str = "Send a message";
    const DESCRIPTION: &'static str = "Say something to a sub-agent: it answers the question that it \
        asks, else steers it at its next step; one that has ended goes on with it. To a command that was \
        started with stdin: true it is a line of its input. Each call says it again. Not for ending a \
        task: stop_task does that.";

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new()
            .read_only(false)
            .destructive(false)
            .idempotent(false)
            .open_world(true)
    }

    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        if self.message.is_none() && !self.close {
            return Err(Refusal::invalid("missing argument `message`, or close: true"));
        }
        let info = call.show(&self.to).await?;
        if info.is_agent() {
            return self.to_agent(call, &info).await;
        }
        if self.question.is_some() {
            let address = call.address(&info);
            return Err(Refusal::invalid(format!("{address} is a command and asks nothing")));
        }
        let sent = self.send(call).await?;
        let what = match (&self.message, self.close) {
            (Some(_), true) => "the message is on its way, and nothing more follows",
            (Some(_), false) => "the message is on its way",
            (None, _) => "the input is being closed",
        };
        let structured = json!({ "to": self.to, "messages": sent, "closed": self.close });
        Ok(Answer::Said { text: format!("{}: {what}", self.to), structured })
    }
}

impl SendMessage {
    async fn send(&self, call: &Call) -> Result<Vec<u64>, Refusal> {
        let message = self.message.as_deref().map(Json::of).transpose()?;
        let send = || Send {
            target: call.target(&self.to),
            message: message.clone(),
            last: self.close,
            interrupt: self.interrupt,
        };
        call.line.ask_once(send).await.map_err(|refusal| match refusal.kind {
            RefusalKind::Unknown => Refusal::unknown(format!(
                "{}: the message to {} may have arrived or not; read_output shows what came of it",
                refusal.message, self.to
            )),
            _ => refusal,
        })
    }

    async fn to_agent(&self, call: &Call, info: &TaskInfo) -> Result<Answer, Refusal> {
        let address = call.address(info);
        if self.close {
            return Err(Refusal::invalid(format!(
                "{address} is an agent and has no input to close; stop_task ends it"
            )));
        }
        let message = self.message.as_deref().unwrap_or_default();
        if message.trim().is_empty() {
            return Err(Refusal::invalid("the argument `message` is blank"));
        }
        let mut structured = json!({ "to": address });
        let what = match self.answered(&address, info)? {
            Some(question) => {
                call.answer(&address, question, &Json::of(message)?).await?;
                structured["answered"] = json!(question);
                "its question is answered, and it goes on"
            }
            None => {
                structured["messages"] = json!(self.send(call).await?);
                structured["resumed"] = json!(!info.living);
                match info.living {
                    true if self.interrupt => "the message is on its way; it is heard at once",
                    true => "the message is on its way; it is heard at the next step",
                    false => {
                        "it had ended and goes on with the message; wait_tasks returns what comes"
                    }
                }
            }
        };
        Ok(Answer::Said { text: format!("{address}: {what}"), structured })
    }

    /// The question that is meant: the one named, or the only one that is open.
    fn answered(&self, address: &str, info: &TaskInfo) -> Result<Option<u32>, Refusal> {
        let open: Vec<u32> = info.questions.iter().map(|question| question.call).collect();
        match (self.question, open.as_slice()) {
            (Some(named), open) if open.contains(&named) => Ok(Some(named)),
            (Some(named), _) => {
                Err(Refusal::not_found(format!("{address} has no question {named} open")))
            }
            (None, [only]) => Ok(Some(*only)),
            (None, []) => Ok(None),
            (None, several) => {
                let numbers: Vec<String> = several.iter().map(ToString::to_string).collect();
                Err(Refusal::invalid(format!(
                    "{address} asks several things; say which is answered with question: {}",
                    numbers.join(" or ")
                )))
            }
        }
    }
}
