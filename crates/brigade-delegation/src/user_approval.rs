//! A tool call of a sub-agent that only the user can approve.

use brigade_model::truncate::truncate_line;
use serde_json::{Value, json};

use crate::delegation_reply::DelegationReply;

const SHOWN_CALL_CHARS: usize = 200;

/// A pending approval, for the model that must ask its user to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserApproval {
    /// The agent whose call it is.
    pub address: String,
    pub name: Option<String>,
    pub call: u32,
    pub text: String,
    /// The command line that shows the call to the user and asks for a decision.
    pub user_command: String,
}

impl UserApproval {
    fn guidance(&self) -> String {
        let Self { address, user_command, .. } = self;
        let name = self.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let call = truncate_line(&self.text, SHOWN_CALL_CHARS);
        format!(
            "{address}{name} waits for the user to approve: {call}. Only the user can: ask the user to run \
             `{user_command}` in a terminal, then call wait_tasks."
        )
    }

    fn fields(&self) -> Value {
        json!({
            "address": self.address,
            "call": self.call,
            "text": truncate_line(&self.text, SHOWN_CALL_CHARS),
            "user_command": self.user_command,
        })
    }
}

/// Adds the pending approvals to the text and to the JSON of a reply.
pub(crate) fn add_approvals(reply: &mut DelegationReply, approvals: &[UserApproval]) {
    if !approvals.is_empty() {
        reply.add_guidance(approvals.iter().map(UserApproval::guidance));
        reply.set_field("approvals", approvals.iter().map(UserApproval::fields).collect());
    }
}
