//! `create_token`: creates a token of the HTTP API.

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::http::NewTokenBody;
use brigade_protocol::requests::CreateTokenRequest;

use crate::http::access_token::{NewToken, TokenAccess, create_token};
use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for CreateTokenRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<NewTokenBody, Refusal> {
        context.require_operator("create tokens")?;
        let session = match &self.session {
            Some(name) => Some(context.open_session(name).await?.id()),
            None => None,
        };
        let token = NewToken {
            name: self.name,
            access: TokenAccess::of(self.scope, session)?,
            expires_in: self.expires_in_ms.map(Millis),
            from_login: false,
        };
        Ok(create_token(context.runtime(), token).await?.body())
    }
}
