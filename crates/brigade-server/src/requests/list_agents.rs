//! `list_agents`: lists the agent definitions for a directory.

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

/// Returns the rules for tools that write files. A user who runs a definition by its name agrees to
/// them, since the files are below the directory. Patterns such as `*` do not count.
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
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ListAgentsReply, Refusal> {
        let locale = self.lang.as_deref().map(str::parse::<Locale>).transpose();
        let locale = locale.map_err(|error| Refusal::invalid(error.to_string()))?;
        let definitions = context.definitions(&self.cwd).await?;
        let delegates =
            definitions.by_name.keys().filter_map(|name| definitions.unknown_delegate(name));
        let problems = definitions.problems.iter().cloned().chain(delegates);
        let problems: Vec<String> = problems.map(|problem| problem.to_string()).collect();
        let agents = definitions.by_name.into_iter().map(|(name, found)| {
            let trusted = context.runtime().trusts_definition(&found, Some(&self.cwd));
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
