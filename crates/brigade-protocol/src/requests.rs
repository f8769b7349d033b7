//! The requests of the protocol, one file each: their types and the types of their replies.

use serde::{Deserialize, Serialize};

use crate::frames::OLDEST_PROTOCOL_VERSION;

/// Passes the list of all requests to a macro: module, variant of [`AnyRequest`], and type of each.
#[macro_export]
macro_rules! with_requests {
    ($callback:ident) => {
        $callback! {
            answer::Answer(AnswerRequest),
            approve::Approve(ApproveRequest),
            close_session::CloseSession(CloseSessionRequest),
            create_login::CreateLogin(CreateLoginRequest),
            create_token::CreateToken(CreateTokenRequest),
            drain_node::DrainNode(DrainNodeRequest),
            exec::Exec(ExecRequest),
            follow_output::FollowOutput(FollowOutputRequest),
            follow_text::FollowText(FollowTextRequest),
            grant_trust::GrantTrust(GrantTrustRequest),
            http_status::HttpStatus(HttpStatusRequest),
            inbox::Inbox(InboxRequest),
            list_agents::ListAgents(ListAgentsRequest),
            list_approvals::ListApprovals(ListApprovalsRequest),
            list_nodes::ListNodes(ListNodesRequest),
            list_notifiers::ListNotifiers(ListNotifiersRequest),
            list_programs::ListPrograms(ListProgramsRequest),
            list_sessions::ListSessions(ListSessionsRequest),
            list_subtree::ListSubtree(ListSubtreeRequest),
            list_task_pages::ListTaskPages(ListTaskPagesRequest),
            list_tasks::ListTasks(ListTasksRequest),
            list_tokens::ListTokens(ListTokensRequest),
            list_transcript::ListTranscript(ListTranscriptRequest),
            list_trust::ListTrust(ListTrustRequest),
            listen_http::ListenHttp(ListenHttpRequest),
            metrics::Metrics(MetricsRequest),
            move_session::MoveSession(MoveSessionRequest),
            prune::Prune(PruneRequest),
            read_events::ReadEvents(ReadEventsRequest),
            read_output::ReadOutput(ReadOutputRequest),
            read_transcript::ReadTranscript(ReadTranscriptRequest),
            renew_lease::RenewLease(RenewLeaseRequest),
            require_labels::RequireLabels(RequireLabelsRequest),
            resume::Resume(ResumeRequest),
            revoke_grant::RevokeGrant(RevokeGrantRequest),
            revoke_token::RevokeToken(RevokeTokenRequest),
            revoke_trust::RevokeTrust(RevokeTrustRequest),
            run::Run(RunRequest),
            search_output::SearchOutput(SearchOutputRequest),
            send::Send(SendRequest),
            show_task::ShowTask(ShowTaskRequest),
            show_trust::ShowTrust(ShowTrustRequest),
            shutdown::Shutdown(ShutdownRequest),
            status::Status(StatusRequest),
            stop::Stop(StopRequest),
            wait::Wait(WaitRequest),
            write_input::WriteInput(WriteInputRequest),
        }
    };
}

macro_rules! define_requests {
    ($($module:ident :: $variant:ident($request:ident)),* $(,)?) => {
        $(mod $module; pub use $module::*;)*

        /// Any request, as a frame has it.
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AnyRequest {
            $($variant($request),)*
        }

        $(impl From<$request> for AnyRequest {
            fn from(request: $request) -> Self {
                Self::$variant(request)
            }
        })*
    };
}

with_requests!(define_requests);

impl AnyRequest {
    /// Returns true if a repetition has no further effect.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Self::Exec(exec) => exec.key.is_some(),
            Self::Run(run) => run.key.is_some(),
            Self::Inbox(inbox) => !inbox.mark_read,
            Self::Approve(approve) => approve.call.is_some(),
            Self::Send(send) => send.key.is_some(),
            Self::Answer(_)
            | Self::CreateToken(_)
            | Self::Resume(_)
            | Self::RevokeGrant(_)
            | Self::Shutdown(_) => false,
            _ => true,
        }
    }

    /// Returns true if the request is the same in every version of the protocol.
    pub fn is_version_independent(&self) -> bool {
        matches!(self, Self::Shutdown(_) | Self::Status(_))
    }

    /// Returns the oldest protocol in which a daemon does all that the request asks for.
    pub fn required_protocol(&self) -> u32 {
        match self {
            Self::Send(send) if send.key.is_some() || send.name.is_some() => {
                SendRequest::KEY_AND_NAME_PROTOCOL
            }
            _ => OLDEST_PROTOCOL_VERSION,
        }
    }

    /// Returns true if the reply may take an unlimited time.
    pub fn is_long_running(&self) -> bool {
        matches!(
            self,
            Self::ReadEvents(_)
                | Self::FollowOutput(_)
                | Self::FollowText(_)
                | Self::Wait(_)
                | Self::WriteInput(_)
        )
    }
}
