//! Trust in definitions that come with a workspace.
//!
//! A cloned repository may hold definitions. Until the operator trusts one, its agents and their
//! descendants only read: they write no file, run no process and use no MCP server. In an
//! unattended run an untrusted definition is refused.

use std::fmt::Debug;
use std::path::Path;

use brigade_agent::definition::{
    DefinitionDigest, DefinitionOrigin, LoadedDefinition, repository_of,
};
use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_model::refusal::Refusal;

use super::backend_source::BackendChoice;
use super::options::AgentOptions;

/// The definitions of workspaces that the operator trusts.
pub trait DefinitionTrust: Debug + Send + Sync + 'static {
    /// Returns true if a file with this digest is trusted in this repository ([`repository_of`]).
    fn is_trusted(&self, repository: &Path, digest: &DefinitionDigest) -> bool;
}

/// The trust of programs that trust no workspace definition.
#[derive(Clone, Copy, Debug)]
pub struct TrustNothing;

impl DefinitionTrust for TrustNothing {
    fn is_trusted(&self, _: &Path, _: &DefinitionDigest) -> bool {
        false
    }
}

/// The trust in a definition, which decides about the permissions of its agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrustLevel {
    Trusted,
    Untrusted,
}

pub(super) fn trust_level(
    options: &AgentOptions,
    found: &LoadedDefinition,
    directory: Option<&str>,
) -> TrustLevel {
    let Some(source) =
        found.source.as_ref().filter(|_| found.origin == DefinitionOrigin::Workspace)
    else {
        return TrustLevel::Trusted;
    };
    let repository = repository_of(Path::new(directory.unwrap_or("/")));
    match options.trust.is_trusted(&repository, &source.digest) {
        true => TrustLevel::Trusted,
        false => TrustLevel::Untrusted,
    }
}

/// Refuses an untrusted definition if a restriction is not enough: in an unattended run, or with a
/// backend, whose program does more than call tools.
pub(super) fn check_untrusted(
    found: &LoadedDefinition,
    backend: Option<BackendChoice<'_>>,
    unattended: bool,
) -> Result<(), Refusal> {
    let reason = match (unattended, backend) {
        (true, _) => "nobody is there to be asked".to_owned(),
        (false, Some(backend)) => format!("it runs another program ({})", backend.name),
        (false, None) => return Ok(()),
    };
    let Some(source) = &found.source else { return Ok(()) };
    let name = &found.definition.name;
    let file = source.file.display();
    Err(Refusal::forbidden(format!(
        "the agent definition {name:?} ({file}) comes with the workspace and is not trusted, and \
     {reason}: \
         read it, then run `brigade trust grant {}`",
        source.digest
    )))
}

/// Returns the rules for agents of an untrusted definition and their descendants.
pub(super) fn untrusted_rules() -> PermissionRules {
    let denied = brigade_file_tools::WRITING_TOOLS.into_iter().chain(["run_process", "*__*"]);
    let deny: Vec<PermissionRule> = denied.filter_map(|rule| rule.parse().ok()).collect();
    PermissionRules { deny, ..PermissionRules::all() }
}

#[cfg(test)]
mod tests {
    use brigade_agent::permission::Permissions;

    use super::*;

    #[test]
    fn an_untrusted_definition_only_reads() {
        let all = Permissions::of("the operator", PermissionRules::all());
        let narrowed = all.narrow("an untrusted definition", untrusted_rules());
        for tool in ["write_file", "edit_file", "run_process", "github__push", "a__b__c"] {
            assert!(all.may_use(tool) && !narrowed.may_use(tool), "{tool}");
        }
        for tool in ["read_file", "list_files", "spawn_agent", "ask_parent", "kitchen_bell"] {
            assert!(narrowed.may_use(tool), "{tool}");
        }
    }
}
