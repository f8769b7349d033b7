//! `send`: sends a message to a task. A process gets it as a line of its input.

use brigade_model::refusal::Refusal;
use brigade_model::work::{InboxMode, TaskKind};
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
        check_parts(&self)?;
        if self.name.is_some() && found.row.spec.work.kind() == TaskKind::Process {
            let address = found.row.address(found.no);
            return Err(Refusal::invalid(format!(
                "{address} reads lines of text, and a line has no name"
            )));
        }
        let mut messages = Vec::new();
        if let Some(body) = &self.message {
            let message = match self.interrupt {
                true => found.session.interrupt(found.no, body),
                false => found.session.send(found.no, body),
            };
            messages.push(match &self.name {
                Some(name) => message.named(name),
                None => message,
            });
        }
        if self.closes_input {
            messages.push(found.session.close_input(found.no));
        }
        let mut sent = Vec::with_capacity(messages.len());
        for message in messages {
            let message = match &self.key {
                Some(key) => message.key(key),
                None => message,
            };
            let message = match self.alive_only {
                true => message.alive_only(),
                false => message,
            };
            sent.push(message.await?.0);
        }
        Ok(sent)
    }
}

/// Refuses a request whose key or name does not belong to one message.
fn check_parts(request: &SendRequest) -> Result<(), Refusal> {
    let SendRequest { message, closes_input, key, name, .. } = request;
    if message.is_none() && !closes_input {
        return Err(Refusal::invalid("there is no message to send"));
    }
    if name.is_some() && message.is_none() {
        return Err(Refusal::invalid("a name needs a message"));
    }
    if key.is_some() && message.is_some() && *closes_input {
        return Err(Refusal::invalid(
            "a key stands for one message; close the input with a request of its own",
        ));
    }
    Ok(())
}
