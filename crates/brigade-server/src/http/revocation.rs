//! The revocation of a token, which ends everything that was opened with it.

use brigade_model::refusal::Refusal;

use super::access_token::{self, AccessToken};
use super::mcp_sessions::remove_sessions_of;
use super::open_requests::OpenRequests;
use crate::request_context::DaemonState;

impl DaemonState {
    /// Revokes a token, and ends its open requests and its MCP sessions. The request that revokes its
    /// own token gets its answer, since it is a change that has begun.
    pub(crate) async fn revoke_token(&self, id: &str) -> Result<AccessToken, Refusal> {
        let ending = EndRequestsOnDrop { requests: &self.http.open_requests, token: id };
        let token = access_token::revoke_token(&self.runtime, id).await?;
        // A session that is stored after the list is read finds out that its token has ended.
        drop(ending);
        for session in remove_sessions_of(&self.runtime, &token.id).await? {
            self.mcp_service.close_session(&session).await;
        }
        Ok(token)
    }
}

/// A guard that ends the requests of a token. A revocation whose caller disconnects may have removed
/// the token's record already.
struct EndRequestsOnDrop<'a> {
    requests: &'a OpenRequests,
    token: &'a str,
}

impl Drop for EndRequestsOnDrop<'_> {
    fn drop(&mut self) {
        self.requests.revoke(self.token);
    }
}
