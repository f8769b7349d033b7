//! Approvals of tool calls: the request, the verdict, and grants that allow further calls.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use call_card::{CallCard, CardLine};
pub use call_digest::CallDigest;

use crate::ids::{ClientName, Time};
use crate::permission::{PermissionRule, PermissionSubject};
use crate::plain_text::PlainText;
use crate::refusal::Refusal;
use crate::truncate::head_bytes;

mod call_card;
mod call_digest;

/// The maximum number of grants in a session. Each approval request is checked against all of them.
pub const GRANTS_MAX: usize = 256;

/// The maximum length of a denial's reason, in bytes.
pub const REASON_MAX: usize = 2_000;

/// A tool call that an `ask` rule matched, with the text that is shown to the decider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    pub tool: Arc<str>,
    /// The text that a rule's pattern is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<TextExcerpt>,
    /// True if a shell reads the subject.
    #[serde(default)]
    pub is_shell: bool,
    /// All arguments of the call, as JSON.
    pub arguments: TextExcerpt,
    /// The absolute directory in which the call acts, if its tool acts in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Arc<str>>,
    /// The rule that requires the approval, and its source.
    pub rule: PermissionRule,
    pub rule_source: Arc<str>,
    /// True if nobody can decide: a call that no grant allows is denied at once.
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
    /// The maximum length in bytes. A longer text cannot be shown to a person before they decide.
    pub const MAX: usize = 64 * 1024;

    pub fn of(text: &str) -> Self {
        let head = head_bytes(text, Self::MAX);
        Self { text: head.into(), is_truncated: head.len() < text.len() }
    }
}

impl ApprovalRequest {
    pub fn new(
        subject: &PermissionSubject<'_>,
        arguments: &str,
        rule: PermissionRule,
        rule_source: Arc<str>,
    ) -> Self {
        Self {
            tool: subject.tool.into(),
            subject: subject.text.map(TextExcerpt::of),
            is_shell: subject.is_shell,
            arguments: TextExcerpt::of(arguments),
            directory: None,
            rule,
            rule_source,
            is_unattended: false,
        }
    }

    /// Sets the directory in which the call acts.
    #[must_use]
    pub fn in_directory(self, directory: Option<Arc<str>>) -> Self {
        Self { directory, ..self }
    }

    /// Returns whether the call is too large to be stored, and so to be shown, whole.
    pub fn is_too_large(&self) -> bool {
        self.arguments.is_truncated
            || self.subject.as_ref().is_some_and(|subject| subject.is_truncated)
    }

    /// Returns whether a rule certainly matches this call. Only a rule on the whole tool matches a
    /// truncated subject, because the rest may be anything.
    fn is_allowed_by(&self, rule: &PermissionRule) -> bool {
        let text = match &self.subject {
            Some(subject) if subject.is_truncated => None,
            subject => subject.as_ref().map(|subject| &*subject.text),
        };
        rule.allows(&PermissionSubject { tool: &self.tool, text, is_shell: self.is_shell })
    }
}

/// Renders the call in one line, such as `run_process(cargo publish)`, with the number of omitted
/// bytes if it is long.
impl fmt::Display for ApprovalRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        call_card::render_summary(self).fmt(f)
    }
}

/// The decision on an approval request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    AllowOnce,
    /// Allows this call, and from now on in this session all calls that the rule allows. Without a
    /// rule: the same call.
    AllowAlways {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<PermissionRule>,
    },
    Deny {
        reason: Arc<str>,
    },
}

/// The reason of a denial in an unattended run.
const UNATTENDED: &str = "nobody is there to be asked, for the run is unattended. Run it in a terminal, \
    or run it detached and decide with `brigade approve`; calls that were allowed always in this \
    session need no further approval";

impl ApprovalVerdict {
    /// Returns the verdict on a call of an unattended run that no grant allows.
    pub fn deny_unattended() -> Self {
        Self::Deny { reason: UNATTENDED.into() }
    }

    /// Returns the verdict on a call that cannot be shown whole, so that nobody can decide it.
    pub(crate) fn deny_too_large() -> Self {
        let reason = format!(
            "a call of more than {} bytes cannot be shown whole to the person who decides. Make it \
             smaller, for example with several calls",
            TextExcerpt::MAX
        );
        Self::Deny { reason: reason.into() }
    }

    pub(crate) fn check(&self, request: &ApprovalRequest) -> Result<(), Refusal> {
        match self {
            Self::AllowOnce if request.is_too_large() => Err(Refusal::invalid(format!(
                "the call has more than {} bytes and cannot be shown whole; deny it",
                TextExcerpt::MAX
            ))),
            Self::AllowOnce => Ok(()),
            Self::AllowAlways { rule } => GrantScope::of(request, rule.as_ref()).map(|_| ()),
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

/// A grant: calls that are allowed always in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalGrant {
    /// The number by which it is revoked. Numbers are never reused.
    pub no: u32,
    pub scope: GrantScope,
    /// The directory of the call that was allowed. Only a rule on a whole tool applies to other
    /// directories too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Arc<str>>,
    /// The client that gave it, for tasks that it started. A grant of the operator applies to the
    /// whole session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientName>,
    pub granted_at: Time,
}

impl ApprovalGrant {
    /// Returns whether it allows a call. It must act in the same directory, because the same
    /// command does something else elsewhere.
    pub fn allows(&self, request: &ApprovalRequest) -> bool {
        let is_here = self.scope.is_whole_tool() || self.directory == request.directory;
        is_here && self.scope.includes(request)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantScope {
    Rule(PermissionRule),
    /// Exactly one call: the same tool with the same arguments.
    Call {
        tool: Arc<str>,
        digest: CallDigest,
        /// The truncated call for a reader.
        description: Arc<str>,
    },
}

impl GrantScope {
    /// Returns the scope of a grant: the rule if it matches the call, or exactly the same call.
    pub(crate) fn of(
        request: &ApprovalRequest,
        rule: Option<&PermissionRule>,
    ) -> Result<Self, Refusal> {
        if let Some(rule) = rule {
            if request.is_allowed_by(rule) {
                return Ok(Self::Rule(rule.clone()));
            }
            return Err(Refusal::invalid(format!(
                "the rule `{rule}` does not allow `{request}`; a pattern allows one simple command, \
                 and `{}` every call",
                request.tool
            )));
        }
        if request.is_too_large() {
            return Err(Refusal::invalid(format!(
                "the call has more than {} bytes and cannot be shown whole; deny it, or give a rule on \
                 the tool, such as `{}`",
                TextExcerpt::MAX,
                request.tool
            )));
        }
        let description = render_exact_call(&request.tool, &request.arguments.text);
        let digest = CallDigest::of_content(request);
        Ok(Self::Call {
            tool: request.tool.clone(),
            digest,
            description: description.as_str().into(),
        })
    }

    /// Returns whether it is a rule on every call of its tools.
    pub(crate) fn is_whole_tool(&self) -> bool {
        matches!(self, Self::Rule(rule) if rule.is_whole_tool())
    }

    fn includes(&self, request: &ApprovalRequest) -> bool {
        match self {
            Self::Rule(rule) => request.is_allowed_by(rule),
            Self::Call { tool, digest, .. } => {
                let is_whole = !request.is_too_large();
                *tool == request.tool && is_whole && *digest == CallDigest::of_content(request)
            }
        }
    }
}

impl fmt::Display for GrantScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Call { description, .. } => f.write_str(description),
        }
    }
}

/// Renders the scope of a grant without a rule, such as `write_file {"content":"x","path":"menu"}
/// exactly`. Long arguments are truncated in the middle.
pub fn render_exact_call(tool: &str, arguments: &str) -> PlainText {
    /// A session stores up to [`GRANTS_MAX`] of them.
    const LETTERS: usize = 200;
    let arguments = PlainText::truncate_middle(arguments, LETTERS);
    PlainText::line(&format!("{tool} {arguments} exactly"))
}

/// All grants of a session, and the last number that was assigned.
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
