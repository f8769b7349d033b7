//! The requests of one connection.
//!
//! The state of HTTP is large: two buffers and a timer. Only connections with a request have it.
//!
//! ```text
//! held: a socket ─ bytes arrive ─> served: requests and responses ─ end ─> closed
//!    ^                                  │        │
//!    └───── no request for a time ──────┘        └─ 101 ─> upgraded: frames ─ end ─> closed
//! ```

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::connection_activity::{ConnectionActivity, IdleTimer, RequestInProgress};
use super::connection_slots::ConnectionSlot;
use super::connection_stream::ConnectionStream;
use super::guarded_body::GuardedBody;
use super::upgraded_connection::{ConnectionTicket, keep_alive};

/// The time for the headers of a request to arrive, and for the next request of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a request's line and headers.
pub(crate) const HEADER_BYTES_MAX: usize = 32 * 1024;
/// The time for the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADERS_MAX: usize = 64;
/// The time for open responses to end when the server shuts down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// An accepted connection, without its stream.
#[derive(Debug)]
pub(crate) struct ServedConnection {
    pub(crate) app: Router,
    pub(crate) slot: Arc<ConnectionSlot>,
    pub(crate) shutdown_token: CancellationToken,
}

/// A stream over one socket.
trait SocketStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    fn socket(&self) -> &TcpStream;
}

impl SocketStream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl SocketStream for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// The end of the requests of a connection.
#[derive(Debug)]
enum ServedUntil<S> {
    Closed,
    Idle(IdleConnection<S>),
    Upgraded(UpgradedConnection<S>),
}

/// A connection after the response 101, which continues without HTTP.
#[derive(Debug)]
struct UpgradedConnection<S> {
    stream: ConnectionStream<S>,
    ticket: ConnectionTicket,
}

/// A connection without the state of HTTP.
#[derive(Debug)]
struct IdleConnection<S> {
    stream: S,
    /// The bytes that arrived behind the last request.
    unread: Bytes,
    since: Instant,
}

type HttpConnection<S> = http1::Connection<TokioIo<ConnectionStream<S>>, ConnectionService>;

impl ServedConnection {
    /// Serves a connection to its end.
    pub(crate) async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>) -> io::Result<()> {
        let _ = stream.set_nodelay(true);
        if !self.wait_for_bytes(&stream, Instant::now()).await {
            return Ok(());
        }
        match tls {
            None => self.serve_http(stream).await,
            Some(tls) => Box::pin(self.serve_tls(stream, tls)).await,
        }
    }

    async fn serve_tls(&self, stream: TcpStream, tls: TlsAcceptor) -> io::Result<()> {
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream));
        let stream = tokio::select! {
            stream = handshake => stream??,
            () = self.slot.evicted() => return Ok(()),
            () = self.shutdown_token.cancelled() => return Ok(()),
        };
        self.serve_http(stream).await
    }

    async fn serve_http<S: SocketStream>(&self, stream: S) -> io::Result<()> {
        let mut served = Box::pin(self.serve_requests(stream, Bytes::new())).await?;
        while let ServedUntil::Idle(mut idle) = served {
            let has_bytes = !idle.unread.is_empty()
                || self.wait_for_bytes(idle.stream.socket(), idle.since).await;
            if !has_bytes {
                let closed = tokio::time::timeout(SHUTDOWN_GRACE, idle.stream.shutdown()).await;
                return closed.unwrap_or(Ok(()));
            }
            served = Box::pin(self.serve_requests(idle.stream, idle.unread)).await?;
        }
        match served {
            ServedUntil::Upgraded(upgraded) => Box::pin(self.serve_upgraded(upgraded)).await,
            ServedUntil::Closed | ServedUntil::Idle(_) => Ok(()),
        }
    }

    /// Serves frames to the end of the connection, which makes way for no other.
    async fn serve_upgraded<S: SocketStream>(
        &self,
        upgraded: UpgradedConnection<S>,
    ) -> io::Result<()> {
        let UpgradedConnection { stream, ticket } = upgraded;
        // The use of the request has ended with its response. Another connection may have taken the
        // slot since.
        let Ok(_slot_use) = self.slot.begin_use() else { return Ok(()) };
        keep_alive(stream.get_ref().socket());
        ticket.serve(stream).await
    }

    /// Waits for bytes of an idle connection, and leaves them there. Returns false if there are none
    /// for too long, or if the connection has to end.
    async fn wait_for_bytes(&self, socket: &TcpStream, idle_since: Instant) -> bool {
        // The socket may count as readable before it has bytes, so that only a read shows them.
        let mut first_byte = [0];
        let peeked =
            tokio::time::timeout_at(idle_since + HEADER_TIMEOUT, socket.peek(&mut first_byte));
        tokio::select! {
            peeked = peeked => matches!(peeked, Ok(Ok(1..))),
            () = self.slot.evicted() => false,
            () = self.shutdown_token.cancelled() => false,
        }
    }

    /// Serves requests until the connection ends or has been idle for some time.
    async fn serve_requests<S>(&self, stream: S, unread: Bytes) -> io::Result<ServedUntil<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let activity = Arc::new(ConnectionActivity::new());
        let stream = ConnectionStream::new(stream, self.slot.clone(), self.shutdown_token.clone());
        let stream = stream.with_unread(unread).with_activity(activity.clone());
        let ticket = TicketHolder::default();
        let service = ConnectionService {
            app: TowerToHyperService::new(self.app.clone()),
            slot: self.slot.clone(),
            activity: activity.clone(),
            ticket: ticket.clone(),
        };
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut idle_timer = IdleTimer::new(activity.clone());
        let Some(since) = self.drive(&mut connection, &mut idle_timer).await? else {
            return Ok(end_requests(connection, &ticket));
        };
        // An idle connection ends at once and reads nothing before, so that no request is lost.
        Pin::new(&mut connection).graceful_shutdown();
        let ended = poll_fn(|context| Poll::Ready(connection.poll_without_shutdown(context))).await;
        let Poll::Ready(ended) = ended else {
            // A request is being read after all. Its response says that the connection closes.
            self.drive(&mut connection, &mut idle_timer).await?;
            return Ok(end_requests(connection, &ticket));
        };
        ended.map_err(io::Error::other)?;
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner();
        if activity.idle_since() != Some(since) {
            stream.shutdown().await?;
            return Ok(ServedUntil::Closed);
        }
        // Empty bytes would hold the memory of the whole buffer.
        let unread = match parts.read_buf.is_empty() {
            true => Bytes::new(),
            false => parts.read_buf,
        };
        Ok(ServedUntil::Idle(IdleConnection { stream: stream.into_inner(), unread, since }))
    }

    /// Drives a connection to its end. Returns earlier if it is idle, and since when.
    async fn drive<S>(
        &self,
        connection: &mut HttpConnection<S>,
        idle_timer: &mut IdleTimer,
    ) -> io::Result<Option<Instant>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let driven = poll_fn(|context| match Pin::new(&mut *connection).poll(context) {
            Poll::Ready(served) => Poll::Ready(served.map(|()| None)),
            Poll::Pending => idle_timer.poll_idle(context).map(|since| Ok(Some(since))),
        });
        let driven = tokio::select! {
            driven = driven => driven,
            // No request is in progress, or only one without a token.
            () = self.slot.evicted() => Ok(None),
            () = self.shutdown_token.cancelled() => {
                Pin::new(&mut *connection).graceful_shutdown();
                match tokio::time::timeout(SHUTDOWN_GRACE, connection).await {
                    Ok(served) => served.map(|()| None),
                    Err(_) => Ok(None),
                }
            }
        };
        driven.map_err(io::Error::other)
    }
}

/// Ends the part of a connection that speaks HTTP.
fn end_requests<S>(connection: HttpConnection<S>, ticket: &TicketHolder) -> ServedUntil<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match ticket.take() {
        Some(ticket) => {
            let parts = connection.into_parts();
            let stream = parts.io.into_inner().with_unread(parts.read_buf);
            ServedUntil::Upgraded(UpgradedConnection { stream, ticket })
        }
        None => ServedUntil::Closed,
    }
}

/// The ticket of a response 101 that is being sent.
#[derive(Clone, Debug, Default)]
struct TicketHolder {
    ticket: Arc<Mutex<Option<ConnectionTicket>>>,
}

impl TicketHolder {
    /// Takes the ticket from a response.
    fn fill<B>(&self, response: &mut http::Response<B>) {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            *self.lock() = response.extensions_mut().remove();
        }
    }

    fn take(&self) -> Option<ConnectionTicket> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<ConnectionTicket>> {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The routes, for the requests of one connection.
#[derive(Debug)]
struct ConnectionService {
    app: TowerToHyperService<Router>,
    slot: Arc<ConnectionSlot>,
    activity: Arc<ConnectionActivity>,
    ticket: TicketHolder,
}

impl Service<http::Request<Incoming>> for ConnectionService {
    type Response = http::Response<GuardedBody<RequestInProgress>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, mut request: http::Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.slot.clone());
        let in_progress = self.activity.begin_request();
        let response = self.app.call(request);
        let ticket = self.ticket.clone();
        Box::pin(response.map_ok(move |mut response| {
            ticket.fill(&mut response);
            response.map(|body| GuardedBody::new(body, in_progress))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::connection_activity::IDLE_TIME;
    use crate::http::connection_slots::ConnectionSlots;

    const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    fn new_connection() -> ServedConnection {
        let slow = async || tokio::time::sleep(Duration::from_secs(10)).await;
        let app = Router::new()
            .route("/", get(async || "dish"))
            .route("/slow", get(slow))
            .route("/echo", post(async |body: Bytes| body));
        let slot = ConnectionSlots::new(1).acquire().expect("a slot");
        ServedConnection { app, slot, shutdown_token: CancellationToken::new() }
    }

    /// The client of a connection in memory.
    struct TestClient {
        stream: DuplexStream,
    }

    impl TestClient {
        async fn send(&mut self, text: &str) {
            self.stream.write_all(text.as_bytes()).await.expect("the server reads");
        }

        /// Reads one response, which ends with this body.
        async fn read_response(&mut self, body: &str) -> String {
            let mut text = String::new();
            while !text.ends_with(&format!("\r\n\r\n{body}")) {
                let byte = self.stream.read_u8().await.expect("a response");
                text.push(byte.into());
            }
            assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
            text
        }
    }

    fn connect() -> (DuplexStream, TestClient) {
        let (near, stream) = duplex(64 * 1024);
        (near, TestClient { stream })
    }

    fn expect_idle<S: std::fmt::Debug>(served: io::Result<ServedUntil<S>>) -> IdleConnection<S> {
        match served {
            Ok(ServedUntil::Idle(idle)) => idle,
            other => panic!("the connection is not idle: {other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_held_and_served_again() {
        let connection = new_connection();
        let (mut near, mut client) = connect();
        let mut unread = Bytes::new();
        for _ in 0..3 {
            let asked_at = Instant::now();
            let asked = async {
                client.send(GET).await;
                client.read_response("dish").await
            };
            let (served, response) = tokio::join!(connection.serve_requests(near, unread), asked);
            let idle = expect_idle(served);
            assert!(!response.contains("connection: close"), "{response}");
            assert_eq!(idle.since, asked_at);
            assert_eq!(asked_at.elapsed(), IDLE_TIME);
            assert!(idle.unread.is_empty());
            near = idle.stream;
            unread = idle.unread;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_in_parts_is_read_after_the_connection_was_held() {
        let connection = new_connection();
        let (near, mut client) = connect();
        client.send(GET).await;
        let idle = expect_idle(connection.serve_requests(near, Bytes::new()).await);
        client.read_response("dish").await;
        let asked = async {
            client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Len").await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            client.send("gth: 8\r\n\r\nsou").await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            client.send("pspoon").await;
            client.read_response("soupspoo").await;
            Instant::now()
        };
        let served = connection.serve_requests(idle.stream, idle.unread);
        let (served, answered_at) = tokio::join!(served, asked);
        let idle = expect_idle(served);
        assert_eq!(idle.since, answered_at);
        assert_eq!(idle.unread, "n", "it belongs to the next request");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_behind_a_request_are_the_begin_of_the_next() {
        let connection = new_connection();
        let (near, mut client) = connect();
        let cut = GET.len() - 10;
        client.send(&format!("{GET}{}", &GET[..cut])).await;
        let idle = expect_idle(connection.serve_requests(near, Bytes::new()).await);
        assert_eq!(idle.unread, &GET[..cut]);
        client.read_response("dish").await;
        client.send(&GET[cut..]).await;
        client.send(GET).await;
        expect_idle(connection.serve_requests(idle.stream, idle.unread).await);
        client.read_response("dish").await;
        client.read_response("dish").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_at_the_moment_of_the_hold_is_answered() {
        let connection = new_connection();
        let (near, mut client) = connect();
        client.send(GET).await;
        let mut served = pin!(connection.serve_requests(near, Bytes::new()));
        let early = tokio::time::timeout(IDLE_TIME / 2, served.as_mut()).await;
        assert!(early.is_err(), "it was not idle for long enough");
        client.read_response("dish").await;
        // The timer has ended when the connection is polled for the next time.
        tokio::time::advance(IDLE_TIME / 2).await;
        client.send(GET).await;
        let sent_at = Instant::now();
        let idle = expect_idle(served.await);
        assert_eq!(idle.since, sent_at);
        let response = client.read_response("dish").await;
        assert!(!response.contains("connection: close"), "{response}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_in_progress_and_a_head_in_parts_are_no_idle_time() {
        let connection = new_connection();
        let (near, mut client) = connect();
        let asked = async {
            client.send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            let response = client.read_response("").await;
            assert!(!response.contains("connection: close"), "{response}");
            let cut = GET.len() / 2;
            client.send(&GET[..cut]).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            client.send(&GET[cut..]).await;
            let response = client.read_response("dish").await;
            assert!(!response.contains("connection: close"), "{response}");
            Instant::now()
        };
        let (served, answered_at) =
            tokio::join!(connection.serve_requests(near, Bytes::new()), asked);
        assert_eq!(expect_idle(served).since, answered_at);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_in_parts_has_the_time_of_any_head() {
        let connection = new_connection();
        let (near, mut client) = connect();
        let sent_at = Instant::now();
        let asked = async {
            client.send(GET).await;
            client.read_response("dish").await;
            client.send("GET").await;
        };
        let (served, ()) = tokio::join!(connection.serve_requests(near, Bytes::new()), asked);
        assert!(!matches!(served, Ok(ServedUntil::Idle(_))), "{served:?}");
        assert_eq!(sent_at.elapsed(), HEADER_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_the_client_ends_is_not_held() {
        let connection = new_connection();
        let (near, mut client) = connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
        // The client does not close its half, so that the server waits for its bytes.
        let served = connection.serve_requests(near, Bytes::new()).await;
        assert!(matches!(served, Ok(ServedUntil::Closed)), "{served:?}");
        client.read_response("dish").await;
    }
}
