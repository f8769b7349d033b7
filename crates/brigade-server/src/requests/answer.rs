//! Answers a question that a task waits with, or says what came of a tool that its client ran.

use brigade_model::command::GivenAnswer;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AnswerRequest {
    pub target: TaskTarget,
    pub answer: Json,
    /// Which of its questions; may be left out while there is only one.
    #[serde(default)]
    pub question: Option<u32>,
}

impl Call for AnswerRequest {
    type Reply = ();
    type Item = NoItems;

    async fn handle(self, desk: &RequestContext, _: &ItemSender<NoItems>) -> Result<(), Refusal> {
        let found = desk.find_task(&self.target).await?;
        let question = self.question.map(CallIndex);
        found.session.answer_call(found.no, question, GivenAnswer::Reply(self.answer)).await
    }
}
