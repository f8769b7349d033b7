//! One bound address and its connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::ProblemBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection_slots::{ConnectionSlot, ConnectionSlots};
use super::connection_stream::ConnectionStream;

/// The time for the headers of a request to arrive, and for the next request of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a request's line and headers.
pub(crate) const HEADER_BYTES_MAX: usize = 32 * 1024;
/// The time for the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADERS_MAX: usize = 64;
/// The time for open responses to end when the server shuts down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// The pause after a failed accept: most likely there are no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The number of clients over the limit that are told so at once. Others are only disconnected.
const REFUSALS_MAX: usize = 64;
/// The time for a client to read that it is over the limit.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The connections of all listeners.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    tracker: TaskTracker,
    slots: ConnectionSlots,
    refusal_slots: Arc<Semaphore>,
    shutdown_token: CancellationToken,
}

impl Connections {
    pub(crate) fn new(connections_max: usize, shutdown_token: CancellationToken) -> Self {
        let slots = ConnectionSlots::new(connections_max);
        let refusal_slots = Arc::new(Semaphore::new(REFUSALS_MAX));
        Self { tracker: TaskTracker::new(), slots, refusal_slots, shutdown_token }
    }

    /// Serves a listener until the shutdown.
    pub(crate) fn serve(&self, listener: TcpListener, tls: Option<TlsAcceptor>, app: Router) {
        let connections = self.clone();
        self.tracker.spawn(async move {
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => {
                            connections.serve_stream(stream, tls.clone(), app.clone());
                        }
                        Err(error) => {
                            tracing::warn!(%error, "accepting a connection failed");
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                        }
                    },
                    () = connections.shutdown_token.cancelled() => return,
                }
            }
        });
    }

    fn serve_stream(&self, stream: TcpStream, tls: Option<TlsAcceptor>, app: Router) {
        let Some(slot) = self.slots.acquire() else {
            // A client with TLS would have to be given a handshake first.
            if tls.is_none() {
                self.refuse_stream(stream);
            }
            return;
        };
        let shutdown_token = self.shutdown_token.clone();
        self.tracker.spawn(async move {
            let is_readable = tokio::select! {
                is_readable = wait_for_bytes(&stream) => is_readable,
                () = slot.evicted() => false,
                () = shutdown_token.cancelled() => false,
            };
            if !is_readable {
                return;
            }
            // The state of a connection is large, and only those that have sent something need it.
            let connection = ServedConnection { app, slot, shutdown_token };
            if let Err(error) = Box::pin(connection.serve(stream, tls)).await {
                tracing::debug!(%error, "a connection failed");
            }
        });
    }

    /// Tells a client over the limit to try again, and disconnects it.
    fn refuse_stream(&self, stream: TcpStream) {
        let Ok(slot) = self.refusal_slots.clone().try_acquire_owned() else { return };
        self.tracker.spawn(async move {
            // A client that does not read is disconnected without an answer.
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, write_refusal(stream)).await;
            drop(slot);
        });
    }

    pub(crate) fn has_open(&self) -> bool {
        self.slots.has_open()
    }

    /// Waits until all connections have ended.
    pub(crate) async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Writes the answer to a client over the limit, without reading its request.
async fn write_refusal(mut stream: TcpStream) -> io::Result<()> {
    let refusal = Refusal::unavailable("too many connections are open; try again");
    let body = serde_json::to_string(&ProblemBody::from(refusal))?;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n\
         Content-Length: {length}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Unread bytes would reset the connection, and the client might lose the answer.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Waits for the first bytes of a connection, and leaves them there. Returns false if there are none
/// for too long.
async fn wait_for_bytes(stream: &TcpStream) -> bool {
    // The socket may count as readable before it has bytes, so that only a read shows them.
    let mut first_byte = [0];
    let peeked = tokio::time::timeout(HEADER_TIMEOUT, stream.peek(&mut first_byte)).await;
    matches!(peeked, Ok(Ok(1..)))
}

/// A connection that has sent something.
struct ServedConnection {
    app: Router,
    slot: Arc<ConnectionSlot>,
    shutdown_token: CancellationToken,
}

impl ServedConnection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>) -> io::Result<()> {
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.serve_http(stream).await };
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
        let stream = tokio::select! {
            stream = handshake => stream??,
            () = self.slot.evicted() => return Ok(()),
            () = self.shutdown_token.cancelled() => return Ok(()),
        };
        self.serve_http(stream).await
    }

    async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let app = TowerToHyperService::new(self.app);
        let request_slot = self.slot.clone();
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(request_slot.clone());
            app.call(request)
        });
        let shutdown_token = self.shutdown_token.clone();
        let stream = ConnectionStream::new(stream, self.slot.clone(), shutdown_token);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            // No request is in progress, or only one without a token.
            () = self.slot.evicted() => Ok(()),
            () = self.shutdown_token.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(SHUTDOWN_GRACE, connection).await {
                    Ok(served) => served,
                    Err(_) => Ok(()),
                }
            }
        };
        served.map_err(io::Error::other)
    }
}
