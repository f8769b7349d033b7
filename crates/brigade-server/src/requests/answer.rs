//! Answers a question that a task waits with, or says what came of a tool that its client ran.

use brigade_model::command::Given;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub target: Target,
    pub answer: Json,
    /// Which of its questions; may be left out while there is only one.
    #[serde(default)]
    pub question: Option<u32>,
}

impl Ask for Answer {
    type Done = ();
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<(), Refusal> {
        let found = desk.find(&self.target).await?;
        let question = self.question.map(CallIndex);
        found.session.answer_call(found.no, question, Given::Reply(self.answer)).await
    }
}
