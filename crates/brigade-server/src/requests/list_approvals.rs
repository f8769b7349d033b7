//! `list_approvals`: lists pending approvals and grants.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{
    GrantItem, ListApprovalsReply, ListApprovalsRequest, PendingApprovalItem,
};
use brigade_protocol::task_info::ApprovalInfo;
use brigade_runtime::{PendingApproval, Session};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

pub(crate) fn new_approval_item(session: &str, pending: PendingApproval) -> PendingApprovalItem {
    PendingApprovalItem {
        session: session.to_owned(),
        address: pending.row.address(pending.task),
        name: pending.row.name.as_ref().map(ToString::to_string),
        top_task: pending.top_task.to_string(),
        approval: ApprovalInfo::of(
            pending.task,
            pending.call,
            &pending.request,
            pending.requested_at,
        ),
    }
}

impl RequestHandler for ListApprovalsRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ListApprovalsReply, Refusal> {
        let mut all = ListApprovalsReply::default();
        for session in context.sessions(self.session.as_deref()).await? {
            add_session(&mut all, &session);
        }
        Ok(all)
    }
}

fn add_session(all: &mut ListApprovalsReply, session: &Session) {
    let name = session.row().name.to_string();
    let pending = session.approvals().into_iter();
    all.pending.extend(pending.map(|pending| new_approval_item(&name, pending)));
    all.grants.extend(session.grants().into_iter().map(|grant| GrantItem {
        session: name.clone(),
        grant: grant.no,
        rule: grant.scope.to_string(),
        directory: grant.directory.map(|directory| directory.to_string()),
        client: grant.client.map(|client| client.to_string()),
        granted_at: grant.granted_at.0,
    }));
}
