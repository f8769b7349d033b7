//! What waits for leave, and what was allowed for good, as whoever may decide sees it.

use std::sync::Arc;

use brigade_model::address::TaskRef;
use brigade_model::approval::{
    ApprovalGrant, ApprovalRequest, ApprovalVerdict, CallCard, CallDigest,
};
use brigade_model::call::Condition;
use brigade_model::command::{Caller, Command, GivenAnswer, RevokeCommand};
use brigade_model::ids::{CallIndex, ClientIdentity, Owner, TaskNo, Time};
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;

use crate::session::Session;

/// A call that waits for somebody to say yes or no.
#[derive(Clone, Debug)]
pub struct PendingApproval {
    pub task: TaskNo,
    pub row: Arc<TaskRow>,
    /// The top-level task that it is below, or is.
    pub top_task: TaskNo,
    pub call: CallIndex,
    pub request: Arc<ApprovalRequest>,
    pub requested_at: Time,
}

impl PendingApproval {
    pub fn digest(&self) -> CallDigest {
        CallDigest::of(self.task, self.call, &self.request)
    }

    /// All of the call, for whoever decides.
    pub fn card(&self) -> CallCard {
        let ApprovalRequest { tool, arguments, directory, .. } = &*self.request;
        CallCard::of(tool, &arguments.text, directory.as_deref())
    }
}

impl Session {
    /// Says yes or no to a call that waits for leave. Only the operator and, for what it started, a
    /// client may. The call may be left out while the task waits for one approval only.
    pub async fn approve(
        &self,
        task: impl Into<TaskRef>,
        call: Option<CallIndex>,
        verdict: ApprovalVerdict,
    ) -> Result<(), Refusal> {
        self.answer_call(task, call, GivenAnswer::Verdict(verdict)).await
    }

    /// The same for exactly the call that somebody was shown, by its digest: if another one waits there
    /// by now, it is refused.
    pub async fn approve_shown(
        &self,
        task: impl Into<TaskRef>,
        call: Option<CallIndex>,
        (shown, verdict): (CallDigest, ApprovalVerdict),
    ) -> Result<(), Refusal> {
        self.answer_call(task, call, GivenAnswer::ShownVerdict { shown, verdict }).await
    }

    /// All calls that this caller may decide about, in the order of their tasks.
    pub fn approvals(&self) -> Vec<PendingApproval> {
        let client = match &self.caller {
            Caller::Operator => None,
            Caller::Client(client) => Some(&client.identity.name),
            Caller::Task { .. } => return Vec::new(),
        };
        let rows = self.view.list(None);
        let asking = rows.iter().flat_map(|(no, row)| {
            row.parked_calls.iter().filter_map(move |call| match &call.condition {
                Condition::Approval { request, since } => {
                    Some((*no, row, (call.index, request, *since)))
                }
                _ => None,
            })
        });
        let pending = asking.map(|(task, row, (call, request, since))| {
            let (top, started_by) = self.find_top_task(task, row);
            let (row, request) = (row.clone(), request.clone());
            (
                started_by,
                PendingApproval { task, row, top_task: top, call, request, requested_at: since },
            )
        });
        let own =
            pending.filter(|(by, _)| client.is_none() || by.as_ref().map(|by| &by.name) == client);
        own.map(|(_, pending)| pending).collect()
    }

    /// What was allowed for good: the operator sees all of it, a client its own.
    pub fn grants(&self) -> Vec<ApprovalGrant> {
        let all = self.row().grants.all;
        let seen = |grant: &&ApprovalGrant| match &self.caller {
            Caller::Operator => true,
            Caller::Client(client) => grant.client.as_ref() == Some(&client.identity.name),
            Caller::Task { .. } => false,
        };
        all.iter().filter(seen).cloned().collect()
    }

    /// Takes back what was allowed for good.
    pub async fn revoke(&self, grant: u32) -> Result<(), Refusal> {
        let revoke = RevokeCommand { caller: self.caller.clone(), grant };
        self.submit(Command::Revoke(revoke)).await.map(|_| ())
    }

    /// The top-level task that this one is below, and the client that started what it came of.
    fn find_top_task(&self, no: TaskNo, row: &Arc<TaskRow>) -> (TaskNo, Option<ClientIdentity>) {
        let (mut top, mut here) = (no, row.clone());
        while let Owner::Task(above) = here.owner
            && let Some(row) = self.view.get(above)
        {
            (top, here) = (above, row);
        }
        while let Owner::Task(above) = here.limit_holder()
            && let Some(row) = self.view.get(above)
        {
            here = row;
        }
        (top, here.client.clone())
    }
}
