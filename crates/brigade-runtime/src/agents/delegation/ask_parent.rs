//! Asks the agent's parent and waits for the answer.

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::AskParent;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::json::Json;

use super::{AgentDelegationTool, DelegationContext};

impl AgentDelegationTool for AskParent {
    const EFFECT: ToolEffect = ToolEffect::Recorded;

    async fn run(
        self,
        _delegate: &DelegationContext,
        call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        self.check()?;
        match call.completion.as_deref() {
            None => {
                let asked = ConditionRequest::Question { question: Json::of(&self.question)? };
                Ok(ToolReply::Park { condition: asked, effect: None })
            }
            Some(CallCompletion::Reply(reply)) => {
                let text = reply.decode::<String>().unwrap_or_else(|_| reply.as_str().to_owned());
                Ok(ToolReply::text(format!("The answer: {text}")))
            }
            Some(CallCompletion::Refused(refusal)) => Err(refusal.clone().into()),
            Some(other) => Err(ToolError::new(format!("the question was answered with {other:?}"))),
        }
    }
}
