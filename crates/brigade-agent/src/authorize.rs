//! Authorizes a tool call: by permission rules, or by the approval that an `ask` rule requires.

use std::sync::Arc;

use brigade_llm::ToolCall;
use brigade_model::approval::{self, ApprovalRequest};
use brigade_model::call::{CallCompletion, ConditionRequest};

use crate::agent::Agent;
use crate::permission::{self, KEEP, PermissionVerdict};
use crate::step_calls::DueCall;
use crate::tool::{OutlivingWork, Tool, ToolError, ToolInvocation, ToolSubject};

/// The authorization of a call that no rule denies.
pub(crate) enum Authorization {
    Granted,
    /// The call must park on this condition first.
    NeedsApproval(ConditionRequest),
}

impl Agent {
    /// Authorizes a call that has not started, by the rules and by its approval if there is one.
    pub(crate) fn authorize(&self, tool: &Tool, due: &DueCall) -> Result<Authorization, ToolError> {
        let DueCall { tool_call, invocation } = due;
        let subject = tool.handler().subject(&invocation.arguments);
        let (text, is_shell) = match &subject {
            ToolSubject::Nothing => (None, false),
            ToolSubject::Text(text) => (Some(text.as_str()), false),
            ToolSubject::Shell(text) => (Some(text.as_str()), true),
        };
        let subject = permission::PermissionSubject { tool: &tool_call.name, text, is_shell };
        let whole_call = subject.to_string();
        let keep_subject =
            |text| permission::PermissionSubject { tool: KEEP, text: Some(text), is_shell: false };
        let verdict = self.permissions.check(&subject);
        let keep_verdict = self.check_outliving_work(tool, tool_call, invocation);
        let (subject, rule, by) = match (verdict, keep_verdict) {
            (PermissionVerdict::Refused(refused), _) | (_, PermissionVerdict::Refused(refused)) => {
                return Err(ToolError::new(refused.to_string()));
            }
            (PermissionVerdict::Allowed, PermissionVerdict::Allowed) => {
                return Ok(Authorization::Granted);
            }
            (PermissionVerdict::Ask { rule, by }, PermissionVerdict::Allowed) => {
                (subject, rule, by)
            }
            (PermissionVerdict::Allowed, PermissionVerdict::Ask { rule, by }) => {
                (keep_subject(&tool_call.name), rule, by)
            }
            // One request for both: an approval of either one alone does not cover it.
            (PermissionVerdict::Ask { rule, by }, PermissionVerdict::Ask { .. }) => {
                (keep_subject(&whole_call), rule, by)
            }
        };
        match invocation.verdict.as_deref() {
            None => {
                let arguments = invocation.arguments.to_string();
                let request = ApprovalRequest::new(&subject, &arguments, rule, by);
                let directory = tool.handler().acts_in(&invocation.arguments).map(Arc::from);
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

    /// Checks the work that the call starts and that outlives the agent.
    fn check_outliving_work(
        &self,
        tool: &Tool,
        tool_call: &ToolCall,
        invocation: &ToolInvocation,
    ) -> PermissionVerdict {
        match tool.handler().outliving(&invocation.arguments) {
            OutlivingWork::Nothing => PermissionVerdict::Allowed,
            OutlivingWork::Process => self.permissions.check_keep(&tool_call.name, false),
            OutlivingWork::Agent => self.permissions.check_keep(&tool_call.name, self.unattended),
        }
    }
}
