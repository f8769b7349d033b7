//! Permission rules on tools and their arguments.
//!
//! A rule is `tool` or `tool(pattern)`. [`PermissionRules`] are the rules of one source: the operator or an
//! agent definition. [`Permissions`] are the rules of all sources, from the session to the agent. The
//! strictest source decides, so a child never has more permissions than its parent. A call is refused if
//! one source denies it, needs an approval if one source asks, and runs at once only if all allow it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

pub use brigade_model::permission::{PermissionRule, PermissionSubject, RuleError};

/// The name of rules on calls that start work that outlives the agent. `keep` matches every such call,
/// `keep(spawn_agent)` those of one tool. An allow list with only such rules restricts no other tools.
pub const KEEP: &str = "keep";

/// The permission rules of one source.
///
/// Without an allow list, every call is allowed that is not denied. With one, even an empty one, only
/// listed calls are allowed, and calls of the ask list after an approval. A deny rule takes precedence
/// over any ask rule, and an ask rule over any allow rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionRules {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub allow: Option<Vec<PermissionRule>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<PermissionRule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<PermissionRule>,
}

/// Refuses an allow list without a value. It must not read as no list, which allows everything.
fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<PermissionRule>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

impl PermissionRules {
    /// Returns rules that allow everything.
    pub fn all() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Removes the allow rules on outliving work: a child inherits those of its parent.
    #[must_use]
    pub fn without_keep(self) -> Self {
        let allow = self
            .allow_list()
            .map(|allow| allow.iter().filter(|rule| rule.tool() != KEEP).cloned().collect());
        Self { allow, ..self }
    }

    /// Finds a rule that can never match, and the deny rule that covers it.
    pub fn find_shadowed(&self) -> Option<ShadowedRule<'_>> {
        let allow = self.allow.iter().flatten().map(|rule| ("allow", rule));
        let mut rules = allow.chain(self.ask.iter().map(|rule| ("ask", rule)));
        rules.find_map(|(list, rule)| {
            let deny = self.deny.iter().find(|deny| deny.shadows(rule))?;
            Some(ShadowedRule { list, rule, deny })
        })
    }

    /// Checks a call. Returns the ask rule that matches, or `None` if the call is allowed.
    fn check(
        &self,
        by: &Arc<str>,
        subject: &PermissionSubject<'_>,
    ) -> Result<Option<&PermissionRule>, PermissionRefusal> {
        let refused = |reason| {
            Err(PermissionRefusal { by: Arc::clone(by), call: subject.to_string(), reason })
        };
        if let Some(rule) = self.deny.iter().find(|rule| rule.denies(subject)) {
            return refused(PermissionRefusalReason::Denied { rule: rule.clone() });
        }
        // The approver sees the whole call, so an ask rule matches as broadly as a deny rule.
        if let Some(rule) = self.ask.iter().find(|rule| rule.denies(subject)) {
            return Ok(Some(rule));
        }
        let Some(allow) = self.allow_list() else { return Ok(None) };
        if allow.iter().any(|rule| rule.allows(subject)) {
            return Ok(None);
        }
        let allowed: Vec<PermissionRule> =
            allow.iter().filter(|rule| rule.matches_tool(subject.tool)).cloned().collect();
        let option = allow.iter().find_map(|rule| rule.refused_option(subject));
        match (subject.compound_syntax(), option) {
            (Some(sign), _) if !allowed.is_empty() => {
                refused(PermissionRefusalReason::Compound { sign, allowed })
            }
            (_, Some(option)) => refused(PermissionRefusalReason::Option { option, allowed }),
            _ => refused(PermissionRefusalReason::NotAllowed { allowed }),
        }
    }

    /// Returns the allow list, if it restricts tools.
    fn allow_list(&self) -> Option<&[PermissionRule]> {
        let lists_tools = |allow: &&[PermissionRule]| {
            allow.is_empty() || allow.iter().any(|rule| rule.tool() != KEEP)
        };
        self.allow.as_deref().filter(lists_tools)
    }

    /// Returns true if an allow rule permits the call's outliving work by name.
    fn allows_keep(&self, subject: &PermissionSubject<'_>) -> bool {
        let mut rules = self.allow.iter().flatten().filter(|rule| rule.tool() == KEEP);
        rules.any(|rule| rule.allows(subject))
    }

    /// Returns true if some call of the tool may be allowed.
    fn may_use(&self, tool: &str) -> bool {
        let denied = self.deny.iter().any(|rule| rule.is_whole_tool() && rule.matches_tool(tool));
        let allowed = self.allow_list();
        let names = |rules: &[PermissionRule]| rules.iter().any(|rule| rule.matches_tool(tool));
        !denied && allowed.is_none_or(|allow| names(allow) || names(&self.ask))
    }
}

/// A rule that a deny rule makes useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowedRule<'a> {
    /// `allow` or `ask`.
    pub list: &'static str,
    pub rule: &'a PermissionRule,
    pub deny: &'a PermissionRule,
}

/// The rules of all sources, from the session to the agent. There is always at least one source.
///
/// ```
/// use brigade_agent::permission::{PermissionRules, Permissions};
///
/// let rules = PermissionRules { deny: vec!["run_process".parse()?], ..PermissionRules::all() };
/// let permissions = Permissions::of("the kitchen", rules);
/// assert!(permissions.may_use("read_file"));
/// assert!(!permissions.may_use("run_process"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<PermissionGrant>", into = "Vec<PermissionGrant>")]
pub struct Permissions(Vec<PermissionGrant>);

/// The rules of one source, and its name for refusals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionGrant {
    pub by: Arc<str>,
    pub rules: Arc<PermissionRules>,
}

impl Permissions {
    /// Creates the permissions of a session, from the operator's rules.
    pub fn of(by: impl Into<Arc<str>>, rules: PermissionRules) -> Self {
        Self(vec![PermissionGrant { by: by.into(), rules: Arc::new(rules) }])
    }

    /// Returns the permissions of a child: those of its parent, and its own rules.
    #[must_use]
    pub fn narrow(&self, by: impl Into<Arc<str>>, rules: PermissionRules) -> Self {
        let mut grants = self.0.clone();
        if !rules.is_empty() {
            grants.push(PermissionGrant { by: by.into(), rules: Arc::new(rules) });
        }
        Self(grants)
    }

    pub fn check(&self, subject: &PermissionSubject<'_>) -> PermissionVerdict {
        let mut asks = None;
        for PermissionGrant { by, rules } in &self.0 {
            match rules.check(by, subject) {
                Err(refused) => return PermissionVerdict::Refused(refused),
                Ok(Some(rule)) if asks.is_none() => asks = Some((rule, by)),
                Ok(_) => (),
            }
        }
        match asks {
            Some((rule, by)) => PermissionVerdict::Ask { rule: rule.clone(), by: by.clone() },
            None => PermissionVerdict::Allowed,
        }
    }

    /// Checks if the work that a call of this tool starts may outlive the agent. With `by_name`, the work
    /// is refused unless a rule names it.
    pub fn check_keep(&self, tool: &str, by_name: bool) -> PermissionVerdict {
        let subject = PermissionSubject { tool: KEEP, text: Some(tool), is_shell: false };
        let mut asks = None;
        for PermissionGrant { by, rules } in &self.0 {
            if let Some(rule) = rules.deny.iter().find(|rule| rule.denies(&subject)) {
                return PermissionVerdict::Refused(PermissionRefusal {
                    by: by.clone(),
                    call: subject.to_string(),
                    reason: PermissionRefusalReason::Denied { rule: rule.clone() },
                });
            }
            let rule = rules.ask.iter().find(|rule| rule.denies(&subject));
            asks = asks
                .or(rule.map(|rule| PermissionVerdict::Ask { rule: rule.clone(), by: by.clone() }));
        }
        let allowed = self.0.iter().any(|grant| grant.rules.allows_keep(&subject));
        if by_name && !allowed && asks.is_none() {
            return PermissionVerdict::Refused(PermissionRefusal {
                by: "the unattended run".into(),
                call: subject.to_string(),
                reason: PermissionRefusalReason::OutlivesTheRun,
            });
        }
        asks.unwrap_or(PermissionVerdict::Allowed)
    }

    /// Returns true if some call of the tool may be allowed. A model does not get other tools.
    pub fn may_use(&self, tool: &str) -> bool {
        self.0.iter().all(|grant| grant.rules.may_use(tool))
    }
}

impl TryFrom<Vec<PermissionGrant>> for Permissions {
    type Error = &'static str;

    /// Refuses an empty list, which would allow everything.
    fn try_from(grants: Vec<PermissionGrant>) -> Result<Self, Self::Error> {
        if grants.is_empty() {
            return Err("permissions without any rules");
        }
        Ok(Self(grants))
    }
}

impl From<Permissions> for Vec<PermissionGrant> {
    fn from(permissions: Permissions) -> Self {
        permissions.0
    }
}

/// The result of a permission check.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionVerdict {
    Allowed,
    /// The call needs an approval. The rule is the matching ask rule nearest to the session.
    Ask {
        rule: PermissionRule,
        by: Arc<str>,
    },
    Refused(PermissionRefusal),
}

impl PermissionVerdict {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed)
    }
}

/// The refusal of a call, rendered for a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} is not permitted: {by} {reason}")]
pub struct PermissionRefusal {
    pub by: Arc<str>,
    pub call: String,
    pub reason: PermissionRefusalReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionRefusalReason {
    Denied {
        rule: PermissionRule,
    },
    /// No rule allows the call. The listed rules allow other calls of the tool.
    NotAllowed {
        allowed: Vec<PermissionRule>,
    },
    /// The work would outlive an unattended run.
    OutlivesTheRun,
    /// A rule with a pattern matches, but the call has an option that can run other programs.
    Option {
        option: &'static str,
        allowed: Vec<PermissionRule>,
    },
    /// A rule with a pattern allows one simple command, and the call has more than one.
    Compound {
        sign: &'static str,
        allowed: Vec<PermissionRule>,
    },
}

impl fmt::Display for PermissionRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { rule } => write!(f, "denies `{rule}`; do it without that"),
            Self::NotAllowed { allowed } if allowed.is_empty() => {
                f.write_str("does not allow this tool")
            }
            Self::NotAllowed { allowed } => write!(f, "allows only {}", RuleList(allowed)),
            Self::OutlivesTheRun => f.write_str(
                "lets no sub-agent outlive it unless a rule allows `keep(spawn_agent)`; start it \
                 without `keep`",
            ),
            Self::Option { option, allowed } => write!(
                f,
                "allows only {}, and not with `{option}`, which can run other programs; do it without",
                RuleList(allowed)
            ),
            Self::Compound { sign, allowed } => write!(
                f,
                "allows only {}, each as one simple command, and this one has {sign}; \
                 run the commands one by one, without ; & | < > $ ` ( ) and line ends",
                RuleList(allowed)
            ),
        }
    }
}

struct RuleList<'a>(&'a [PermissionRule]);

impl fmt::Display for RuleList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        for (position, rule) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}`{rule}`", if position == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests;
