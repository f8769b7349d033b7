//! `list_tokens`: lists the tokens of the HTTP API.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::http::TokenBody;
use brigade_protocol::requests::ListTokensRequest;

use crate::http::access_token::list_tokens;
use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListTokensRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<TokenBody>, Refusal> {
        context.require_operator("list tokens")?;
        let tokens = list_tokens(context.runtime()).await?;
        Ok(tokens.iter().map(|token| token.body()).collect())
    }
}
