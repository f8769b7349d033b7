//! The agent definitions for a directory.

use brigade_agent::Locale;
use brigade_agent::definition::{Definition, DefinitionOrigin};
use brigade_agent::permission::PermissionRule;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListAgentsRequest {
    pub cwd: String,
    /// The language of whoever looks, as a tag such as `de-AT`: in it are titles and descriptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lang: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListAgentsReply {
    pub agents: Vec<AgentInfo>,
    /// Files that could not be read as definitions, and why.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentInfo {
    pub name: String,
    /// What it is called in the language that was asked for, where that is something else. It is run
    /// by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The MCP servers that it wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// None for one that comes with the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Where it comes from: a program, the user's files, or the workspace.
    pub origin: DefinitionOrigin,
    /// It comes with the workspace and nobody trusts it: it only reads, and unattended it is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// What its definition says of tools that write files. Nothing unless it names them and is trusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write_rules: Vec<PermissionRule>,
}

/// Whoever names a definition to be run agrees to the files that it says it writes: they are below the
/// directory. Patterns such as `*` do not say so.
fn collect_write_rules(definition: &Definition) -> Vec<PermissionRule> {
    let listed = definition.tools.iter().flatten().filter_map(|tool| tool.parse().ok());
    let allowed = definition.permissions.allow.iter().flatten().cloned();
    let writes = |rule: &PermissionRule| brigade_file_tools::WRITING_TOOLS.contains(&rule.tool());
    listed.chain(allowed).filter(writes).collect()
}

impl Call for ListAgentsRequest {
    type Reply = ListAgentsReply;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ListAgentsReply, Refusal> {
        let locale = self.lang.as_deref().map(str::parse::<Locale>).transpose();
        let locale = locale.map_err(|error| Refusal::invalid(error.to_string()))?;
        let definitions = desk.definitions(&self.cwd).await?;
        let delegates =
            definitions.by_name.keys().filter_map(|name| definitions.unknown_delegate(name));
        let problems = definitions.problems.iter().cloned().chain(delegates);
        let problems: Vec<String> = problems.map(|problem| problem.to_string()).collect();
        let agents = definitions.by_name.into_iter().map(|(name, found)| {
            let trusted = desk.runtime().trusts_definition(&found, Some(&self.cwd));
            let definition = &found.definition;
            let local = locale.as_ref().map(|locale| definition.localized(locale));
            let local = local.unwrap_or_default();
            AgentInfo {
                name,
                title: local.name,
                description: local.description.unwrap_or_else(|| definition.description.clone()),
                model: definition.model.clone(),
                write_rules: if trusted { collect_write_rules(definition) } else { Vec::new() },
                origin: found.origin,
                untrusted: !trusted,
                mcp_servers: definition.mcp_servers.clone().unwrap_or_default(),
                file: found.file().map(|file| file.display().to_string()),
            }
        });
        Ok(ListAgentsReply { agents: agents.collect(), problems })
    }
}
