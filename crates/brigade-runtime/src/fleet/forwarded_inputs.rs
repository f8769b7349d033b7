//! Inputs for sessions that other nodes own.

use brigade_model::command::Command;
use brigade_model::ids::SessionId;

use super::CallRequest;
use super::call_client::CallerReply;
use super::owned_sessions::{OWNER_KNOWN, OwnedSessions};
use crate::loop_input::{LoopInput, ReplyTo, WaitInput};
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Sends an input to the node that owns its session. Returns it if this node decides it.
    pub(crate) async fn forward(&mut self, input: LoopInput) -> Option<LoopInput> {
        let session = match &input {
            LoopInput::Submit { session, .. }
            | LoopInput::SubmitAll { session, .. }
            | LoopInput::Move { session, .. }
            | LoopInput::Report { session, .. } => *session,
            LoopInput::Wait(wait) => wait.session,
            _ => return Some(input),
        };
        if self.holds(session) {
            return Some(input);
        }
        if let LoopInput::Report { command: Command::Report(_), .. } = &input {
            // Its performer was halted when the session was given up.
            return None;
        }
        let now = self.clock.now();
        let looked_at = self.owned.as_ref().and_then(|owned| owned.elsewhere.get(&session));
        let is_known = looked_at.is_some_and(|looked_at| now.since(*looked_at) < OWNER_KNOWN);
        if !is_known {
            if let Some(owned) = &mut self.owned {
                owned.elsewhere.remove(&session);
            }
            if self.load_from_store(session).await.is_ok() {
                return Some(input);
            }
        }
        let Some(owned) = self.owned.as_ref().filter(|owned| owned.is_elsewhere(session)) else {
            return Some(input);
        };
        owned.send_to_owner(session, input);
        None
    }
}

impl OwnedSessions {
    /// Sends an input to the node that owns its session.
    fn send_to_owner(&self, session: SessionId, input: LoopInput) {
        match input {
            LoopInput::Submit { command, origin, reply, .. } => {
                let request = CallRequest::Submit { command, origin };
                self.calls.ask(session, &request, None, CallerReply::One(reply));
            }
            LoopInput::SubmitAll { commands, origin, reply, .. } => {
                let count = commands.len();
                let request = CallRequest::SubmitAll { commands, origin };
                self.calls.ask(session, &request, None, CallerReply::Many { reply, count });
            }
            LoopInput::Wait(wait) => self.send_wait(wait),
            LoopInput::Move { to, reply, .. } => {
                let request = CallRequest::Move { to };
                self.calls.ask(session, &request, None, CallerReply::One(reply));
            }
            _ => tracing::debug!(%session, "ignored a report for a session of another node"),
        }
    }

    pub(super) fn send_wait(&self, wait: WaitInput) {
        let WaitInput { id, session, collect, origin, reply, .. } = wait;
        let request = CallRequest::Wait { collect, origin };
        match reply {
            ReplyTo::Local(reply) => {
                self.calls.ask(session, &request, Some(id), CallerReply::One(reply));
            }
            // The new owner gets the call itself.
            ReplyTo::Call(id) => self.node.served_calls.forget(id),
        }
    }
}
