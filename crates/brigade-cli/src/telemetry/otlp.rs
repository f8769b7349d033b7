//! Sending spans: OTLP over HTTP as protobuf, from a bounded queue, by a thread of its own. A collector
//! that is away costs spans and nothing else.

use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor};
use tokio::runtime::Handle;

use super::TelemetryConfig;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Of what a collector answers.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";

/// Sends spans to where the environment or the configuration says; `None` when neither does. Within a
/// runtime, whose reactor it uses.
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
        return Err("OTLP is spoken over HTTP here, and grpc is asked for".to_owned());
    }
    let sender = OtlpHttpClient::for_endpoint(endpoint).map_err(|error| error.to_string())?;
    let mut builder = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(sender);
    // What the environment says is read by the exporter itself.
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
        env_variable("OTEL_SDK_DISABLED").is_some_and(|is| is.eq_ignore_ascii_case("true"));
    disabled || env_variable("OTEL_TRACES_EXPORTER").is_some_and(|which| which == "none")
}

fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Who we are, and whatever `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say.
fn otel_resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    match env_variable("OTEL_SERVICE_NAME") {
        Some(_) => resource.build(),
        None => resource.with_service_name("brigade").build(),
    }
}

/// Speaks HTTP on the daemon's reactor for a thread that has none.
#[derive(Debug)]
struct OtlpHttpClient {
    client: reqwest::Client,
    runtime: Handle,
    /// The log has it that the collector takes nothing.
    has_warned: AtomicBool,
}

impl OtlpHttpClient {
    fn for_endpoint(endpoint: &str) -> Result<Self, reqwest::Error> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have been first, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(RESPONSE_TIMEOUT)
            // A redirect would take the headers along, and there are keys in them.
            .redirect(reqwest::redirect::Policy::none())
            .http1_only();
        let url = reqwest::Url::parse(endpoint).ok();
        if url.as_ref().is_some_and(is_loopback) {
            // A proxy does not know this machine.
            client = client.no_proxy();
        }
        if url.is_some_and(|url| url.scheme() == "http") {
            // The system's certificates take a while to read, and nobody shows one.
            client = client.tls_certs_only([]);
        }
        let (runtime, is_told) = (Handle::current(), AtomicBool::new(false));
        Ok(Self { client: client.build()?, runtime, has_warned: is_told })
    }

    /// Says once that a collector takes nothing, and once that it does again.
    fn log_state_change(&self, problem: Option<String>) {
        let was_told = self.has_warned.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !was_told => {
                tracing::warn!(problem, "the collector does not take spans; they are dropped");
            }
            None if was_told => tracing::info!("the collector takes spans again"),
            _ => {}
        }
    }
}

fn is_loopback(url: &reqwest::Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let sent = self.runtime.spawn(execute_request(self.client.clone(), request)).await?;
        self.log_state_change(match &sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(render_causes(&**error)),
        });
        sent
    }
}

/// An error with its causes.
fn render_causes(error: &(dyn Error + 'static)) -> String {
    let causes =
        std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn execute_request(
    client: reqwest::Client,
    request: reqwest::Request,
) -> Result<Response<Bytes>, HttpError> {
    let mut answer = client.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > RESPONSE_BYTES_MAX {
            return Err("the collector answers at great length".into());
        }
        body.extend_from_slice(&piece);
    }
    let mut response = Response::builder().status(answer.status()).body(Bytes::from(body))?;
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}
