//! Questions of the root agent as forms, for an editor that shows forms.

use agent_client_protocol::v1::schema::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAction,
    ElicitationContentValue, ElicitationFormMode, ElicitationMode, ElicitationSchema,
    ElicitationSessionScope, SessionId,
};

const ANSWER: &str = "answer";

/// Builds the form for a question.
pub(crate) fn new_form(session: SessionId, question: &str) -> CreateElicitationRequest {
    let schema = ElicitationSchema::new().string(ANSWER, true);
    let scope = ElicitationSessionScope::new(session);
    CreateElicitationRequest::new(
        ElicitationMode::Form(ElicitationFormMode::new(scope, schema)),
        question,
    )
}

/// Returns the answer of a form. A person who declines answers nothing, and the agent is told so.
pub(crate) fn read_answer(response: CreateElicitationResponse) -> String {
    let declined = "The person declined to answer.".to_owned();
    let ElicitationAction::Accept(accepted) = response.action else { return declined };
    match accepted.content.unwrap_or_default().remove(ANSWER) {
        Some(ElicitationContentValue::String(answer)) => answer,
        Some(other) => serde_json::to_string(&other).unwrap_or(declined),
        None => declined,
    }
}
