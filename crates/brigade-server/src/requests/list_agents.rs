//! `list_agents`: lists the agent definitions for a directory.

use brigade_agent::Locale;
use brigade_agent::definition::Definition;
use brigade_agent::permission::PermissionRule;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{AgentInfo, ListAgentsReply, ListAgentsRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// Returns the rules for tools that write files. A user who runs a definition by its name agrees to
/// them, since the files are below the directory. Patterns such as `*` do not count.
fn collect_write_rules(definition: &Definition) -> Vec<PermissionRule> {
    let listed = definition.tools.iter().flatten().filter_map(|tool| tool.parse().ok());
    let allowed = definition.permissions.allow.iter().flatten().cloned();
    let writes = |rule: &PermissionRule| brigade_file_tools::WRITING_TOOLS.contains(&rule.tool());
    listed.chain(allowed).filter(writes).collect()
}

impl RequestHandler for ListAgentsRequest {
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
                runs: definition.backend.clone(),
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
