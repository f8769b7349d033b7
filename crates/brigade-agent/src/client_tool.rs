//! Client tools: the agent parks a call, and the client executes it and sends the result.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_llm::ToolSpec;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::json::Json;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json_schema::Schema;
use crate::tool::{
    BoxFuture, CallPhase, ExecutionHints, Tool, ToolEffect, ToolError, ToolHandler, ToolInvocation,
    ToolReply,
};

const NAME_MAX: usize = 64;

/// A tool as the client describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// A JSON schema of the arguments.
    #[serde(default = "any_arguments")]
    pub parameters: Value,
}

/// A call that the client is to execute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientToolCall {
    pub tool: String,
    pub arguments: Value,
}

fn any_arguments() -> Value {
    json!({ "type": "object" })
}

impl ClientTool {
    /// Returns the first problem of the description, if there is one.
    pub(crate) fn find_problem(&self) -> Option<String> {
        let name = &self.name;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
            return Some(format!(
                "client_tools: {name:?} is no name for a tool: 1 to {NAME_MAX} letters, digits, `_` or `-`"
            ));
        }
        if self.parameters.get("type").and_then(Value::as_str) != Some("object") {
            return Some(format!(
                "client_tools: the parameters of {name:?} must be a schema of type object"
            ));
        }
        let unusable = Schema::compile(&self.parameters).err()?;
        Some(format!("client_tools: the parameters of {name:?} are {unusable}"))
    }

    pub(crate) fn into_tool(self) -> Tool {
        // A tool with an unusable schema was refused before the task started.
        let schema = Schema::compile(&self.parameters).ok();
        let spec = ToolSpec {
            name: self.name.into(),
            description: self.description.into(),
            parameters: Arc::new(self.parameters),
        };
        Tool::new(ClientRunTool { spec, schema })
    }
}

/// Returns the first problem of the tools, including duplicate names.
pub(crate) fn problem(tools: &[ClientTool]) -> Option<String> {
    let mut names = BTreeSet::new();
    match tools.iter().find(|tool| !names.insert(&*tool.name)) {
        Some(tool) => Some(format!("client_tools: there are two with the name {:?}", tool.name)),
        None => tools.iter().find_map(ClientTool::find_problem),
    }
}

/// Builds the tools of a client for an agent.
pub fn build_client_tools(described: &[ClientTool]) -> impl Iterator<Item = Tool> {
    described.iter().cloned().map(ClientTool::into_tool)
}

#[derive(Debug)]
struct ClientRunTool {
    spec: ToolSpec,
    schema: Option<Schema>,
}

impl ToolHandler for ClientRunTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    // The slot of the call holds the request, so the client gets it once.
    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Recorded)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(self.ask_client(call))
    }
}

impl ClientRunTool {
    async fn ask_client(&self, call: ToolInvocation) -> Result<ToolReply, ToolError> {
        match call.phase() {
            CallPhase::New | CallPhase::Started(_) => {
                // The client does not get arguments that its own schema refuses.
                if let Some(schema) = &self.schema {
                    let wrong = |mismatch| format!("the arguments do not fit: {mismatch}");
                    let checked = schema.check_async(&call.arguments).await;
                    checked.map_err(|mismatch| ToolError::new(wrong(mismatch)))?;
                }
                let tool = self.spec.name.to_string();
                let request = Json::of(&ClientToolCall { tool, arguments: call.arguments })?;
                Ok(ToolReply::Park {
                    condition: ConditionRequest::ClientTool { request },
                    effect: None,
                })
            }
            CallPhase::Resumed(CallCompletion::Reply(reply)) => {
                Ok(ToolReply::text(match reply.decode::<String>() {
                    Ok(text) => text,
                    Err(_) => reply.as_str().to_owned(),
                }))
            }
            CallPhase::Resumed(CallCompletion::Refused(refusal)) => Err(refusal.clone().into()),
            CallPhase::Resumed(other) => {
                Err(ToolError::new(format!("the client did not answer: {other:?}")))
            }
        }
    }
}
