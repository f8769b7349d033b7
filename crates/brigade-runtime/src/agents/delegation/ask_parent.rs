//! Asks whoever gave the work, and waits for the answer.

use brigade_agent::{Call, Effect, Hints, Outcome, ToolError};
use brigade_model::call::{Answer, Asked};
use brigade_model::json::Json;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Delegate, Delegation, not_blank};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskParent {
    /// Complete in itself, with the choices that you see.
    question: String,
}

impl Delegation for AskParent {
    const NAME: &'static str = "ask_parent";
    const DESCRIPTION: &'static str = "Ask whoever gave you this work, and wait for the answer. Use it \
        when you cannot go on without a decision that is not yours. Not for telling how far you are \
        (send_message to parent), and not for what you can find out yourself.";
    const HINTS: Hints = Hints::of(Effect::Recorded);

    async fn run(self, _delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        not_blank("question", &self.question)?;
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
