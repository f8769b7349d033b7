//! One bound address and its connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::ProblemBody;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection_slots::ConnectionSlots;
use super::served_connection::ServedConnection;

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
        let connection = ServedConnection { app, slot, shutdown_token };
        self.tracker.spawn(async move {
            if let Err(error) = connection.serve(stream, tls).await {
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
