//! `metrics`: returns the daemon's metrics.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

/// Asks for the counters since the daemon's start and for the current gauges.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MetricsRequest {}

impl Call for MetricsRequest {
    /// The metrics in the text format of Prometheus.
    type Reply = String;
    type Item = NoItems;

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
