//! `send`: sends a message to a task. A process gets it as a line of its input.

use brigade_model::refusal::Refusal;
use brigade_model::work::InboxMode;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::SendRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for SendRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<u64>, Refusal> {
        let found = context.find_task(&self.target).await?;
        if self.interrupt && found.row.spec.work.policy().inbox_mode == InboxMode::Push {
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
        if self.closes_input {
            sent.push(found.session.close_input(found.no).await?.0);
        }
        if sent.is_empty() {
            return Err(Refusal::invalid("there is no message to send"));
        }
        Ok(sent)
    }
}
