//! Asks whoever gave the work, and waits for the answer.

use brigade_agent::{Call, Effect, Outcome, ToolError};
use brigade_delegation::AskParent;
use brigade_model::call::{Answer, Asked};
use brigade_model::json::Json;

use super::{Delegate, Delegation};

impl Delegation for AskParent {
    const EFFECT: Effect = Effect::Recorded;

    async fn run(self, _delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        self.check()?;
        match call.told.as_deref() {
            None => {
                let asked = Asked::Question { question: Json::of(&self.question)? };
                Ok(Outcome::Park { asked, effect: None })
            }
            Some(Answer::Reply(reply)) => {
                let text = reply.decode::<String>().unwrap_or_else(|_| reply.as_str().to_owned());
                Ok(Outcome::text(format!("The answer: {text}")))
            }
            Some(Answer::Refused(refusal)) => Err(refusal.clone().into()),
            Some(other) => Err(ToolError::new(format!("the question was answered with {other:?}"))),
        }
    }
}
