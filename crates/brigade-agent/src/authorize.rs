//! Whether a call may be carried out: by the rules, or by what was said when they wanted to be asked.

use std::sync::Arc;

use brigade_llm::ToolCall;
use brigade_model::approval::{self, ApprovalRequest};
use brigade_model::call::{CallCompletion, ConditionRequest};

use crate::agent::Agent;
use crate::permission::{self, KEEP, PermissionVerdict};
use crate::tool::{OutlivingWork, Tool, ToolError, ToolInvocation, ToolSubject};

/// What is to be done about a call first.
pub(crate) enum Authorization {
    Granted,
    /// It waits for this.
    NeedsApproval(ConditionRequest),
}

impl Agent {
    /// What the rules say to a call that has not begun, and whoever was asked about it.
    pub(crate) fn authorize(
        &self,
        tool: &Arc<dyn Tool>,
        said: &ToolCall,
        call: &ToolInvocation,
    ) -> Result<Authorization, ToolError> {
        let subject = tool.subject(&call.arguments);
        let (text, is_shell) = match &subject {
            ToolSubject::Nothing => (None, false),
            ToolSubject::Text(text) => (Some(text.as_str()), false),
            ToolSubject::Shell(text) => (Some(text.as_str()), true),
        };
        let subject = permission::PermissionSubject { tool: &said.name, text, is_shell };
        let whole = subject.to_string();
        let kept =
            |text| permission::PermissionSubject { tool: KEEP, text: Some(text), is_shell: false };
        let (subject, rule, by) =
            match (self.permissions.check(&subject), self.check_outliving_work(tool, said, call)) {
                (PermissionVerdict::Refused(refused), _)
                | (_, PermissionVerdict::Refused(refused)) => {
                    return Err(ToolError::new(refused.to_string()));
                }
                (PermissionVerdict::Allowed, PermissionVerdict::Allowed) => {
                    return Ok(Authorization::Granted);
                }
                (PermissionVerdict::Ask { rule, by }, PermissionVerdict::Allowed) => {
                    (subject, rule, by)
                }
                (PermissionVerdict::Allowed, PermissionVerdict::Ask { rule, by }) => {
                    (kept(&said.name), rule, by)
                }
                // One question for both: what was allowed of either alone does not answer it.
                (PermissionVerdict::Ask { rule, by }, PermissionVerdict::Ask { .. }) => {
                    (kept(&whole), rule, by)
                }
            };
        match call.verdict.as_deref() {
            None => {
                let arguments = call.arguments.to_string();
                let request = ApprovalRequest::new(&subject, &arguments, (rule, by));
                let directory = tool.acts_in(&call.arguments).map(Arc::from);
                let request = request.in_directory(directory);
                let request = ApprovalRequest { is_unattended: self.unattended, ..request };
                Ok(Authorization::NeedsApproval(ConditionRequest::Approval {
                    request: Arc::new(request),
                }))
            }
            Some(CallCompletion::Verdict(
                approval::ApprovalVerdict::AllowOnce
                | approval::ApprovalVerdict::AllowAlways { .. },
            )) => Ok(Authorization::Granted),
            Some(CallCompletion::Verdict(verdict @ approval::ApprovalVerdict::Deny { .. })) => {
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
    fn check_outliving_work(
        &self,
        tool: &Arc<dyn Tool>,
        said: &ToolCall,
        call: &ToolInvocation,
    ) -> PermissionVerdict {
        match tool.outliving(&call.arguments) {
            OutlivingWork::Nothing => PermissionVerdict::Allowed,
            OutlivingWork::Process => self.permissions.check_keep(&said.name, false),
            OutlivingWork::Agent => self.permissions.check_keep(&said.name, self.unattended),
        }
    }
}
