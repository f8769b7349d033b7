//! A response that follows the changes of a task.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use a2a::{A2AError, StreamResponse};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CONNECTION, CONTENT_TYPE};
use serde_json::Value;
use tokio::time::{Interval, MissedTickBehavior};

use super::protocol_error::{ReplyForm, error_of};
use super::task_watch::TaskWatch;
use crate::request_context::DaemonState;

/// The interval of comments that keep the connection open.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The end of the task.
    TaskEnd,
    /// The end of the task, or a state in which it needs input.
    TaskEndOrInput,
}

/// Returns a response with the task and its changes, in the form of the request. The end of the
/// token ends it.
pub(crate) fn follow_task(
    daemon: &Arc<DaemonState>,
    watch: TaskWatch,
    form: ReplyForm,
    end: StreamEnd,
) -> Response {
    let mut heartbeats = tokio::time::interval(HEARTBEAT_INTERVAL);
    heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeats.reset();
    let updates =
        UpdateStream { daemon: daemon.clone(), watch, form, end, heartbeats, place: Place::Start };
    let chunks = stream::unfold(updates, |mut updates| async move {
        let chunk = updates.next_chunk().await?;
        Some((Ok::<Bytes, Infallible>(chunk), updates))
    });
    stream_response(Body::from_stream(chunks))
}

/// Returns a response with one object, as the only event of a stream.
pub(crate) fn send_once(form: &ReplyForm, event: &StreamResponse) -> Response {
    stream_response(Body::from(new_frame(&form.wrap(to_value(event)))))
}

fn stream_response(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    Following,
    Ended,
}

struct UpdateStream {
    daemon: Arc<DaemonState>,
    watch: TaskWatch,
    form: ReplyForm,
    end: StreamEnd,
    heartbeats: Interval,
    place: Place,
}

impl UpdateStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        match self.place {
            Place::Ended => None,
            Place::Start => {
                let task = StreamResponse::Task(self.watch.task().clone());
                self.advance();
                Some(new_frame(&self.form.wrap(to_value(&task))).into())
            }
            Place::Following => self.follow().await,
        }
    }

    async fn follow(&mut self) -> Option<Bytes> {
        tokio::select! {
            biased;
            () = self.daemon.shutdown.shutdown_token.cancelled() => None,
            // The body ends without its end then.
            () = self.watch.token_ended() => None,
            _ = self.heartbeats.tick() => Some(Bytes::from_static(b":\n\n")),
            events = self.watch.next() => match events {
                Ok(events) if events.is_empty() => None,
                Ok(events) => {
                    self.advance();
                    let frames = events.iter().map(|event| new_frame(&self.form.wrap(to_value(event))));
                    Some(frames.collect::<String>().into())
                }
                Err(refusal) => {
                    self.place = Place::Ended;
                    Some(new_frame(&self.form.wrap_error(&error_of(&refusal))).into())
                }
            },
        }
    }

    fn advance(&mut self) {
        let has_ended = self.watch.state().is_terminal()
            || self.end == StreamEnd::TaskEndOrInput && self.watch.is_interrupted();
        self.place = if has_ended { Place::Ended } else { Place::Following };
    }
}

fn new_frame(data: &Value) -> String {
    format!("data: {data}\n\n")
}

pub(crate) fn to_value(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| {
        tracing::error!(%error, "a value of A2A cannot be encoded");
        Value::Null
    })
}

/// Returns the error of a stream that does not begin.
pub(crate) fn ended_error(id: &str) -> A2AError {
    A2AError::unsupported_operation(format!("the task {id} has ended; get it"))
}
