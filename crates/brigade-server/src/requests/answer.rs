//! `answer`: answers a question of a task, or returns the result of a client tool.

use brigade_model::command::GivenAnswer;
use brigade_model::ids::CallIndex;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::AnswerRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for AnswerRequest {
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
