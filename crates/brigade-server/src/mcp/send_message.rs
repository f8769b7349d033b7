//! A message to a task: to a command it is a line of its input.

use brigade_model::json::Json;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::model::ToolAnnotations;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::tool::{Answer, Call, Tool};
use crate::requests::Send;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendMessage {
    /// Address or name.
    to: String,
    /// The line to write, without its end. May be left out with close.
    #[serde(default)]
    message: Option<String>,
    /// Close its standard input after this.
    #[serde(default)]
    close: bool,
}

impl Tool for SendMessage {
    const NAME: &'static str = "send_message";
    const TITLE: &'static str = "Send a message";
    const DESCRIPTION: &'static str = "Write a line to the standard input of a running command that \
        was started with stdin: true, or close it. Each call writes again. Not for ending a command: \
        stop_task does that.";

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
        let message = self.message.as_deref().map(Json::of).transpose()?;
        let send =
            || Send { target: call.target(&self.to), message: message.clone(), last: self.close };
        let sent = call.line.ask_once(send).await.map_err(|refusal| match refusal.kind {
            RefusalKind::Unknown => Refusal::unknown(format!(
                "{}: the message to {} may have arrived or not; read_output shows what came of it",
                refusal.message, self.to
            )),
            _ => refusal,
        })?;
        let what = match (&self.message, self.close) {
            (Some(_), true) => "the message is on its way, and nothing more follows",
            (Some(_), false) => "the message is on its way",
            (None, _) => "the input is being closed",
        };
        let structured = json!({ "to": self.to, "messages": sent, "closed": self.close });
        Ok(Answer::Said { text: format!("{}: {what}", self.to), structured })
    }
}
