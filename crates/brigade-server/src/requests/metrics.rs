//! `metrics`: returns the daemon's metrics.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::MetricsRequest;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for MetricsRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<String, Refusal> {
        context.require_operator("read metrics")?;
        let Some(renderer) = context.daemon.metrics_renderer.get() else {
            return Err(Refusal::unavailable("this daemon records no metrics"));
        };
        context.runtime().record_gauges();
        Ok((renderer.0)())
    }
}
