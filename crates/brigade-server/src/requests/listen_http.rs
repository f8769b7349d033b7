//! `listen_http`: makes the daemon listen for HTTP on the loopback interface.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{ListenHttpReply, ListenHttpRequest};

use crate::http::listeners::ListenOptions;
use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListenHttpRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ListenHttpReply, Refusal> {
        context.require_operator("open a listener")?;
        let daemon = &context.daemon;
        let url = daemon.http_listeners.listen(daemon, ListenOptions::dashboard()).await?;
        let listeners = daemon.http_listeners.describe().await;
        let public_url = listeners.into_iter().find_map(|listener| listener.public_url);
        Ok(ListenHttpReply { public_url: public_url.filter(|public| *public != url), url })
    }
}
