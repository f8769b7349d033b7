//! Sends spans: OTLP over HTTP as protobuf, from a bounded queue, on its own thread. Without a
//! reachable collector only spans are lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use brigade_model::error_details::render_error_chain;
use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor};
use tokio::runtime::Handle;

use super::TelemetryConfig;
use crate::server_url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response of a collector.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";

/// Builds the processor for the endpoint of the environment or the configuration; `None` without
/// one. Must be called within a runtime, whose reactor it uses.
pub(super) fn build_span_processor(
    config: &TelemetryConfig,
) -> Result<Option<BatchSpanProcessor>, String> {
    if is_disabled() {
        return Ok(None);
    }
    let named = env_variable(TRACES_ENDPOINT).or_else(|| env_variable(ENDPOINT));
    let Some(endpoint) = named.as_ref().or(config.endpoint.as_ref()) else { return Ok(None) };
    let protocol = env_variable(TRACES_PROTOCOL).or_else(|| env_variable(PROTOCOL));
    if protocol.as_deref() == Some("grpc") {
        return Err("grpc is not supported; use http/protobuf".to_owned());
    }
    let sender = OtlpHttpClient::for_endpoint(endpoint).map_err(|error| error.to_string())?;
    let mut builder = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(sender);
    // The exporter reads the environment itself.
    if named.is_none() {
        builder = builder.with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')));
    }
    let exporter = builder.build().map_err(|error| error.to_string())?;
    let mut processor = BatchSpanProcessor::builder(exporter).build();
    processor.set_resource(&otel_resource());
    Ok(Some(processor))
}

fn is_disabled() -> bool {
    let disabled =
        env_variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    disabled || env_variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
}

fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns our resource attributes, with those of `OTEL_RESOURCE_ATTRIBUTES` and
/// `OTEL_SERVICE_NAME`.
fn otel_resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    match env_variable("OTEL_SERVICE_NAME") {
        Some(_) => resource.build(),
        None => resource.with_service_name("brigade").build(),
    }
}

/// An HTTP client on the daemon's reactor, for a thread without one.
#[derive(Debug)]
struct OtlpHttpClient {
    client: reqwest::Client,
    runtime: Handle,
    /// The log says that the collector accepts no spans.
    has_warned: AtomicBool,
}

impl OtlpHttpClient {
    fn for_endpoint(endpoint: &str) -> Result<Self, reqwest::Error> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have installed it first.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(RESPONSE_TIMEOUT)
            // A redirect would forward the headers, which may contain keys.
            .redirect(reqwest::redirect::Policy::none())
            .http1_only();
        let url = reqwest::Url::parse(endpoint).ok();
        if url.as_ref().is_some_and(server_url::is_loopback) {
            // A proxy cannot reach this machine.
            client = client.no_proxy();
        }
        if url.is_some_and(|url| url.scheme() == "http") {
            // Loading the system's certificates takes time, and plain HTTP needs none.
            client = client.tls_certs_only([]);
        }
        Ok(Self {
            client: client.build()?,
            runtime: Handle::current(),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Logs once that the collector accepts no spans, and once that it does again.
    fn log_state_change(&self, problem: Option<String>) {
        let had_warned = self.has_warned.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !had_warned => {
                tracing::warn!(problem, "the collector does not accept spans; they are dropped");
            }
            None if had_warned => tracing::info!("the collector accepts spans again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let sent = self.runtime.spawn(execute_request(self.client.clone(), request)).await?;
        self.log_state_change(match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(render_error_chain(&**error)),
        });
        sent
    }
}

async fn execute_request(
    client: reqwest::Client,
    request: reqwest::Request,
) -> Result<Response<Bytes>, HttpError> {
    let mut response = client.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > RESPONSE_BYTES_MAX {
            return Err("the collector's response is too long".into());
        }
        body.extend_from_slice(&piece);
    }
    let mut reply = Response::builder().status(response.status()).body(Bytes::from(body))?;
    *reply.headers_mut() = response.headers().clone();
    Ok(reply)
}
