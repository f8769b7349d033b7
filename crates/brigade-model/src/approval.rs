//! Leave to do something: what is asked, what was said to it, and what is allowed from then on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ClientName, Time};
use crate::permission::{Rule, Subject};
use crate::refusal::Refusal;

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
    pub subject: Option<Excerpt>,
    /// Whether a shell reads the subject.
    #[serde(default)]
    pub is_shell: bool,
    /// All arguments of the call, as JSON.
    pub arguments: Excerpt,
    /// The rule that asks, and whose it is.
    pub rule: Rule,
    pub by: Arc<str>,
    /// Nobody is there who could say yes: what was not allowed before is denied at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unattended: bool,
}

/// The beginning of a text, or all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    pub text: Arc<str>,
    #[serde(default)]
    pub is_cut: bool,
}

impl Excerpt {
    /// The most bytes of one.
    pub const MAX: usize = 4_096;

    pub fn of(text: &str) -> Self {
        let cut = text.floor_char_boundary(Self::MAX);
        Self { text: text[..cut].into(), is_cut: cut < text.len() }
    }

    fn whole(&self) -> Option<&str> {
        (!self.is_cut).then_some(&*self.text)
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_cut { "…" } else { "" })
    }
}

impl ApprovalRequest {
    pub fn new(subject: &Subject<'_>, arguments: &str, (rule, by): (Rule, Arc<str>)) -> Self {
        Self {
            tool: subject.tool.into(),
            subject: subject.text.map(Excerpt::of),
            is_shell: subject.is_shell,
            arguments: Excerpt::of(arguments),
            rule,
            by,
            is_unattended: false,
        }
    }

    /// Whether a rule surely speaks of this call. Of a subject that is cut only a rule on the whole
    /// tool does: what is left out may be anything.
    fn is_allowed_by(&self, rule: &Rule) -> bool {
        let text = match &self.subject {
            Some(subject) if subject.is_cut => None,
            subject => subject.as_ref().map(|subject| &*subject.text),
        };
        rule.allows(&Subject { tool: &self.tool, text, is_shell: self.is_shell })
    }
}

/// `run_process(cargo publish)`, as rules are written.
impl fmt::Display for ApprovalRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => write!(f, "{}({subject})", self.tool),
            None => write!(f, "{} {}", self.tool, self.arguments),
        }
    }
}

/// What whoever may decide says to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    AllowOnce,
    /// This and, from now on in this tree, what the rule allows; without a rule, the very same.
    AllowAlways {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<Rule>,
    },
    Deny {
        reason: Arc<str>,
    },
}

/// What is said where nobody is there to be asked.
const UNATTENDED: &str = "nobody is there to be asked, for the run is unattended. In a terminal, or \
    detached and with `brigade approve`, it would be asked about; what was allowed for good in this \
    session is not asked about again";

impl Verdict {
    pub(crate) fn unattended() -> Self {
        Self::Deny { reason: UNATTENDED.into() }
    }

    pub(crate) fn check(&self, asked: &ApprovalRequest) -> Result<(), Refusal> {
        match self {
            Self::AllowOnce => Ok(()),
            Self::AllowAlways { rule } => Covers::of(asked, rule.as_ref()).map(|_| ()),
            Self::Deny { reason } if reason.len() > REASON_MAX => {
                Err(Refusal::invalid(format!("the reason is longer than {REASON_MAX} bytes")))
            }
            Self::Deny { .. } => Ok(()),
        }
    }
}

impl fmt::Display for Verdict {
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
pub struct Grant {
    /// To revoke it by. Never given out twice.
    pub no: u32,
    pub covers: Covers,
    /// The client that gave it, for what it started itself. The operator's is for the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientName>,
    pub at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    Rule(Rule),
    /// Calls with this very subject.
    Subject {
        tool: Arc<str>,
        text: Arc<str>,
    },
    /// Calls with these very arguments, of a tool whose calls have no subject.
    Arguments {
        tool: Arc<str>,
        json: Arc<str>,
    },
}

impl Covers {
    /// What is allowed along with a call: the rule, if it speaks of the call, or just its like.
    pub(crate) fn of(asked: &ApprovalRequest, rule: Option<&Rule>) -> Result<Self, Refusal> {
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
        let (what, tool) = (asked.subject.as_ref().unwrap_or(&asked.arguments), &asked.tool);
        let Some(text) = what.whole() else {
            return Err(Refusal::invalid(format!(
                "the call is too long to be known again; allow it once, or give a rule, such as `{tool}`"
            )));
        };
        let (tool, text) = (tool.clone(), text.into());
        Ok(match asked.subject {
            Some(_) => Self::Subject { tool, text },
            None => Self::Arguments { tool, json: text },
        })
    }

    pub fn includes(&self, asked: &ApprovalRequest) -> bool {
        let is = |excerpt: &Excerpt, text: &str| excerpt.whole() == Some(text);
        match self {
            Self::Rule(rule) => asked.is_allowed_by(rule),
            Self::Subject { tool, text } => {
                *tool == asked.tool && asked.subject.as_ref().is_some_and(|it| is(it, text))
            }
            Self::Arguments { tool, json } => {
                *tool == asked.tool && asked.subject.is_none() && is(&asked.arguments, json)
            }
        }
    }
}

impl fmt::Display for Covers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Subject { tool, text } => write!(f, "{tool}({text}) exactly"),
            Self::Arguments { tool, json } => write!(f, "{tool} {json} exactly"),
        }
    }
}

/// All that was allowed for good in a tree, and how many numbers were given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grants {
    pub last: u32,
    pub all: Arc<[Grant]>,
}

impl Grants {
    pub fn is_unused(&self) -> bool {
        self.last == 0
    }

    pub fn get(&self, no: u32) -> Option<&Grant> {
        self.all.iter().find(|grant| grant.no == no)
    }

    pub(crate) fn add(&mut self, grant: &Grant) {
        self.last = self.last.max(grant.no);
        self.all = self.all.iter().chain([grant]).cloned().collect();
    }

    pub(crate) fn remove(&mut self, no: u32) {
        self.all = self.all.iter().filter(|grant| grant.no != no).cloned().collect();
    }
}
