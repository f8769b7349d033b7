//! A message to a task; to a command it is a line of its input.

use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::work::InboxMode;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Send {
    pub target: Target,
    /// None to say only that nothing follows.
    #[serde(default)]
    pub message: Option<Json>,
    /// Nothing follows: closes the input of a command.
    #[serde(default)]
    pub last: bool,
    /// It is to be heard now, not at the next pause.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
}

impl Ask for Send {
    /// The numbers of the messages.
    type Done = Vec<u64>;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Vec<u64>, Refusal> {
        let found = desk.find(&self.target).await?;
        if self.interrupt && found.row.spec.work.conduct().inbox == InboxMode::Push {
            let address = found.row.address(found.no);
            return Err(Refusal::invalid(format!(
                "{address} is handed every message at once: there is nothing to interrupt"
            )));
        }
        let mut sent = Vec::new();
        if let Some(message) = &self.message {
            let no = match self.interrupt {
                true => found.session.interrupt(found.no, message).await?,
                false => found.session.send(found.no, message).await?,
            };
            sent.push(no.0);
        }
        if self.last {
            sent.push(found.session.close_input(found.no).await?.0);
        }
        if sent.is_empty() {
            return Err(Refusal::invalid("there is no message to send"));
        }
        Ok(sent)
    }
}
