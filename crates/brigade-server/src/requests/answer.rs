//! `answer`: answers a question of a task, or returns the result of a client tool.

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
    /// The number of the question. Optional while only one is open.
    #[serde(default)]
    pub question: Option<u32>,
}

impl Call for AnswerRequest {
    type Reply = ();
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<(), Refusal> {
        let found = context.find_task(&self.target).await?;
        let question = self.question.map(CallIndex);
        found.session.answer_call(found.no, question, GivenAnswer::Reply(self.answer)).await
    }
}
