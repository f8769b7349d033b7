//! Pending approvals and stored grants, as seen by those who may decide them.

use std::sync::Arc;

use brigade_model::address::TaskRef;
use brigade_model::approval::{
    ApprovalGrant, ApprovalRequest, ApprovalVerdict, CallCard, CallDigest,
};
use brigade_model::call::Condition;
use brigade_model::command::{Caller, Command, GivenAnswer, RevokeCommand};
use brigade_model::ids::{CallIndex, ClientIdentity, Owner, TaskNo, Time};
use brigade_model::refusal::Refusal;
use brigade_model::task::{StoredTask, TaskRow};

use crate::session::Session;

/// A pending approval of one tool call.
#[derive(Clone, Debug)]
pub struct PendingApproval {
    pub task: TaskNo,
    pub row: Arc<TaskRow>,
    /// The top-level task of its subtree, which may be the task itself.
    pub top_task: TaskNo,
    pub call: CallIndex,
    pub request: Arc<ApprovalRequest>,
    pub requested_at: Time,
}

impl PendingApproval {
    pub fn digest(&self) -> CallDigest {
        CallDigest::of(self.task, self.call, &self.request)
    }

    /// Returns the whole call, for the person who decides.
    pub fn card(&self) -> CallCard {
        let ApprovalRequest { tool, arguments, directory, .. } = &*self.request;
        CallCard::of(tool, &arguments.text, directory.as_deref())
    }
}

impl Session {
    /// Allows or denies a call that needs approval. The operator may decide every call, a client
    /// those of tasks it started. The call may be omitted while the task waits for one approval
    /// only.
    pub async fn approve(
        &self,
        task: impl Into<TaskRef>,
        call: Option<CallIndex>,
        verdict: ApprovalVerdict,
    ) -> Result<(), Refusal> {
        self.answer_call(task, call, GivenAnswer::Verdict(verdict)).await
    }

    /// Allows or denies exactly the call that was shown, by its digest. Refuses if another call
    /// waits there by now.
    pub async fn approve_shown(
        &self,
        task: impl Into<TaskRef>,
        call: Option<CallIndex>,
        shown: CallDigest,
        verdict: ApprovalVerdict,
    ) -> Result<(), Refusal> {
        self.answer_call(task, call, GivenAnswer::ShownVerdict { shown, verdict }).await
    }

    /// Returns all calls that this caller may decide, in the order of their tasks.
    pub fn approvals(&self) -> Vec<PendingApproval> {
        let client = match &self.caller {
            Caller::Operator => None,
            Caller::Client(client) => Some(&client.identity.name),
            Caller::Task { .. } => return Vec::new(),
        };
        let rows = self.view.list(None);
        let asking = rows.iter().flat_map(|StoredTask { no, row }| {
            row.parked_calls.iter().filter_map(move |call| match &call.condition {
                Condition::Approval { request, since } => {
                    Some((*no, row, (call.index, request, *since)))
                }
                _ => None,
            })
        });
        let pending = asking.map(|(task, row, (call, request, requested_at))| {
            let top = self.find_top_task(task, row);
            let approval = PendingApproval {
                task,
                row: row.clone(),
                top_task: top.no,
                call,
                request: request.clone(),
                requested_at,
            };
            (top.started_by, approval)
        });
        let own =
            pending.filter(|(by, _)| client.is_none() || by.as_ref().map(|by| &by.name) == client);
        own.map(|(_, approval)| approval).collect()
    }

    /// Returns the stored grants: the operator sees all of them, a client its own.
    pub fn grants(&self) -> Vec<ApprovalGrant> {
        let all = self.row().grants.all;
        let seen = |grant: &&ApprovalGrant| match &self.caller {
            Caller::Operator => true,
            Caller::Client(client) => grant.client.as_ref() == Some(&client.identity.name),
            Caller::Task { .. } => false,
        };
        all.iter().filter(seen).cloned().collect()
    }

    /// Revokes a stored grant.
    pub async fn revoke(&self, grant: u32) -> Result<(), Refusal> {
        let revoke = RevokeCommand { caller: self.caller.clone(), grant };
        self.submit(Command::Revoke(revoke)).await.map(|_| ())
    }

    /// Returns the top-level task of this one's subtree, and the client that started the work.
    fn find_top_task(&self, no: TaskNo, row: &Arc<TaskRow>) -> TopTask {
        let mut top = no;
        let mut here = row.clone();
        while let Owner::Task(above) = here.owner
            && let Some(row) = self.view.get(above)
        {
            top = above;
            here = row;
        }
        while let Owner::Task(above) = here.limit_holder()
            && let Some(row) = self.view.get(above)
        {
            here = row;
        }
        TopTask { no: top, started_by: here.client.clone() }
    }
}

/// A top-level task and the client that started it.
struct TopTask {
    no: TaskNo,
    started_by: Option<ClientIdentity>,
}
