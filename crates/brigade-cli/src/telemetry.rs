//! Telemetry of the daemon: logs, spans over OTLP, and metrics as Prometheus text.
//!
//! The rest of Brigade uses only `tracing` and `metrics`. [`spans`] converts `tracing` spans to
//! OpenTelemetry spans; [`otlp`] sends them.

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

/// The log filter without BRIGADE_LOG. The MCP library logs texts of servers, which may be long or
/// secret.
pub(crate) const DEFAULT_LOG_FILTER: &str = "info,rmcp=error";
/// The same for a terminal on which a person reads other output.
pub(crate) const TERMINAL_LOG_FILTER: &str = "warn,rmcp=error";

/// The time that a shutdown waits for the collector to take the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval in which recorded values are aggregated.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Upper bounds in seconds, from a commit in memory to a slow disk.
const COMMIT_SECONDS_BUCKETS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// The `[telemetry]` table of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// The base URL of the OTLP collector over HTTP: `http://localhost:4318`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
}

impl TelemetryConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The running telemetry.
#[derive(Debug)]
pub(crate) struct Telemetry {
    exporter: Option<Arc<BatchSpanProcessor>>,
    metrics: PrometheusHandle,
}

impl Telemetry {
    /// Starts logs to stderr, metrics, and spans if an endpoint is set. Once per process.
    pub(crate) fn start(
        config: &TelemetryConfig,
        default_log_filter: &str,
    ) -> Result<Self, CliError> {
        let filter = EnvFilter::try_from_env("BRIGADE_LOG")
            .unwrap_or_else(|_| EnvFilter::new(default_log_filter));
        // Without a collector, spans cost nothing.
        let log = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
        let log = log.with_filter(filter.and(filter_fn(|metadata| metadata.target() != TARGET)));
        let exporter = otlp::build_span_processor(config).map(|found| found.map(Arc::new));
        let span_layer = exporter.as_ref().ok().and_then(Option::as_ref).map(|exporter| {
            let is_ours = filter_fn(|metadata| metadata.target() == TARGET && metadata.is_span());
            SpanLayer::new(exporter.clone()).with_filter(is_ours)
        });
        tracing_subscriber::registry().with(log).with(span_layer).init();
        let exporter = exporter.unwrap_or_else(|problem| {
            // Tasks run without telemetry, too.
            tracing::warn!(problem, "spans are not sent");
            None
        });
        Ok(Self { exporter, metrics: install_recorder()? })
    }

    /// Returns a function that renders the metrics as Prometheus text.
    pub(crate) fn metrics_renderer(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let metrics = self.metrics.clone();
        move || metrics.render()
    }

    /// Aggregates recorded values, so that they use no more memory. Never returns.
    pub(crate) fn run_upkeep(&self) -> impl Future<Output = ()> + Send + 'static {
        let metrics = self.metrics.clone();
        async move {
            loop {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
                metrics.run_upkeep();
            }
        }
    }

    /// Sends the last spans, within a time limit.
    pub(crate) async fn flush(self) {
        let Some(exporter) = self.exporter else { return };
        let shutdown = move || exporter.shutdown_with_timeout(FLUSH_TIMEOUT);
        match tokio::task::spawn_blocking(shutdown).await {
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
