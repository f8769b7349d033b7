//! What an agent may do: rules on tools and their arguments.
//!
//! A rule is `tool` or `tool(pattern)`; [`Rules`] are what one of those concerned says, the operator
//! or an agent definition; [`Permissions`] are the rules of all of them, from the session down. The
//! strictest of them decides, so a child never has more than its parent: what one denies is refused,
//! what one wants to be asked about is asked, and only what all of them allow is simply done.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

pub use brigade_model::permission::{PermissionRule, PermissionSubject, RuleError};

/// The name under which rules speak of calls that start something which outlives the agent: `keep` is
/// every such call, `keep(spawn_agent)` those of one tool. An allow list of nothing else allows no less
/// than none.
pub const KEEP: &str = "keep";

/// What one of those concerned allows.
///
/// Without an allow list everything is allowed that is not denied. With one, even an empty one, only
/// what it lists, and what the ask list lists if somebody says yes. A deny wins over any ask, and an
/// ask over any allow.
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

/// An allow list that is there but has no value must not read as none, which allows everything.
fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<PermissionRule>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

impl PermissionRules {
    /// Allows everything.
    pub fn all() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same without a word on what may outlive an agent: a child has that from its parent.
    #[must_use]
    pub fn without_keep(self) -> Self {
        let allow = self
            .allow_list()
            .map(|allow| allow.iter().filter(|rule| rule.tool() != KEEP).cloned().collect());
        Self { allow, ..self }
    }

    /// A rule that can never allow or ask anything, and the deny that keeps it from that.
    pub fn find_shadowed(&self) -> Option<ShadowedRule<'_>> {
        let allow = self.allow.iter().flatten().map(|rule| ("allow", rule));
        let mut rules = allow.chain(self.ask.iter().map(|rule| ("ask", rule)));
        rules.find_map(|(list, rule)| {
            let deny = self.deny.iter().find(|deny| deny.shadows(rule))?;
            Some(ShadowedRule { list, rule, deny })
        })
    }

    /// The rule that asks, if the call is neither denied nor simply allowed.
    fn check(
        &self,
        by: &Arc<str>,
        subject: &PermissionSubject<'_>,
    ) -> Result<Option<&PermissionRule>, PermissionRefusal> {
        let refused = |why| {
            Err(PermissionRefusal { by: Arc::clone(by), call: subject.to_string(), reason: why })
        };
        if let Some(rule) = self.deny.iter().find(|rule| rule.denies(subject)) {
            return refused(PermissionRefusalReason::Denied { rule: rule.clone() });
        }
        // Whoever is asked sees the whole call, so a rule asks about all that it may speak of.
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

    /// The list beside which nothing is allowed, if there is one.
    fn allow_list(&self) -> Option<&[PermissionRule]> {
        let lists_tools = |allow: &&[PermissionRule]| {
            allow.is_empty() || allow.iter().any(|rule| rule.tool() != KEEP)
        };
        self.allow.as_deref().filter(lists_tools)
    }

    /// Whether a rule says by name that a call may start what outlives the agent.
    fn allows_keep(&self, subject: &PermissionSubject<'_>) -> bool {
        let mut rules = self.allow.iter().flatten().filter(|rule| rule.tool() == KEEP);
        rules.any(|rule| rule.allows(subject))
    }

    /// Whether some call of the tool may be allowed.
    fn may_use(&self, tool: &str) -> bool {
        let denied = self.deny.iter().any(|rule| rule.is_whole_tool() && rule.matches_tool(tool));
        let allowed = self.allow_list();
        let names = |rules: &[PermissionRule]| rules.iter().any(|rule| rule.matches_tool(tool));
        !denied && allowed.is_none_or(|allow| names(allow) || names(&self.ask))
    }
}

/// A rule that a deny makes useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowedRule<'a> {
    /// `allow` or `ask`.
    pub list: &'static str,
    pub rule: &'a PermissionRule,
    pub deny: &'a PermissionRule,
}

/// The rules of all those concerned, from the session down. There is always at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<PermissionGrant>", into = "Vec<PermissionGrant>")]
pub struct Permissions(Vec<PermissionGrant>);

/// What one of those concerned allows, and who that is, for the words of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionGrant {
    pub by: Arc<str>,
    pub rules: Arc<PermissionRules>,
}

impl Permissions {
    /// The beginning of a chain: what the operator allows.
    pub fn of(by: impl Into<Arc<str>>, rules: PermissionRules) -> Self {
        Self(vec![PermissionGrant { by: by.into(), rules: Arc::new(rules) }])
    }

    /// What a child has: all that holds for its parent, and its own rules.
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

    /// Checks whether what a call of this tool starts may outlive the agent. Where that has to be
    /// allowed by name, saying nothing denies it.
    pub fn check_keep(&self, tool: &str, by_name: bool) -> PermissionVerdict {
        let subject = PermissionSubject { tool: KEEP, text: Some(tool), is_shell: false };
        let mut asks = None;
        for PermissionGrant { by, rules } in &self.0 {
            let refused =
                |why| PermissionRefusal { by: by.clone(), call: subject.to_string(), reason: why };
            if let Some(rule) = rules.deny.iter().find(|rule| rule.denies(&subject)) {
                return PermissionVerdict::Refused(refused(PermissionRefusalReason::Denied {
                    rule: rule.clone(),
                }));
            }
            let rule = rules.ask.iter().find(|rule| rule.denies(&subject));
            asks = asks
                .or(rule.map(|rule| PermissionVerdict::Ask { rule: rule.clone(), by: by.clone() }));
        }
        let allowed = self.0.iter().any(|grant| grant.rules.allows_keep(&subject));
        if by_name && !allowed && asks.is_none() {
            let (by, call) = ("the unattended run".into(), subject.to_string());
            return PermissionVerdict::Refused(PermissionRefusal {
                by,
                call,
                reason: PermissionRefusalReason::OutlivesTheRun,
            });
        }
        asks.unwrap_or(PermissionVerdict::Allowed)
    }

    /// Whether some call of the tool may be allowed. A model is not told of other tools.
    pub fn may_use(&self, tool: &str) -> bool {
        self.0.iter().all(|grant| grant.rules.may_use(tool))
    }
}

impl TryFrom<Vec<PermissionGrant>> for Permissions {
    type Error = &'static str;

    /// An empty chain would allow everything.
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

/// What comes of a check.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionVerdict {
    Allowed,
    /// If whoever may decide says yes. The rule is the one nearest to the session that asks.
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

/// Why a call is not allowed, in words for a model.
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
    /// No rule allows it; these allow other calls of the tool.
    NotAllowed {
        allowed: Vec<PermissionRule>,
    },
    /// Nobody is there to look after what outlives the run.
    OutlivesTheRun,
    /// A rule with a pattern allows it but for an option, which can make it another command.
    Option {
        option: &'static str,
        allowed: Vec<PermissionRule>,
    },
    /// A rule with a pattern speaks of one command, and this is more than one.
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
        for (at, rule) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}`{rule}`", if at == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests;
