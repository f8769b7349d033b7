//! A client of streams.

use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;

use crate::support::{TEST_TIMEOUT, TestResponse, TestServer};

/// An event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct SseEvent {
    pub(crate) event: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

/// An open stream. It disconnects when it is dropped.
pub(crate) struct SseClient {
    response: Response,
    bytes: Vec<u8>,
    /// The id of the last event.
    pub(crate) last_id: String,
}

impl SseClient {
    /// Opens a stream as the operator.
    pub(crate) async fn open(server: &TestServer, path: &str) -> Self {
        Self::open_as(server, &server.operator, path, None).await.unwrap()
    }

    /// Opens a stream after the last event of another.
    pub(crate) async fn resume(server: &TestServer, path: &str, last_id: &str) -> Self {
        Self::open_as(server, &server.operator, path, Some(last_id)).await.unwrap()
    }

    /// Opens a stream, or returns the answer of a server that refuses.
    pub(crate) async fn open_as(
        server: &TestServer,
        secret: &str,
        path: &str,
        last_id: Option<&str>,
    ) -> Result<Self, TestResponse> {
        let request = server.client().get(server.url(path)).bearer_auth(secret);
        let mut request = request.header("accept", "text/event-stream");
        if let Some(last_id) = last_id {
            request = request.header("last-event-id", last_id);
        }
        let response = timeout(TEST_TIMEOUT, request.send()).await.unwrap().unwrap();
        if response.status() != 200 {
            return Err(TestResponse::of(response).await);
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Self { response, bytes: Vec::new(), last_id: String::new() })
    }

    /// Returns the next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = self.bytes.drain(..end + 2).collect();
                let event = SseEvent::parse(std::str::from_utf8(&frame).unwrap());
                self.last_id = event.id.clone().unwrap_or(std::mem::take(&mut self.last_id));
                return Some(event);
            }
            let chunk = timeout(TEST_TIMEOUT, self.response.chunk()).await.expect("an event");
            match chunk {
                Ok(Some(chunk)) => self.bytes.extend(chunk),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Returns the next event, which has this name.
    pub(crate) async fn expect(&mut self, event: &str) -> SseEvent {
        let next = self.next().await;
        let next = next.unwrap_or_else(|| panic!("the stream has ended before {event}"));
        assert_eq!(next.event, event, "{next:?}");
        next
    }

    /// Returns this many changes, without other events.
    pub(crate) async fn changes(&mut self, count: usize) -> Vec<Value> {
        let mut changes = Vec::new();
        while changes.len() < count {
            let next = self.next().await.expect("more changes");
            match next.event.as_str() {
                "change" => changes.push(next.data),
                "heartbeat" | "cursor" => {}
                other => panic!("{other} after {} changes", changes.len()),
            }
        }
        changes
    }

    /// Returns the changes up to the first one of this type.
    pub(crate) async fn changes_to(&mut self, kind: &str) -> Vec<Value> {
        let mut changes = Vec::new();
        while changes.last().is_none_or(|change: &Value| change["type"] != kind) {
            changes.append(&mut self.changes(1).await);
        }
        changes
    }
}

impl SseEvent {
    fn parse(frame: &str) -> Self {
        let mut parsed = Self { event: String::new(), id: None, data: Value::Null };
        for line in frame.lines().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap();
            match name {
                "event" => parsed.event = value.to_owned(),
                "id" => parsed.id = Some(value.to_owned()),
                "data" => parsed.data = serde_json::from_str(value).unwrap(),
                other => panic!("{other}"),
            }
        }
        parsed
    }
}
