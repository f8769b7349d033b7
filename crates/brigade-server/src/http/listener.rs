//! One bound address and its connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::write_timeout::WriteTimeout;

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

/// The connections of all listeners.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    tracker: TaskTracker,
    slots: Arc<Semaphore>,
    slot_count: usize,
    shutdown_token: CancellationToken,
}

impl Connections {
    pub(crate) fn new(connections_max: usize, shutdown_token: CancellationToken) -> Self {
        let slots = Arc::new(Semaphore::new(connections_max));
        let slot_count = connections_max;
        Self { tracker: TaskTracker::new(), slots, slot_count, shutdown_token }
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
        // A connection over the limit is closed. Those that send nothing make way after a timeout.
        let Ok(slot) = self.slots.clone().try_acquire_owned() else { return };
        let shutdown_token = self.shutdown_token.clone();
        self.tracker.spawn(async move {
            let _ = stream.set_nodelay(true);
            let served = match tls {
                None => serve_connection(stream, app, shutdown_token).await,
                Some(tls) => serve_tls(stream, tls, app, shutdown_token).await,
            };
            if let Err(error) = served {
                tracing::debug!(%error, "a connection failed");
            }
            drop(slot);
        });
    }

    pub(crate) fn has_open(&self) -> bool {
        self.slots.available_permits() < self.slot_count
    }

    /// Waits until all connections have ended.
    pub(crate) async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

async fn serve_tls(
    stream: TcpStream,
    tls: TlsAcceptor,
    app: Router,
    shutdown_token: CancellationToken,
) -> io::Result<()> {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
    let stream = tokio::select! {
        stream = handshake => stream??,
        () = shutdown_token.cancelled() => return Ok(()),
    };
    serve_connection(stream, app, shutdown_token).await
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    app: Router,
    shutdown_token: CancellationToken,
) -> io::Result<()> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream)), TowerToHyperService::new(app));
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = shutdown_token.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(SHUTDOWN_GRACE, connection).await {
                Ok(served) => served,
                Err(_) => Ok(()),
            }
        }
    };
    served.map_err(io::Error::other)
}
