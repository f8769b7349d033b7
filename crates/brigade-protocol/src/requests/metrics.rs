//! `metrics`: returns the daemon's metrics.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

/// Asks for the counters since the daemon's start and for the current gauges.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MetricsRequest {}

impl Call for MetricsRequest {
    /// The metrics in the text format of Prometheus.
    type Reply = String;
    type Item = NoItems;
}
