//! What leaves the daemon for whoever watches it: spans over OTLP, and counts as Prometheus text.
//!
//! The rest of Brigade knows `tracing` and `metrics` only. [`spans`] makes spans of the conventions of
//! what `tracing` reports, [`otlp`] sends them.

mod otlp;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::telemetry::TARGET;
use brigade_runtime::runtime_metrics;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor};
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::exit_code::CliError;
use spans::SpanLayer;

/// What is logged unless BRIGADE_LOG says otherwise. The library that speaks MCP logs what servers say,
/// which may be much and may be secret.
const DEFAULT_LOG_FILTER: &str = "info,rmcp=error";

/// How long leaving waits for a collector to take the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How often what was measured is summed up while nobody asks.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);
/// In seconds: from a commit in memory to a disk that has to be waited for.
const COMMIT_SECONDS_BUCKETS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// Of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// Where spans are sent, as the base of OTLP over HTTP: `http://localhost:4318`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
}

impl TelemetryConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What was turned on.
#[derive(Debug)]
pub(crate) struct Telemetry {
    exporter: Option<Arc<BatchSpanProcessor>>,
    metrics: PrometheusHandle,
}

impl Telemetry {
    /// Logs to standard error, counts, and sends spans if that was asked for. Once per process.
    pub(crate) fn start(config: &TelemetryConfig) -> Result<Self, CliError> {
        let filter = EnvFilter::try_from_env("BRIGADE_LOG")
            .unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG_FILTER));
        // Spans are for collectors; without one nobody is to pay for them.
        let log = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
        let log = log.with_filter(filter.and(filter_fn(|about| about.target() != TARGET)));
        let exporter = otlp::build_span_processor(config).map(|found| found.map(Arc::new));
        let sent = exporter.as_ref().ok().and_then(Option::as_ref).map(|exporter| {
            let is_ours = filter_fn(|about| about.target() == TARGET && about.is_span());
            SpanLayer::new(exporter.clone()).with_filter(is_ours)
        });
        tracing_subscriber::registry().with(log).with(sent).init();
        let exporter = exporter.unwrap_or_else(|problem| {
            // Work goes on without anybody who watches.
            tracing::warn!(problem, "spans are not sent");
            None
        });
        Ok(Self { exporter, metrics: install_recorder()? })
    }

    /// What is counted, as Prometheus reads it.
    pub(crate) fn metrics_renderer(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let counts = self.metrics.clone();
        move || counts.render()
    }

    /// Keeps what was measured from piling up. Never returns.
    pub(crate) fn run_upkeep(&self) -> impl Future<Output = ()> + Send + 'static {
        let counts = self.metrics.clone();
        async move {
            loop {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
                counts.run_upkeep();
            }
        }
    }

    /// Sends what is left, as long as that does not take long.
    pub(crate) async fn flush(self) {
        let Some(exporter) = self.exporter else { return };
        let last = move || exporter.shutdown_with_timeout(FLUSH_TIMEOUT);
        match tokio::task::spawn_blocking(last).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans were not sent"),
            Err(error) => tracing::warn!(%error, "the last spans were not sent"),
        }
    }
}

fn install_recorder() -> Result<PrometheusHandle, CliError> {
    let commits = Matcher::Full(runtime_metrics::COMMIT_SECONDS.to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(commits, &COMMIT_SECONDS_BUCKETS);
    let recorder = builder.map_err(|error| CliError::internal(error.to_string()))?.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)
        .map_err(|error| CliError::internal(error.to_string()))?;
    Ok(handle)
}
