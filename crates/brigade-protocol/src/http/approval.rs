//! Approvals, questions and grants.

use brigade_model::approval::{ApprovalGrant, ApprovalVerdict};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::new_task::parse_rule;
use super::{ApiTime, ApprovalBody, QuestionBody, TaskId};

/// A decision on one tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Verdict)]
pub struct VerdictBody {
    pub verdict: VerdictKind,
    /// The digest of the call that was shown. Required to allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The calls that `allow_always` allows. Without a rule, only the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The reason of a denial, which the agent reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    AllowOnce,
    /// Allows this call, and from now on in this session those of the rule.
    AllowAlways,
    Deny,
}

/// All that waits for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Pending)]
pub struct PendingBody {
    pub approvals: Vec<PendingApprovalBody>,
    pub questions: Vec<PendingQuestionBody>,
    /// The place in the feed at which this was read, or an earlier one.
    pub cursor: String,
}

/// A tool call that needs an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PendingApproval)]
pub struct PendingApprovalBody {
    /// The task that makes the call. A client may decide it also if it cannot see the task.
    pub task: TaskId,
    pub session: String,
    pub session_name: String,
    /// The address of the task within its session.
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The top-level task of its subtree.
    pub top_task: TaskId,
    pub approval: ApprovalBody,
}

/// An open question, or a tool call that the client executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PendingQuestion)]
pub struct PendingQuestionBody {
    pub task: TaskId,
    pub session: String,
    pub session_name: String,
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub question: QuestionBody,
}

/// A grant: calls that are always allowed in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Grant)]
pub struct GrantBody {
    pub session: String,
    pub session_name: String,
    /// The number by which it is revoked.
    pub number: u32,
    /// The allowed calls, as a permission rule.
    pub rule: String,
    /// The directory in which it applies; absent is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The client to whose tasks it applies; absent is all tasks of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    pub granted_at: ApiTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = GrantList)]
pub struct GrantListBody {
    pub items: Vec<GrantBody>,
}

impl VerdictBody {
    /// Returns the verdict, or refuses fields that do not belong to it.
    pub fn parse(&self) -> Result<ApprovalVerdict, Refusal> {
        if self.rule.is_some() && self.verdict != VerdictKind::AllowAlways {
            return Err(Refusal::invalid("only `allow_always` has a rule"));
        }
        if self.reason.is_some() && self.verdict != VerdictKind::Deny {
            return Err(Refusal::invalid("only `deny` has a reason"));
        }
        Ok(match self.verdict {
            VerdictKind::AllowOnce => ApprovalVerdict::AllowOnce,
            VerdictKind::AllowAlways => {
                let rule = self.rule.as_deref().map(parse_rule).transpose()?;
                ApprovalVerdict::AllowAlways { rule }
            }
            VerdictKind::Deny => {
                let reason = self.reason.as_deref().unwrap_or_default();
                ApprovalVerdict::Deny { reason: reason.into() }
            }
        })
    }
}

impl GrantBody {
    pub fn of(session: &super::task::TaskSession, grant: ApprovalGrant) -> Self {
        Self {
            session: session.id.to_string(),
            session_name: session.name.to_string(),
            number: grant.no,
            rule: grant.scope.to_string(),
            directory: grant.directory.map(|directory| directory.to_string()),
            client: grant.client.map(|client| client.to_string()),
            granted_at: grant.granted_at.into(),
        }
    }
}
