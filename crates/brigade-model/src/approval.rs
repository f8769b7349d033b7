//! Leave to do something: what is asked, what was said to it, and what is allowed from then on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use call_card::{CallCard, CardLine};
pub use call_digest::CallDigest;

use crate::ids::{ClientName, Time};
use crate::permission::{PermissionRule, PermissionSubject};
use crate::plain_text::PlainText;
use crate::refusal::Refusal;

mod call_card;
mod call_digest;

/// How many grants one tree keeps. Each is looked at for each approval that is asked for.
pub const GRANTS_MAX: usize = 256;

/// The longest reason of a denial, in bytes.
pub const REASON_MAX: usize = 2_000;

/// A call that a rule wants to be asked about, in the words that whoever decides is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub tool: Arc<str>,
    /// What a rule's pattern is held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<TextExcerpt>,
    /// Whether a shell reads the subject.
    #[serde(default)]
    pub is_shell: bool,
    /// All arguments of the call, as JSON.
    pub arguments: TextExcerpt,
    /// The absolute directory in which the call acts, of a tool that acts in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Arc<str>>,
    /// The rule that asks, and whose it is.
    pub rule: PermissionRule,
    pub rule_source: Arc<str>,
    /// Nobody is there who could say yes: what was not allowed before is denied at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unattended: bool,
}

/// The beginning of a text, or all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextExcerpt {
    pub text: Arc<str>,
    #[serde(default)]
    pub is_truncated: bool,
}

impl TextExcerpt {
    /// The most bytes of one: more cannot be shown to a person before they decide.
    pub const MAX: usize = 64 * 1024;

    pub fn of(text: &str) -> Self {
        let cut = text.floor_char_boundary(Self::MAX);
        Self { text: text[..cut].into(), is_truncated: cut < text.len() }
    }
}

impl ApprovalRequest {
    pub fn new(
        subject: &PermissionSubject<'_>,
        arguments: &str,
        (rule, by): (PermissionRule, Arc<str>),
    ) -> Self {
        Self {
            tool: subject.tool.into(),
            subject: subject.text.map(TextExcerpt::of),
            is_shell: subject.is_shell,
            arguments: TextExcerpt::of(arguments),
            directory: None,
            rule,
            rule_source: by,
            is_unattended: false,
        }
    }

    /// Says in which directory the call acts.
    #[must_use]
    pub fn in_directory(self, directory: Option<Arc<str>>) -> Self {
        Self { directory, ..self }
    }

    /// Whether the call is too large to be kept, and so to be shown, whole.
    pub fn is_too_large(&self) -> bool {
        self.arguments.is_truncated
            || self.subject.as_ref().is_some_and(|subject| subject.is_truncated)
    }

    /// Whether a rule surely speaks of this call. Of a subject that is cut only a rule on the whole
    /// tool does: what is left out may be anything.
    fn is_allowed_by(&self, rule: &PermissionRule) -> bool {
        let text = match &self.subject {
            Some(subject) if subject.is_truncated => None,
            subject => subject.as_ref().map(|subject| &*subject.text),
        };
        rule.allows(&PermissionSubject { tool: &self.tool, text, is_shell: self.is_shell })
    }
}

/// `run_process(cargo publish)` in a line, with the bytes that are left out of a long one.
impl fmt::Display for ApprovalRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        call_card::render_summary(self).fmt(f)
    }
}

/// What whoever may decide says to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    AllowOnce,
    /// This and, from now on in this tree, what the rule allows; without a rule, the very same.
    AllowAlways {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<PermissionRule>,
    },
    Deny {
        reason: Arc<str>,
    },
}

/// What is said where nobody is there to be asked.
const UNATTENDED: &str = "nobody is there to be asked, for the run is unattended. In a terminal, or \
    detached and with `brigade approve`, it would be asked about; what was allowed for good in this \
    session is not asked about again";

impl ApprovalVerdict {
    pub(crate) fn deny_unattended() -> Self {
        Self::Deny { reason: UNATTENDED.into() }
    }

    /// The verdict on a call that cannot be shown whole: nobody can be asked about it.
    pub(crate) fn deny_too_large() -> Self {
        let reason = format!(
            "a call of more than {} bytes cannot be shown whole to whoever is asked. Make it smaller, \
             such as by several calls",
            TextExcerpt::MAX
        );
        Self::Deny { reason: reason.into() }
    }

    pub(crate) fn check(&self, asked: &ApprovalRequest) -> Result<(), Refusal> {
        match self {
            Self::AllowOnce if asked.is_too_large() => Err(Refusal::invalid(format!(
                "the call has more than {} bytes and cannot be shown whole; deny it",
                TextExcerpt::MAX
            ))),
            Self::AllowOnce => Ok(()),
            Self::AllowAlways { rule } => GrantScope::of(asked, rule.as_ref()).map(|_| ()),
            Self::Deny { reason } if reason.len() > REASON_MAX => {
                Err(Refusal::invalid(format!("the reason is longer than {REASON_MAX} bytes")))
            }
            Self::Deny { .. } => Ok(()),
        }
    }
}

impl fmt::Display for ApprovalVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllowOnce => f.write_str("allowed once"),
            Self::AllowAlways { rule: None } => f.write_str("allowed always"),
            Self::AllowAlways { rule: Some(rule) } => write!(f, "allowed always, as {rule}"),
            Self::Deny { reason } if reason.is_empty() => f.write_str("denied"),
            Self::Deny { reason } => write!(f, "denied: {reason}"),
        }
    }
}

/// What was allowed for good in a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalGrant {
    /// To revoke it by. Never given out twice.
    pub no: u32,
    pub scope: GrantScope,
    /// The directory of the call that was allowed. Only a rule on a whole tool is for others too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Arc<str>>,
    /// The client that gave it, for what it started itself. The operator's is for the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientName>,
    pub granted_at: Time,
}

impl ApprovalGrant {
    /// Whether it allows a call: in the same directory, for the same command is another one elsewhere.
    pub fn allows(&self, asked: &ApprovalRequest) -> bool {
        let is_here = self.scope.is_whole_tool() || self.directory == asked.directory;
        is_here && self.scope.includes(asked)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantScope {
    Rule(PermissionRule),
    /// The very same call: the same tool, and the same arguments, all of them.
    Call {
        tool: Arc<str>,
        digest: CallDigest,
        /// The call for a reader, elided.
        description: Arc<str>,
    },
}

impl GrantScope {
    /// What is allowed along with a call: the rule, if it speaks of the call, or the very same.
    pub(crate) fn of(
        asked: &ApprovalRequest,
        rule: Option<&PermissionRule>,
    ) -> Result<Self, Refusal> {
        if let Some(rule) = rule {
            if asked.is_allowed_by(rule) {
                return Ok(Self::Rule(rule.clone()));
            }
            return Err(Refusal::invalid(format!(
                "the rule `{rule}` does not allow `{asked}`; a pattern allows one simple command, \
                 and `{}` every call",
                asked.tool
            )));
        }
        if asked.is_too_large() {
            return Err(Refusal::invalid(format!(
                "the call has more than {} bytes and cannot be shown whole; deny it, or give a rule on \
                 the tool, such as `{}`",
                TextExcerpt::MAX,
                asked.tool
            )));
        }
        let what = render_exact_call(&asked.tool, &asked.arguments.text);
        let digest = CallDigest::of_content(asked);
        Ok(Self::Call { tool: asked.tool.clone(), digest, description: what.as_str().into() })
    }

    /// Whether it is a rule on every call of its tools.
    pub(crate) fn is_whole_tool(&self) -> bool {
        matches!(self, Self::Rule(rule) if rule.is_whole_tool())
    }

    fn includes(&self, asked: &ApprovalRequest) -> bool {
        match self {
            Self::Rule(rule) => asked.is_allowed_by(rule),
            Self::Call { tool, digest, .. } => {
                let is_whole = !asked.is_too_large();
                *tool == asked.tool && is_whole && *digest == CallDigest::of_content(asked)
            }
        }
    }
}

impl fmt::Display for GrantScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Call { description: what, .. } => f.write_str(what),
        }
    }
}

/// `write_file {"content":"x","path":"menu"} exactly`: what is allowed along with a call without a rule,
/// in a line in which long arguments have lost their middle.
pub fn render_exact_call(tool: &str, arguments: &str) -> PlainText {
    /// A tree keeps up to [`GRANTS_MAX`] of them.
    const LETTERS: usize = 200;
    let arguments = PlainText::truncate_middle(arguments, LETTERS);
    PlainText::line(&format!("{tool} {arguments} exactly"))
}

/// All that was allowed for good in a tree, and how many numbers were given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApprovalGrants {
    pub last_no: u32,
    pub all: Arc<[ApprovalGrant]>,
}

impl ApprovalGrants {
    pub fn is_unused(&self) -> bool {
        self.last_no == 0
    }

    pub fn get(&self, no: u32) -> Option<&ApprovalGrant> {
        self.all.iter().find(|grant| grant.no == no)
    }

    pub(crate) fn add(&mut self, grant: &ApprovalGrant) {
        self.last_no = self.last_no.max(grant.no);
        self.all = self.all.iter().chain([grant]).cloned().collect();
    }

    pub(crate) fn remove(&mut self, no: u32) {
        self.all = self.all.iter().filter(|grant| grant.no != no).cloned().collect();
    }
}
