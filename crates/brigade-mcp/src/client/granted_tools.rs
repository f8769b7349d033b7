//! The tools of MCP servers that agents of one blueprint may use.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::mcp_tool::AbsentTool;
use super::server_link::{ServerLink, ToolCatalog};
use super::tool_names;
use brigade_agent::permission::{PermissionGrant, PermissionRule, Permissions};
use brigade_agent::tool::{BoxFuture, Tool};
use brigade_agent::tool_set::ToolSource;

/// The maximum number of tools of all servers together. Some providers accept no more, and models
/// do not read more.
const TOOLS_MAX: usize = 128;
const BYTES_MAX: usize = 256 << 10;

/// The tools of some servers, as agents with these permissions see them.
#[derive(Debug)]
pub struct GrantedTools {
    links: Vec<Arc<ServerLink>>,
    /// Servers that are named but that the runtime does not have.
    missing: Vec<Arc<str>>,
    permissions: Permissions,
    offered: Mutex<Option<OfferedTools>>,
}

#[derive(Clone, Debug)]
struct OfferedTools {
    versions: Vec<u64>,
    tools: Arc<[Tool]>,
}

impl GrantedTools {
    pub(super) fn new(
        links: Vec<Arc<ServerLink>>,
        missing: Vec<Arc<str>>,
        permissions: Permissions,
    ) -> Self {
        Self { links, missing, permissions, offered: Mutex::default() }
    }

    fn tools(&self) -> Arc<[Tool]> {
        let mut tools = Vec::new();
        let mut bytes = 0;
        let mut omitted = 0;
        for link in &self.links {
            let catalog = link.catalog();
            for tool in offered_tools(link, &catalog) {
                let spec = tool.spec();
                if !self.permissions.may_use(&spec.name) {
                    continue;
                }
                let size = spec.description.len() + spec.parameters.to_string().len();
                if tools.len() == TOOLS_MAX || bytes + size > BYTES_MAX {
                    omitted += 1;
                    continue;
                }
                bytes += size;
                tools.push(tool);
            }
        }
        if omitted > 0 {
            tracing::warn!(
                "an agent gets {} tools of MCP servers and {omitted} are omitted; allow fewer tools",
                tools.len()
            );
        }
        tools.into()
    }
}

fn offered_tools(link: &Arc<ServerLink>, catalog: &ToolCatalog) -> Vec<Tool> {
    match (&catalog.tools, catalog.problems.first()) {
        (Some(tools), _) => tools.to_vec(),
        (None, Some(problem)) => vec![AbsentTool::reconnect(link, problem).into()],
        (None, None) => Vec::new(),
    }
}

impl ToolSource for GrantedTools {
    fn wait_until_ready(&self) -> BoxFuture<'_, ()> {
        let unlisted = self.links.iter().filter(|link| link.catalog().tools.is_none());
        let connects = unlisted.map(|link| async {
            // If a connection fails, the offered `reconnect` tool reports the reason.
            let _ = link.connect(Duration::ZERO).await;
        });
        let connects = join_all(connects);
        Box::pin(async move {
            connects.await;
        })
    }

    fn offer(&self) -> Arc<[Tool]> {
        let versions: Vec<u64> = self.links.iter().map(|link| link.version()).collect();
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        match &*offered {
            Some(offered) if offered.versions == versions => offered.tools.clone(),
            _ => {
                let tools = self.tools();
                *offered = Some(OfferedTools { versions, tools: tools.clone() });
                tools
            }
        }
    }

    fn stand_in(&self, name: &str) -> Option<Tool> {
        let belongs_to = |server: &str| name.starts_with(&tool_names::prefix(server));
        if let Some(link) = self.links.iter().find(|link| belongs_to(&link.name)) {
            // A list exists, so the model invented the name.
            let is_unlisted = link.catalog().tools.is_none();
            return is_unlisted
                .then(|| Tool::new(AbsentTool::for_called_tool(name, Some(link.clone()))));
        }
        let is_missing = self.missing.iter().any(|server| belongs_to(server));
        is_missing.then(|| Tool::new(AbsentTool::for_called_tool(name, None)))
    }
}

/// Returns true if the permissions allow any tool of the server. Other servers are not started.
pub(super) fn allows_any_tool(permissions: &Permissions, server: &str) -> bool {
    let prefix = tool_names::prefix(server);
    let grants: Vec<PermissionGrant> = permissions.clone().into();
    grants.iter().all(|grant| {
        let is_denied =
            grant.rules.deny.iter().any(|rule| covers_server(&rule.to_string(), &prefix));
        let names = |rule: &PermissionRule| may_name(&rule.to_string(), &prefix);
        let is_asked = grant.rules.ask.iter().any(names);
        let allow = grant.rules.allow.as_ref();
        !is_denied && (is_asked || allow.is_none_or(|allow| allow.iter().any(names)))
    })
}

/// Returns true if a rule matches every call of every tool of the server.
fn covers_server(rule: &str, prefix: &str) -> bool {
    let prefix_of_rule = rule.strip_suffix('*').map(|rule| rule.trim_end_matches('*'));
    prefix_of_rule.is_some_and(|prefix_of_rule| {
        !prefix_of_rule.contains('*') && prefix.starts_with(prefix_of_rule)
    })
}

/// Returns true if a rule may match a tool of the server.
fn may_name(rule: &str, prefix: &str) -> bool {
    let tool = rule.split('(').next().unwrap_or_default();
    match tool.split_once('*') {
        Some((prefix_of_rule, _)) => {
            prefix.starts_with(prefix_of_rule) || prefix_of_rule.starts_with(prefix)
        }
        None => tool.starts_with(prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brigade_agent::permission::PermissionRules;

    fn rules(allow: Option<&[&str]>, deny: &[&str]) -> Permissions {
        let parsed = |rules: &[&str]| -> Vec<PermissionRule> {
            rules.iter().map(|rule| rule.parse().unwrap()).collect()
        };
        Permissions::of(
            "the test",
            PermissionRules {
                allow: allow.map(parsed),
                deny: parsed(deny),
                ..PermissionRules::default()
            },
        )
    }

    #[test]
    fn a_server_is_used_only_if_one_of_its_tools_is_allowed() {
        for (allow, deny, allowed) in [
            (None, &[][..], true),
            (Some(&["*"][..]), &[], true),
            (Some(&["git__*"]), &[], true),
            (Some(&["git__log"]), &[], true),
            (Some(&["g*"]), &[], true),
            (Some(&["git__*(x)"]), &[], true),
            (Some(&["read_file", "github__*"]), &[], false),
            (Some(&[]), &[], false),
            (None, &["git__*"], false),
            (None, &["*"], false),
            (None, &["gi*"], false),
            (None, &["git__log"], true),
            (None, &["*_log"], true),
            (Some(&["git__*"]), &["git__push"], true),
        ] {
            assert_eq!(allows_any_tool(&rules(allow, deny), "git"), allowed, "{allow:?} {deny:?}");
        }
        // An `ask` rule needs no `allow` rule.
        for (ask, allowed) in [("git__push", true), ("github__push", false)] {
            let ask = vec![ask.parse().unwrap()];
            let rules =
                PermissionRules { allow: Some(Vec::new()), ask, ..PermissionRules::default() };
            assert_eq!(allows_any_tool(&Permissions::of("the test", rules), "git"), allowed);
        }
    }
}
