//! The content of a message to an agent.

use a2a::{A2AError, Message, Part, PartContent, Role};
use brigade_model::ids::ConversationId;
use brigade_model::json::Json;
use brigade_protocol::http::{TaskId, VerdictBody, VerdictKind};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// A message that was checked.
#[derive(Clone, Debug)]
pub(crate) struct IncomingMessage {
    pub(crate) id: String,
    pub(crate) context: Option<ConversationId>,
    pub(crate) task: Option<TaskId>,
    /// All parts as text.
    pub(crate) text: String,
    /// The value of a message with one part, which has data.
    data: Option<serde_json::Value>,
}

/// The decision of an approval, as the data of a message.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalAnswer {
    /// The task whose call is decided. Without it, the task of the message.
    #[serde(default)]
    pub(crate) task: Option<TaskId>,
    pub(crate) call: u32,
    verdict: VerdictKind,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

impl ApprovalAnswer {
    pub(crate) fn verdict(&self) -> VerdictBody {
        VerdictBody {
            verdict: self.verdict,
            digest: self.digest.clone(),
            rule: None,
            reason: self.reason.clone(),
        }
    }
}

impl IncomingMessage {
    pub(crate) fn parse(message: Message) -> Result<Self, A2AError> {
        let invalid = |text: &str| Err(A2AError::invalid_params(text));
        if message.message_id.is_empty() {
            return invalid("`messageId` is empty");
        }
        if message.role != Role::User {
            return invalid("the role of a message to an agent is ROLE_USER");
        }
        if message.parts.is_empty() {
            return invalid("the message has no parts");
        }
        // A proto client may send empty ids for absent ones.
        let context = message.context_id.filter(|id| !id.is_empty());
        let context = context.map(|id| id.parse::<ConversationId>()).transpose();
        let context = context.map_err(|refusal| {
            A2AError::invalid_params(format!("`contextId`: {}", refusal.message))
        })?;
        let task = message.task_id.filter(|id| !id.is_empty());
        let task = match task {
            Some(id) => Some(id.parse().map_err(|_| A2AError::task_not_found(&id))?),
            None => None,
        };
        let texts = message.parts.iter().map(render_part).collect::<Result<Vec<_>, _>>()?;
        let text = texts.join("\n\n");
        if text.trim().is_empty() {
            return invalid("the message has no text");
        }
        let data = match message.parts.as_slice() {
            [Part { content: PartContent::Data(data), .. }] => Some(data.clone()),
            _ => None,
        };
        Ok(Self { id: message.message_id, context, task, text, data })
    }

    /// Returns the value of an answer: data as it is, otherwise text.
    pub(crate) fn answer(&self) -> Result<Json, A2AError> {
        let value = match &self.data {
            Some(data) => Json::of(data),
            None => Json::of(&self.text),
        };
        value.map_err(|refusal| A2AError::invalid_params(refusal.message))
    }

    /// Returns the decision of an approval, if the message has the form of one.
    pub(crate) fn approval_answer(&self) -> Result<Option<ApprovalAnswer>, A2AError> {
        let Some(data) = self.data.as_ref().filter(|data| data.get("verdict").is_some()) else {
            return Ok(None);
        };
        let parsed = ApprovalAnswer::deserialize(data);
        parsed.map(Some).map_err(|error| {
            A2AError::invalid_params(format!("this is not the decision of an approval: {error}"))
        })
    }

    /// Returns the digest of the content, by which a repeated message is compared.
    pub(crate) fn digest(&self) -> String {
        let task = self.task.map(|task| task.to_string()).unwrap_or_default();
        hex(&Sha256::new()
            .chain_update(task)
            .chain_update("\n")
            .chain_update(&self.text)
            .finalize())
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn render_part(part: &Part) -> Result<String, A2AError> {
    match &part.content {
        PartContent::Text(text) => Ok(text.clone()),
        PartContent::Data(data) => Ok(data.to_string()),
        PartContent::Raw(_) | PartContent::Url(_) => Err(A2AError::content_type_not_supported()),
    }
}

#[cfg(test)]
mod tests {
    use a2a::error_code;
    use serde_json::json;

    use super::*;

    fn parse(message: serde_json::Value) -> Result<IncomingMessage, A2AError> {
        IncomingMessage::parse(serde_json::from_value(message).expect("a message"))
    }

    #[test]
    fn parts_are_text_or_data() {
        let text = json!({ "messageId": "1", "role": "ROLE_USER", "taskId": "", "contextId": "",
            "parts": [{ "text": "Bake" }, { "data": { "n": 2 } }] });
        let parsed = parse(text).expect("a message");
        assert_eq!(parsed.text, "Bake\n\n{\"n\":2}");
        assert_eq!(parsed.answer().expect("JSON").as_str(), r#""Bake\n\n{\"n\":2}""#);
        let data = json!({ "messageId": "1", "role": "ROLE_USER", "parts": [{ "data": [1] }] });
        assert_eq!(parse(data).expect("a message").answer().expect("JSON").as_str(), "[1]");
        let code = |change: fn(&mut serde_json::Value)| {
            let mut message =
                json!({ "messageId": "1", "role": "ROLE_USER", "parts": [{ "text": "x" }] });
            change(&mut message);
            parse(message).expect_err("an error").code
        };
        let params = error_code::INVALID_PARAMS;
        assert_eq!(code(|message| message["role"] = json!("ROLE_AGENT")), params);
        assert_eq!(code(|message| message["parts"] = json!([])), params);
        assert_eq!(code(|message| message["parts"] = json!([{ "text": " " }])), params);
        assert_eq!(code(|message| message["messageId"] = json!("")), params);
        assert_eq!(code(|message| message["contextId"] = json!("a b")), params);
        assert_eq!(code(|message| message["taskId"] = json!("7")), error_code::TASK_NOT_FOUND);
        let raw = code(|message| message["parts"] = json!([{ "raw": "aGk=" }]));
        assert_eq!(raw, error_code::CONTENT_TYPE_NOT_SUPPORTED);
    }
}
