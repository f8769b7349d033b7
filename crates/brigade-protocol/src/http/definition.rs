//! Definitions of agents.

use serde::Serialize;
use utoipa::ToSchema;

use crate::requests::{AgentInfo, ListAgentsReply};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DefinitionList)]
pub struct DefinitionListBody {
    pub items: Vec<DefinitionBody>,
    /// Errors of files that are not valid definitions.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Definition)]
pub struct DefinitionBody {
    pub name: String,
    /// The name in the requested language, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    /// The agent program that runs it; absent for Brigade's own loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub mcp_servers: Vec<String>,
    /// The file; absent for a definition of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Open: `program`, `user`, `workspace`.
    pub origin: String,
    /// A definition of the workspace that the operator does not trust. It may only read.
    pub untrusted: bool,
}

impl From<ListAgentsReply> for DefinitionListBody {
    fn from(reply: ListAgentsReply) -> Self {
        let ListAgentsReply { agents, problems } = reply;
        Self { items: agents.into_iter().map(DefinitionBody::from).collect(), problems }
    }
}

impl From<AgentInfo> for DefinitionBody {
    fn from(agent: AgentInfo) -> Self {
        Self {
            name: agent.name,
            title: agent.title,
            description: agent.description,
            runs: agent.runs,
            model: agent.model,
            mcp_servers: agent.mcp_servers,
            file: agent.file,
            origin: agent.origin.as_str().to_owned(),
            untrusted: agent.untrusted,
        }
    }
}
