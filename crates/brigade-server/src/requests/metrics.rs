//! What is counted.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

/// What happened since the daemon started, and what there is at this moment.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MetricsRequest {}

impl Call for MetricsRequest {
    /// As Prometheus reads it.
    type Reply = String;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<String, Refusal> {
        desk.require_operator("see what all sessions came to")?;
        let Some(counts) = desk.daemon.metrics_renderer.get() else {
            return Err(Refusal::unavailable("nothing is counted here"));
        };
        desk.runtime().record_gauges();
        Ok((counts.0)())
    }
}
