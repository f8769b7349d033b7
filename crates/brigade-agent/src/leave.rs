//! Whether a call may be carried out: by the rules, or by what was said when they wanted to be asked.

use std::sync::Arc;

use brigade_llm::ToolCall;
use brigade_model::approval::{self, ApprovalRequest};
use brigade_model::call::{Answer, Asked};

use crate::agent::Agent;
use crate::permission::{self, KEEP, Verdict};
use crate::tool::{Call, Outliving, Subject, Tool, ToolError};

/// What is to be done about a call first.
pub(crate) enum Leave {
    Given,
    /// It waits for this.
    Asked(Asked),
}

impl Agent {
    /// What the rules say to a call that has not begun, and whoever was asked about it.
    pub(crate) fn leave(
        &self,
        tool: &Arc<dyn Tool>,
        said: &ToolCall,
        call: &Call,
    ) -> Result<Leave, ToolError> {
        let subject = tool.subject(&call.arguments);
        let (text, is_shell) = match &subject {
            Subject::Nothing => (None, false),
            Subject::Text(text) => (Some(text.as_str()), false),
            Subject::Shell(text) => (Some(text.as_str()), true),
        };
        let subject = permission::Subject { tool: &said.name, text, is_shell };
        let whole = subject.to_string();
        let kept = |text| permission::Subject { tool: KEEP, text: Some(text), is_shell: false };
        let (subject, rule, by) =
            match (self.permissions.check(&subject), self.keeps(tool, said, call)) {
                (Verdict::Refused(refused), _) | (_, Verdict::Refused(refused)) => {
                    return Err(ToolError::new(refused.to_string()));
                }
                (Verdict::Allowed, Verdict::Allowed) => return Ok(Leave::Given),
                (Verdict::Ask { rule, by }, Verdict::Allowed) => (subject, rule, by),
                (Verdict::Allowed, Verdict::Ask { rule, by }) => (kept(&said.name), rule, by),
                // One question for both: what was allowed of either alone does not answer it.
                (Verdict::Ask { rule, by }, Verdict::Ask { .. }) => (kept(&whole), rule, by),
            };
        match call.verdict.as_deref() {
            None => {
                let arguments = call.arguments.to_string();
                let request = ApprovalRequest::new(&subject, &arguments, (rule, by));
                let directory = tool.acts_in(&call.arguments).map(Arc::from);
                let request = request.in_directory(directory);
                let request = ApprovalRequest { is_unattended: self.unattended, ..request };
                Ok(Leave::Asked(Asked::Approval { request: Arc::new(request) }))
            }
            Some(Answer::Verdict(
                approval::Verdict::AllowOnce | approval::Verdict::AllowAlways { .. },
            )) => Ok(Leave::Given),
            Some(Answer::Verdict(verdict @ approval::Verdict::Deny { .. })) => {
                Err(ToolError::new(format!(
                    "{subject} is not permitted: {by} asks about `{rule}`, and it was {verdict}. Do \
                     it without that, or end with what you have."
                )))
            }
            Some(other) => Err(ToolError::new(format!(
                "{subject} is not permitted: {by} asks about `{rule}`, and the answer was {other:?}"
            ))),
        }
    }

    /// What the rules say to what the call leaves behind when the agent ends.
    fn keeps(&self, tool: &Arc<dyn Tool>, said: &ToolCall, call: &Call) -> Verdict {
        match tool.outliving(&call.arguments) {
            Outliving::Nothing => Verdict::Allowed,
            Outliving::Process => self.permissions.check_keep(&said.name, false),
            Outliving::Agent => self.permissions.check_keep(&said.name, self.unattended),
        }
    }
}
