//! Opens a connection of the daemon's protocol to a server, over HTTP.
//!
//! ```text
//! GET /v1/connection ─ Upgrade: brigade ─> 101: the stream carries frames
//!                                       └> another status: the problem as a person reads it
//! ```

use std::error::Error as _;
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_protocol::ClientError;
use brigade_protocol::http::ProblemBody;
use brigade_protocol::remote_daemon::{DaemonStream, OpeningStream, StreamOpener};
use reqwest::header::{AUTHORIZATION, CONNECTION, HeaderValue, LOCATION, UPGRADE};
use reqwest::{Client, Response, StatusCode};

use crate::server_token::TokenSource;
use crate::server_url::ServerUrl;

/// The value of the header `Upgrade`.
const UPGRADE_PROTOCOL: &str = "brigade";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A length over that of every problem.
const PROBLEM_BYTES_MAX: usize = 64 * 1024;

/// A server with HTTP, and the token for it.
#[derive(Debug)]
pub(crate) struct HttpServer {
    url: ServerUrl,
    token: TokenSource,
}

impl HttpServer {
    pub(crate) fn new(url: ServerUrl, token: TokenSource) -> Self {
        Self { url, token }
    }

    async fn open(&self) -> Result<Box<dyn DaemonStream>, ClientError> {
        let token = self.token.read().map_err(|problem| self.not_served(&problem))?;
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut bearer = bearer.map_err(|_| self.not_served("the token is no header"))?;
        bearer.set_sensitive(true);
        let no_client = |error| self.not_served(&render_root_cause(&error));
        let client = self.build_client().map_err(no_client)?;
        let request = client
            .get(self.url.connection_url().clone())
            .header(AUTHORIZATION, bearer)
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, UPGRADE_PROTOCOL);
        let response = request.send().await.map_err(|error| self.explain_error(error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.explain_response(response).await);
        }
        let protocol = response.headers().get(UPGRADE);
        if protocol.is_none_or(|protocol| protocol != UPGRADE_PROTOCOL) {
            return Err(
                self.not_served("it switches to another protocol, and is no Brigade server")
            );
        }
        let stream = response.upgrade().await.map_err(|error| self.explain_error(error))?;
        Ok(Box::new(stream))
    }

    /// Builds a client. The defaults have TCP keep-alives, without which a wait would not notice
    /// that the server was lost.
    fn build_client(&self) -> reqwest::Result<Client> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have installed it first.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect would send the token to its target.
            .redirect(reqwest::redirect::Policy::none())
            .http1_only();
        if self.url.is_loopback() {
            // A proxy cannot reach this machine.
            client = client.no_proxy();
        }
        if !self.url.has_tls() {
            // Loading the system's certificates takes time, and plain HTTP needs none.
            client = client.tls_certs_only([]);
        }
        client.build()
    }

    /// Explains why there is no response. A certificate does not become valid by trying again.
    fn explain_error(&self, error: reqwest::Error) -> ClientError {
        let error = error.without_url();
        match find_tls_error(&error) {
            Some(rustls::Error::InvalidCertificate(problem)) => self.not_served(&format!(
                "its certificate is refused: {problem}; for a private authority, name its \
                 certificate file in SSL_CERT_FILE"
            )),
            Some(rustls::Error::InvalidMessage(_)) => {
                self.not_served("it does not speak TLS; is its URL http://?")
            }
            _ => self.no_server(&render_root_cause(&error)),
        }
    }

    /// Explains a response other than the switch of protocols.
    async fn explain_response(&self, response: Response) -> ClientError {
        let status = response.status();
        if status.is_redirection() {
            let target = response.headers().get(LOCATION);
            let target = target.and_then(|target| target.to_str().ok()).unwrap_or("another URL");
            return self.not_served(&format!("it redirects to {target}; name the URL behind that"));
        }
        let problem = read_problem(response).await;
        let detail = problem.map(|problem| problem.detail);
        match (status, detail) {
            (StatusCode::UNAUTHORIZED, Some(detail)) => self.not_served(&format!(
                "{detail}; `brigade token add NAME` on that machine makes one"
            )),
            (StatusCode::NOT_FOUND, Some(_)) => self.not_served(
                "it is an older version, which serves no command line of another machine; upgrade it",
            ),
            (StatusCode::MISDIRECTED_REQUEST, Some(detail)) => self.not_served(&format!(
                "{detail}; name the host as `brigade serve --host` does, or add it there"
            )),
            (StatusCode::TOO_MANY_REQUESTS, Some(detail)) => {
                let name = self.url.as_str();
                Refusal::limit(format!("{name}: {detail}")).into()
            }
            (status, detail) if status.is_server_error() => {
                let detail = detail.unwrap_or_else(|| format!("it answers {status}"));
                self.no_server(&detail)
            }
            (_, Some(detail)) => self.not_served(&detail),
            (status, None) => self.not_served(&format!(
                "it answers {status} and is no Brigade server; name the URL that `brigade serve` prints"
            )),
        }
    }

    fn not_served(&self, problem: &str) -> ClientError {
        ClientError::NotServed(format!("{}: {problem}", self.url.as_str()))
    }

    fn no_server(&self, problem: &str) -> ClientError {
        ClientError::NoServer(format!("{}: {problem}", self.url.as_str()))
    }
}

impl StreamOpener for HttpServer {
    fn server_name(&self) -> &str {
        self.url.as_str()
    }

    fn open_stream(&self) -> OpeningStream<'_> {
        Box::pin(self.open())
    }
}

/// Reads the problem in a response. Other programs than Brigade's server send none.
async fn read_problem(mut response: Response) -> Option<ProblemBody> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        if body.len() + piece.len() > PROBLEM_BYTES_MAX {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    serde_json::from_slice(&body).ok()
}

/// Returns the error of TLS among the causes.
fn find_tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        cause = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Renders the innermost cause, which says most, in place of the whole chain.
fn render_root_cause(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
