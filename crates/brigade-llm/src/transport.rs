//! An HTTP client with limits on time and bytes, which also keeps keys out of URLs.
//!
//! rig-core frames and decodes everything that its HTTP client returns, without limits. This client
//! returns whole lines, and an error for a reply that is too late or too large.

use std::fmt::{self, Debug, Formatter};
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use rig_core::http_client::{self, HttpClientExt, LazyBody, MultipartForm, StreamingResponse};
use tokio::time::timeout;

use crate::error::{ModelError, ModelErrorKind};
use crate::keys::ApiKey;

/// The limits of one call. A reply above a limit is an error. A tool call with too long arguments
/// is only malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportLimits {
    pub connect_timeout: Duration,
    /// The time from the request to the head of the response. A local model may be loaded from disk
    /// in that time.
    pub header_timeout: Duration,
    /// The time between two pieces of the stream. A model may think for minutes without output.
    pub idle_timeout: Duration,
    /// The size of one line of the stream.
    pub line_bytes: usize,
    /// The size of the whole stream.
    pub body_bytes: usize,
    /// The size of the arguments of one tool call.
    pub argument_bytes: usize,
    /// The number of texts, reasoning blocks and calls in one reply.
    pub parts: usize,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(15),
            header_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(300),
            line_bytes: 8 << 20,
            body_bytes: 64 << 20,
            argument_bytes: 1 << 20,
            parts: 1024,
        }
    }
}

/// The maximum size of an error's body. People read it, truncated to a sentence or two.
const ERROR_BYTES: usize = 64 * 1024;

/// The maximum size read beyond the first piece, if it is available without waiting.
const READ_AHEAD: usize = 64 * 1024;

/// The approximate size passed on at once.
const PIECE_BYTES: usize = 4 * 1024;

/// A transport failure, on its way through rig's errors to the code that classifies it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct TransportError {
    pub(crate) kind: ModelErrorKind,
    pub(crate) message: String,
}

#[derive(Clone)]
pub(crate) struct BoundedHttpClient {
    client: reqwest::Client,
    limits: TransportLimits,
    /// The header for the key, for an API where rig would put it into the URL. URLs appear in
    /// errors, logs and proxies. rig gets no key then.
    key_header: Option<KeyHeader>,
}

#[derive(Clone)]
struct KeyHeader {
    name: &'static str,
    value: HeaderValue,
}

impl BoundedHttpClient {
    /// Creates a client for the provider at this URL.
    pub(crate) fn new(limits: TransportLimits, base_url: &Uri) -> Result<Self, ModelError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // If another thread installed one first, that one serves as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut client = reqwest::Client::builder()
            .connect_timeout(limits.connect_timeout)
            // A redirect would send the key to its target.
            .redirect(reqwest::redirect::Policy::none())
            .http1_only();
        if is_loopback(base_url) {
            // A proxy cannot reach this machine's loopback. The system's certificates are slow to
            // read and say nothing about it.
            client = client.no_proxy();
            if base_url.scheme_str() == Some("http") {
                client = client.tls_certs_only([]);
            }
        }
        let client = client
            .build()
            .map_err(|error| ModelError::new(ModelErrorKind::Connection, describe_error(error)))?;
        Ok(Self { client, limits, key_header: None })
    }

    /// Returns a client that sends the key in this header and not in the URL.
    pub(crate) fn with_key_header(&self, name: &'static str, key: &ApiKey) -> Self {
        let key_header = HeaderValue::from_str(key.expose()).ok().map(|mut value| {
            value.set_sensitive(true);
            KeyHeader { name, value }
        });
        Self { key_header, ..self.clone() }
    }

    async fn send_request(
        &self,
        request: Request<Bytes>,
    ) -> Result<reqwest::Response, TransportError> {
        let (mut parts, body) = request.into_parts();
        if let Some(key_header) = &self.key_header {
            parts.uri = strip_key(parts.uri)?;
            parts.headers.insert(key_header.name, key_header.value.clone());
        }
        let sent = self
            .client
            .request(parts.method, parts.uri.to_string())
            .headers(parts.headers)
            .body(body)
            .send();
        match timeout(self.limits.header_timeout, sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_timeout() => {
                Err(timeout_error("no connection", self.limits.connect_timeout))
            }
            Ok(Err(error)) => Err(connection_error(error)),
            Err(_) => Err(timeout_error("no answer", self.limits.header_timeout)),
        }
    }

    async fn open_stream(&self, request: Request<Bytes>) -> http_client::Result<StreamingResponse> {
        let mut response =
            self.send_request(request).await.map_err(http_client::Error::instance)?;
        let status = response.status();
        let headers = response.headers().clone();
        if status != http::StatusCode::OK {
            let body = self.read_error_body(&mut response).await;
            return Err(http_client::Error::non_success_with_details(status, headers, body));
        }
        let mut lines = LineReader::new(response, self.limits);
        let body = async_stream::stream! {
            loop {
                match lines.next().await {
                    Ok(Some(mut bytes)) => while !bytes.is_empty() {
                        yield Ok(take_lines(&mut bytes));
                    },
                    Ok(None) => return,
                    Err(error) => {
                        yield Err(http_client::Error::instance(error));
                        return;
                    }
                }
            }
        };
        let mut opened = Response::new(Box::pin(body) as http_client::BoxedStream);
        *opened.status_mut() = status;
        *opened.headers_mut() = headers;
        Ok(opened)
    }

    /// Reads as much of the body as arrives in time: the status alone determines the error's kind.
    async fn read_error_body(&self, response: &mut reqwest::Response) -> String {
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                let remaining = ERROR_BYTES - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
                if body.len() == ERROR_BYTES {
                    return;
                }
            }
        };
        let _ = timeout(self.limits.idle_timeout.min(Duration::from_secs(10)), read).await;
        String::from_utf8_lossy(&body).into_owned()
    }
}

/// Returns true if the URL's host is this machine.
pub(crate) fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// A reader of a response in whole lines and within the limits. With whole lines, rig's framer
/// never searches the beginning of a long line again.
struct LineReader {
    response: reqwest::Response,
    limits: TransportLimits,
    buffer: BytesMut,
    /// The length of the prefix of `buffer` that contains no line end.
    scanned: usize,
    bytes_read: usize,
    end: StreamEnd,
}

/// The state of a response.
enum StreamEnd {
    Open,
    Complete,
    Failed(TransportError),
}

impl LineReader {
    fn new(response: reqwest::Response, limits: TransportLimits) -> Self {
        Self {
            response,
            limits,
            buffer: BytesMut::new(),
            scanned: 0,
            bytes_read: 0,
            end: StreamEnd::Open,
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, TransportError> {
        loop {
            if let Some(whole) = self.take_whole_lines()? {
                return Ok(Some(whole));
            }
            match &self.end {
                StreamEnd::Failed(error) => return Err(error.clone()),
                StreamEnd::Complete if self.buffer.is_empty() => return Ok(None),
                StreamEnd::Complete => return Ok(Some(self.buffer.split().freeze())),
                StreamEnd::Open => self.read_more().await?,
            }
        }
    }

    async fn read_more(&mut self) -> Result<(), TransportError> {
        let Ok(chunk) = timeout(self.limits.idle_timeout, self.response.chunk()).await else {
            return Err(timeout_error("no further part", self.limits.idle_timeout));
        };
        self.push_chunk(chunk);
        // rig stops reading at the provider's last event. Reading on to the end of the response, if
        // it is available, frees the connection for the next call.
        let enough = self.bytes_read + READ_AHEAD;
        while matches!(self.end, StreamEnd::Open)
            && self.bytes_read < enough
            && let Some(chunk) = self.response.chunk().now_or_never()
        {
            self.push_chunk(chunk);
        }
        Ok(())
    }

    fn push_chunk(&mut self, chunk: reqwest::Result<Option<Bytes>>) {
        match chunk {
            Ok(Some(chunk)) => {
                self.bytes_read += chunk.len();
                self.buffer.extend_from_slice(&chunk);
                if self.bytes_read > self.limits.body_bytes {
                    self.end =
                        StreamEnd::Failed(too_large_error("a reply", self.limits.body_bytes));
                }
            }
            Ok(None) => self.end = StreamEnd::Complete,
            Err(error) => self.end = StreamEnd::Failed(connection_error(error)),
        }
    }

    /// Takes all complete lines from the buffer.
    fn take_whole_lines(&mut self) -> Result<Option<Bytes>, TransportError> {
        let fresh = &self.buffer[self.scanned..];
        let end = fresh.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        let whole = end.map(|end| self.buffer.split_to(self.scanned + end + 1).freeze());
        self.scanned = self.buffer.len();
        let longest = whole.as_deref().map_or(0, longest_line).max(self.scanned);
        match longest > self.limits.line_bytes {
            true => Err(too_large_error("a line", self.limits.line_bytes)),
            false => Ok(whole),
        }
    }
}

/// Takes a few lines from the front. rig's framer moves its whole buffer for each line, so it gets
/// little at once.
fn take_lines(bytes: &mut Bytes) -> Bytes {
    let from = bytes.len().min(PIECE_BYTES);
    let end = bytes[from..].iter().position(|byte| *byte == b'\n');
    bytes.split_to(end.map_or(bytes.len(), |end| from + end + 1))
}

fn longest_line(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0)
}

impl HttpClientExt for BoundedHttpClient {
    fn send<T, U>(
        &self,
        request: Request<T>,
    ) -> impl Future<Output = http_client::Result<Response<LazyBody<U>>>> + Send + 'static
    where
        T: Into<Bytes> + Send,
        U: From<Bytes> + Send + 'static,
    {
        drop(request);
        async { Err(unsupported_error()) }
    }

    fn send_multipart<U>(
        &self,
        request: Request<MultipartForm>,
    ) -> impl Future<Output = http_client::Result<Response<LazyBody<U>>>> + Send + 'static
    where
        U: From<Bytes> + Send + 'static,
    {
        drop(request);
        async { Err(unsupported_error()) }
    }

    fn send_streaming<T>(
        &self,
        request: Request<T>,
    ) -> impl Future<Output = http_client::Result<StreamingResponse>> + Send
    where
        T: Into<Bytes> + Send,
    {
        self.open_stream(request.map(Into::into))
    }
}

/// Returns the error for requests without streaming, which this crate never makes.
fn unsupported_error() -> http_client::Error {
    http_client::Error::instance(TransportError {
        kind: ModelErrorKind::Invalid,
        message: "only streaming requests are supported".into(),
    })
}

impl Debug for BoundedHttpClient {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedHttpClient").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Returns the URL without the `key=` of its query.
fn strip_key(uri: Uri) -> Result<Uri, TransportError> {
    let Some(query) = uri.query() else { return Ok(uri) };
    let rest: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("key=")).collect();
    let path = uri.path();
    let target = match rest.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", rest.join("&")),
    };
    let invalid = || TransportError {
        kind: ModelErrorKind::Invalid,
        message: "the base URL and the model's name do not form a URL".into(),
    };
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(target.parse().map_err(|_| invalid())?);
    Uri::from_parts(parts).map_err(|_| invalid())
}

fn timeout_error(missing: &str, limit: Duration) -> TransportError {
    TransportError {
        kind: ModelErrorKind::Timeout,
        message: format!("{missing} from the provider within {limit:?}"),
    }
}

fn too_large_error(item: &str, limit: usize) -> TransportError {
    TransportError {
        kind: ModelErrorKind::Garbage,
        message: format!("the provider sent {item} of more than {limit} bytes"),
    }
}

fn connection_error(error: reqwest::Error) -> TransportError {
    let kind = match error.is_builder() {
        true => ModelErrorKind::Invalid,
        false => ModelErrorKind::Connection,
    };
    TransportError { kind, message: describe_error(error) }
}

/// Returns the error and its causes, without the URL.
fn describe_error(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text = format!("{text}: {next_text}");
        }
        cause = next.source();
    }
    text
}

/// Returns the wait that the provider asks for, given in seconds or as a date. A date is compared
/// with the response's own date, so our clock does not matter.
pub(crate) fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(millis));
    }
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let then = httpdate::parse_http_date(after).ok()?;
    let now = httpdate::parse_http_date(text("date")?).ok()?;
    Some(then.duration_since(now).unwrap_or_default())
}
