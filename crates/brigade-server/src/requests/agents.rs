//! The agent definitions for a directory.

use brigade_agent::Locale;
use brigade_agent::definition::{Definition, DefinitionOrigin};
use brigade_agent::permission::Rule;
use brigade_agent::tools;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Agents {
    pub cwd: String,
    /// The language of whoever looks, as a tag such as `de-AT`: in it are titles and descriptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lang: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownAgents {
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
    pub writes: Vec<Rule>,
}

/// Whoever names a definition to be run agrees to the files that it says it writes: they are below the
/// directory. Patterns such as `*` do not say so.
fn writes(definition: &Definition) -> Vec<Rule> {
    let listed = definition.tools.iter().flatten().filter_map(|tool| tool.parse().ok());
    let allowed = definition.permissions.allow.iter().flatten().cloned();
    let writes = |rule: &Rule| tools::WRITING.contains(&rule.tool());
    listed.chain(allowed).filter(writes).collect()
}

impl Ask for Agents {
    type Done = KnownAgents;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<KnownAgents, Refusal> {
        let locale = self.lang.as_deref().map(str::parse::<Locale>).transpose();
        let locale = locale.map_err(|error| Refusal::invalid(error.to_string()))?;
        let definitions = desk.definitions(&self.cwd).await?;
        let delegates =
            definitions.found.keys().filter_map(|name| definitions.unknown_delegate(name));
        let problems = definitions.problems.iter().cloned().chain(delegates);
        let problems: Vec<String> = problems.map(|problem| problem.to_string()).collect();
        let agents = definitions.found.into_iter().map(|(name, found)| {
            let trusted = desk.runtime().trusts_definition(&found, Some(&self.cwd));
            let definition = &found.definition;
            let local = locale.as_ref().map(|locale| definition.localized(locale));
            let local = local.unwrap_or_default();
            AgentInfo {
                name,
                title: local.name,
                description: local.description.unwrap_or_else(|| definition.description.clone()),
                model: definition.model.clone(),
                writes: if trusted { writes(definition) } else { Vec::new() },
                origin: found.origin,
                untrusted: !trusted,
                mcp_servers: definition.mcp_servers.clone().unwrap_or_default(),
                file: found.file().map(|file| file.display().to_string()),
            }
        });
        Ok(KnownAgents { agents: agents.collect(), problems })
    }
}
