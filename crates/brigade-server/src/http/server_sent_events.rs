//! Server-sent events: frames, and responses that follow a source of them.
//!
//! The connection pulls the frames of a stream, so a client that does not read costs one chunk of
//! memory and nothing else. A chunk that waits too long for its client is the last but one: the
//! stream ends with `too_slow`. A client that reads nothing at all loses its connection, and one
//! whose token is revoked or expires its stream: at once, or with the next heartbeat if another
//! daemon has removed the token.

use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{CursorBody, ProblemBody, ProblemCode};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName};
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::access_token::is_valid_token;
use super::caller::{EndsWithToken, HttpCaller};
use super::routes::HttpState;
use crate::request_context::DaemonState;

/// The interval of `heartbeat`.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// The time within which a client has to take a chunk.
const SLOW_READER_TIMEOUT: Duration = Duration::from_secs(10);
/// The size from which a chunk is sent without waiting for further frames.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A source of frames.
pub(crate) trait FrameSource: Send + 'static {
    type Item: Send;

    /// The event after the last item.
    const END_EVENT: &'static str;

    /// Writes the frames before the first item.
    fn start(&mut self, _: &mut FrameBuffer) {}

    /// Waits for the next item. Returns `None` after the last one. Dropping the future loses nothing.
    fn next(&mut self) -> impl Future<Output = Option<Result<Self::Item, Refusal>>> + Send;

    /// Writes the frames of an item, or none.
    fn write(
        &mut self,
        item: Self::Item,
        frames: &mut FrameBuffer,
    ) -> impl Future<Output = ()> + Send;

    /// Returns the place from which a client can go on.
    fn cursor(&self) -> Option<String>;
}

/// Returns a response that follows the source until its end, or until the server shuts down.
pub(crate) fn follow<S: FrameSource>(
    state: &HttpState,
    caller: &HttpCaller,
    mut source: S,
) -> Response {
    let mut heartbeats = tokio::time::interval(HEARTBEAT_INTERVAL);
    heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // An interval ticks at once, but the first frames say enough.
    heartbeats.reset();
    let mut frames = FrameBuffer::default();
    source.start(&mut frames);
    let follower = StreamFollower {
        source,
        frames,
        heartbeats,
        daemon: state.daemon.clone(),
        caller: caller.clone(),
        taken_at: None,
        has_ended: false,
    };
    let chunks = stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next_chunk().await?;
        Some((Ok::<Bytes, Infallible>(chunk), follower))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.extensions_mut().insert(EndsWithToken);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    // A proxy that collects a response before it forwards it would hold events back.
    const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Returns true if the client asks for a stream.
pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(','));
    kinds.any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/event-stream")
    })
}

/// Returns the id of the last event that a client has received, if it connects again.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(id) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let invalid = |_| Refusal::invalid("the header Last-Event-ID is not the id of an event");
    id.to_str().map(Some).map_err(invalid)
}

/// Frames to send.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    bytes: BytesMut,
}

impl FrameBuffer {
    /// Adds a frame.
    pub(crate) fn push(&mut self, event: &str, id: Option<&dyn Display>, data: &impl Serialize) {
        // Writing to this buffer does not fail.
        if let Some(id) = id {
            let _ = writeln!(self.bytes, "id: {id}");
        }
        let _ = write!(self.bytes, "event: {event}\ndata: ");
        let mut json = serde_json::to_vec(data).unwrap_or_else(|error| {
            tracing::error!(%error, event, "the data of an event cannot be encoded");
            b"{}".to_vec()
        });
        // A line break in JSON text is between values, where a blank means the same.
        for byte in json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        self.bytes.extend_from_slice(&json);
        self.bytes.extend_from_slice(b"\n\n");
    }

    /// Adds a frame that was rendered before.
    pub(crate) fn push_frame(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn take(&mut self) -> Bytes {
        self.bytes.split().freeze()
    }
}

/// The state of a stream between two chunks.
struct StreamFollower<S> {
    source: S,
    frames: FrameBuffer,
    heartbeats: Interval,
    daemon: Arc<DaemonState>,
    /// The caller, whose token may be revoked.
    caller: HttpCaller,
    /// The time at which the connection took the last chunk. It asks for the next one as soon as it
    /// has written that one, or most of it.
    taken_at: Option<Instant>,
    has_ended: bool,
}

impl<S: FrameSource> StreamFollower<S> {
    /// Waits for the next frames. Returns `None` after the last ones.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        if self.taken_at.is_some_and(|taken_at| taken_at.elapsed() >= SLOW_READER_TIMEOUT) {
            self.end("too_slow");
        }
        while self.frames.len() == 0 {
            self.wait().await;
        }
        self.taken_at = Some(Instant::now());
        Some(self.frames.take())
    }

    async fn wait(&mut self) {
        tokio::select! {
            biased;
            () = self.daemon.shutdown.shutdown_token.cancelled() => self.end("bye"),
            () = self.caller.reader().token_ended() => self.refuse_token(),
            _ = self.heartbeats.tick() => self.beat().await,
            item = self.source.next() => match item {
                Some(Ok(item)) => self.source.write(item, &mut self.frames).await,
                Some(Err(refusal)) => self.fail(refusal.into()),
                None => self.end(S::END_EVENT),
            },
        }
    }

    /// Writes a heartbeat, or ends the stream of a token that is no longer valid.
    async fn beat(&mut self) {
        match is_valid_token(&self.daemon.runtime, &self.caller.token.id).await {
            Ok(true) => self.push_cursor("heartbeat"),
            Ok(false) => self.refuse_token(),
            Err(refusal) => self.fail(refusal.into()),
        }
    }

    fn refuse_token(&mut self) {
        let text = "the token has expired or was revoked";
        self.fail(ProblemBody::new(ProblemCode::Unauthenticated, text));
    }

    fn fail(&mut self, problem: ProblemBody) {
        self.frames.push("error", None, &problem);
        self.has_ended = true;
    }

    fn end(&mut self, event: &str) {
        self.push_cursor(event);
        self.has_ended = true;
    }

    fn push_cursor(&mut self, event: &str) {
        let cursor = self.source.cursor();
        let body = CursorBody { cursor: cursor.clone() };
        let id = cursor.as_ref().map(|cursor| cursor as &dyn Display);
        self.frames.push(event, id, &body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_line_of_json() {
        let mut frames = FrameBuffer::default();
        let pretty = serde_json::value::RawValue::from_string("{\n \"a\": \"b\\n\"\r}".to_owned());
        frames.push("change", Some(&7), &pretty.expect("JSON"));
        frames.push("bye", None, &CursorBody { cursor: None });
        let text = String::from_utf8(frames.take().to_vec()).expect("text");
        assert_eq!(
            text,
            "id: 7\nevent: change\ndata: {  \"a\": \"b\\n\" }\n\nevent: bye\ndata: {}\n\n"
        );
        assert_eq!(frames.len(), 0);
    }

    #[test]
    fn a_stream_is_sent_only_if_the_client_names_it() {
        let wants = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("a header"));
            wants_stream(&headers)
        };
        assert!(wants("text/event-stream"));
        assert!(wants("application/json;q=0.5, Text/Event-Stream; q=1"));
        assert!(!wants("*/*"));
        assert!(!wants("application/json"));
        assert!(!wants_stream(&HeaderMap::new()));
    }
}
