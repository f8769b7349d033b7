//! `create_login`: creates a code with which a browser logs in.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{CreateLoginReply, CreateLoginRequest};

use crate::http::login_code::create_login_code;
use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for CreateLoginRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<CreateLoginReply, Refusal> {
        context.require_operator("log in a browser")?;
        let login = create_login_code(context.runtime()).await?;
        let code = login.code.as_str().to_owned();
        Ok(CreateLoginReply { code, expires_at: login.expires_at })
    }
}
