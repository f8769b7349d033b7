//! `revoke_token`: revokes a token of the HTTP API.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::http::TokenBody;
use brigade_protocol::requests::RevokeTokenRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for RevokeTokenRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<TokenBody, Refusal> {
        context.require_operator("revoke tokens")?;
        Ok(context.daemon.revoke_token(&self.id).await?.body())
    }
}
