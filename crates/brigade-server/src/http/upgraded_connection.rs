//! A connection that carries the frames of the socket, after a request of HTTP with a token.
//!
//! ```text
//! GET /v1/connection ─ authenticate ─ 101, with a ticket ─ hyper ends ─ hello, requests, last frame
//! ```
//!
//! The token is the caller, in place of the operator key. The role of the hello can only ask for
//! less. The end of the token ends the connection.

use std::io;
use std::time::Duration;

use brigade_model::refusal::Refusal;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;

use super::access_token::is_valid_token;
use super::caller::HttpCaller;
use crate::admission::{Admission, ConnectionKind};
use crate::client_connection::{
    GreetedClient, control_of, identify_role, read_hello, send_refusal,
};
use crate::request_context::RequestContext;
use brigade_protocol::bounded_line_reader::BoundedLineReader;

/// The value of the header `Upgrade`.
pub(crate) const UPGRADE_PROTOCOL: &str = "brigade";

/// The interval in which a connection learns that another node has removed its token.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// The time without bytes after which the system asks whether the client is there.
const KEEP_ALIVE_TIME: Duration = Duration::from_secs(15);
const KEEP_ALIVE_RETRIES: u32 = 3;

/// The permission to continue a connection with frames. It goes with the response 101 from the route
/// to the connection, and holds the slot of the request among those of its token.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionTicket {
    caller: HttpCaller,
}

impl ConnectionTicket {
    /// Creates a ticket for an operator's token. The handlers of the socket do not confine other
    /// tokens.
    pub(crate) fn new(caller: HttpCaller) -> Result<Self, Refusal> {
        caller
            .require_operator("connect a command line; its requests are those of the operator")?;
        Ok(Self { caller })
    }

    /// Serves the client until it disconnects, its token ends, or the daemon shuts down.
    pub(crate) async fn serve<S>(self, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = BoundedLineReader::new(BufReader::new(reader));
        reader.set_limits(Admission::handshake_limits());
        let context = self.caller.reader();
        let hello = tokio::select! {
            hello = read_hello(&mut reader, &mut writer) => hello?,
            () = context.token_ended() => return Ok(()),
            () = context.daemon.shutdown.shutdown_token.cancelled() => return Ok(()),
        };
        let Some(hello) = hello else { return Ok(()) };
        let admitted = identify_role(&hello).and_then(|caller| {
            Ok((caller, context.daemon.admission.admit(ConnectionKind::Operator)?))
        });
        let (caller, place) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return send_refusal(&mut writer, refusal).await,
        };
        let context =
            RequestContext { caller, control: control_of(&hello.role), ..context.clone() };
        let client = GreetedClient { context, hello, place };
        client.serve(reader, writer, self.token_ended()).await
    }

    /// Waits until the token is revoked here, is revoked at another node, or expires.
    async fn token_ended(&self) {
        let context = self.caller.reader();
        let mut checks = tokio::time::interval(TOKEN_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // An interval ticks at once, but the token was just looked up.
        checks.reset();
        loop {
            tokio::select! {
                () = context.token_ended() => return,
                _ = checks.tick() => {}
            }
            // A store that does not answer says nothing about the token.
            let id = &self.caller.token.id;
            if let Ok(false) = is_valid_token(&context.daemon.runtime, id).await {
                if let Some(validity) = &context.validity {
                    validity.cancellation().cancel();
                }
                return;
            }
        }
    }
}

/// Makes the system notice a client that is no longer there: a wait sends no bytes.
pub(crate) fn keep_alive(socket: &TcpStream) {
    let probes = socket2::TcpKeepalive::new()
        .with_time(KEEP_ALIVE_TIME)
        .with_interval(KEEP_ALIVE_TIME)
        .with_retries(KEEP_ALIVE_RETRIES);
    if let Err(error) = socket2::SockRef::from(socket).set_tcp_keepalive(&probes) {
        tracing::warn!(%error, "a lost client will not be noticed");
    }
}
