//! Directories that file tools do not write to without a rule: the contents of `.git` and
//! `.brigade` run as code or grant permissions.

use std::sync::Arc;

use brigade_model::plain_text::is_invisible;

use crate::rel_path::RelPath;
use crate::render::quote_name;
use brigade_agent::permission::{PermissionGrant, PermissionRule, PermissionSubject};
use brigade_agent::tool::ToolError;

const PROTECTED: [&str; 2] = [".git", ".brigade"];

/// The rules that name a protected directory, and so allow writing to it on purpose.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProtectedRules(Arc<[PermissionRule]>);

impl ProtectedRules {
    pub(crate) fn of(grants: &[PermissionGrant]) -> Self {
        let rules = grants.iter().flat_map(|grant| {
            grant.rules.allow.iter().flatten().chain(&grant.rules.ask).filter(|rule| {
                rule.pattern().is_some_and(|pattern| pattern.split('/').any(is_protected))
            })
        });
        Self(rules.cloned().collect())
    }

    /// Refuses to write to a protected directory unless a rule for this path names each of them.
    /// The agent's other rules apply as well.
    pub(crate) fn check(&self, tool: &str, name: &RelPath) -> Result<(), ToolError> {
        let protected: Vec<&str> = name.names().filter(|part| is_protected(part)).collect();
        let Some(first) = protected.first() else { return Ok(()) };
        let subject = PermissionSubject { tool, text: Some(name.as_str()), is_shell: false };
        let names_all = |rule: &PermissionRule| {
            let mut parts = rule.pattern().into_iter().flat_map(|pattern| pattern.split('/'));
            protected.iter().all(|name| parts.any(|part| part == *name))
        };
        // `denies` matches broadly, as an `ask` rule does. The approver sees such a call.
        if self.0.iter().any(|rule| names_all(rule) && rule.denies(&subject)) {
            return Ok(());
        }
        let shown = quote_name(name.as_str());
        Err(ToolError::new(format!(
            "{shown} is in a directory `{first}`, which file tools do not write to unless a permission \
             rule names it, such as `{tool}({first}/**)`; nothing was done"
        )))
    }
}

/// Compares a name as the most lenient file system does: without case and invisible characters, and
/// by its short name.
fn is_protected(name: &str) -> bool {
    let visible: String = name.chars().filter(|c| !is_invisible(*c)).collect();
    let visible = visible.trim_end_matches(['.', ' ']);
    PROTECTED.iter().any(|protected| visible.eq_ignore_ascii_case(protected))
        || visible.eq_ignore_ascii_case("git~1")
}
