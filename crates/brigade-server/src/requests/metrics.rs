//! What is counted.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

/// What happened since the daemon started, and what there is at this moment.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Metrics {}

impl Ask for Metrics {
    /// As Prometheus reads it.
    type Done = String;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<String, Refusal> {
        desk.operator_only("see what all sessions came to")?;
        let Some(counts) = desk.shared.counts.get() else {
            return Err(Refusal::unavailable("nothing is counted here"));
        };
        desk.runtime().measure();
        Ok((counts.0)())
    }
}
