//! `list_agents`: lists the agent definitions for a directory.

use brigade_agent::definition::DefinitionOrigin;
use brigade_agent::permission::PermissionRule;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListAgentsRequest {
    pub cwd: String,
    /// The language of titles and descriptions, as a tag such as `de-AT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lang: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListAgentsReply {
    pub agents: Vec<AgentInfo>,
    /// Errors of files that are not valid definitions.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentInfo {
    pub name: String,
    /// The title in the requested language, if it differs from the name. A run names the agent by
    /// `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    /// The agent program that runs it; `None` for Brigade's own loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The MCP servers whose tools it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// The file; `None` for a built-in definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The origin: a program, the user's files, or the workspace.
    pub origin: DefinitionOrigin,
    /// The definition is of the workspace and not trusted. It may only read, and unattended runs
    /// are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// The rules of a trusted definition that name tools that write files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write_rules: Vec<PermissionRule>,
}

impl Call for ListAgentsRequest {
    type Reply = ListAgentsReply;
    type Item = NoItems;
}
