//! The trait of a request, and the sending of its replies with flow control.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use brigade_model::refusal::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};

use crate::frames::{LINE_BYTES_MAX, ServerFrame, ServerFrameBody, window_cost};
use crate::request_context::RequestContext;
use crate::requests::AnyRequest;

/// The maximum size of a reply. The rest of a line is for the other fields of its frame.
const REPLY_BYTES_MAX: usize = LINE_BYTES_MAX as usize - 1024;

/// A request with the types of its replies and its handler.
pub trait Call: Into<AnyRequest> + Send + Sized {
    /// The final reply.
    type Reply: Serialize + DeserializeOwned + Send;
    /// An item of the stream before the reply; [`NoItems`] for most requests.
    type Item: Serialize + DeserializeOwned + Send;

    fn handle(
        self,
        context: &RequestContext,
        items: &ItemSender<Self::Item>,
    ) -> impl Future<Output = Result<Self::Reply, Refusal>> + Send;
}

/// The item type of requests without items.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum NoItems {}

/// Sends the items of one request to its client.
#[derive(Debug)]
pub struct ItemSender<T> {
    sink: ResponseSink,
    kind: PhantomData<fn(T)>,
}

impl<T: Serialize> ItemSender<T> {
    pub(crate) fn new(sink: ResponseSink) -> Self {
        Self { sink, kind: PhantomData }
    }

    /// Sends an item. Waits while the client's window is full. Fails if the client disconnected.
    pub async fn send(&self, item: &T) -> Result<(), Refusal> {
        let item = to_raw_json(item)?;
        if let Some(window) = &self.sink.window {
            window.acquire(&item).await;
        }
        let frame = ServerFrame { id: self.sink.id, body: ServerFrameBody::Item(item) };
        let sent = self.sink.frames.send(frame).await;
        sent.map_err(|_| Refusal::unavailable("the client disconnected"))
    }
}

/// The sink for the frames of one request.
#[derive(Clone, Debug)]
pub(crate) struct ResponseSink {
    pub(crate) id: u64,
    pub(crate) frames: mpsc::Sender<ServerFrame>,
    /// `None` for a client without flow control.
    pub(crate) window: Option<Arc<FlowWindow>>,
}

/// The bytes of one request's items that may be in flight.
#[derive(Debug)]
pub(crate) struct FlowWindow {
    capacity: u32,
    available: Semaphore,
    /// The bytes in flight, which bound the bytes that the client can acknowledge.
    unacked_bytes: AtomicU32,
}

impl FlowWindow {
    pub(crate) fn new(bytes: u32) -> Self {
        let capacity = bytes.max(1);
        Self {
            capacity,
            available: Semaphore::new(capacity as usize),
            unacked_bytes: AtomicU32::new(0),
        }
    }

    async fn acquire(&self, item: &RawValue) {
        let cost = window_cost(item, self.capacity);
        // The semaphore is never closed.
        if let Ok(permits) = self.available.acquire_many(cost).await {
            permits.forget();
            self.unacked_bytes.fetch_add(cost, Ordering::Relaxed);
        }
    }

    pub(crate) fn release(&self, bytes: u32) {
        let subtract = |unacked: u32| Some(unacked.saturating_sub(bytes));
        let unacked =
            self.unacked_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        let released = unacked.unwrap_or_else(|unacked| unacked).min(bytes);
        self.available.add_permits(released as usize);
    }
}

/// Encodes a reply or an item, or refuses it if it is too large.
pub(crate) fn to_raw_json<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Refusal> {
    let raw = serde_json::value::to_raw_value(value)
        .map_err(|error| Refusal::internal(format!("the reply cannot be encoded: {error}")))?;
    match raw.get().len() {
        bytes if bytes > REPLY_BYTES_MAX => Err(Refusal::limit(format!(
            "the reply has {bytes} bytes, more than {REPLY_BYTES_MAX}; ask for less"
        ))),
        _ => Ok(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_is_released_than_was_acquired() {
        let window = FlowWindow::new(10);
        let item = to_raw_json("four").expect("text");
        window.acquire(&item).await;
        assert_eq!(window.available.available_permits(), 4, "six bytes with the quotes");
        for _ in 0..3 {
            window.release(u32::MAX);
            assert_eq!(window.available.available_permits(), 10);
        }
        let large = to_raw_json("larger than the window").expect("text");
        window.acquire(&large).await;
        assert_eq!(window.available.available_permits(), 0);
    }
}
