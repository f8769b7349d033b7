//! A question and its answer.

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

/// What a line holds beside an answer is less than the rest.
const REPLY_BYTES_MAX: usize = LINE_BYTES_MAX as usize - 1024;

/// Something that a client can ask for.
pub trait Call: Into<AnyRequest> + Send + Sized {
    /// The answer.
    type Reply: Serialize + DeserializeOwned + Send;
    /// What comes before the answer; never, for most questions.
    type Item: Serialize + DeserializeOwned + Send;

    fn handle(
        self,
        desk: &RequestContext,
        items: &ItemSender<Self::Item>,
    ) -> impl Future<Output = Result<Self::Reply, Refusal>> + Send;
}

/// No value: for questions without items.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum NoItems {}

/// Where the items of one answer go.
#[derive(Debug)]
pub struct ItemSender<T> {
    sink: ResponseSink,
    kind: PhantomData<fn(T)>,
}

impl<T: Serialize> ItemSender<T> {
    pub(crate) fn new(way: ResponseSink) -> Self {
        Self { sink: way, kind: PhantomData }
    }

    /// Hands out one, waiting while the client is slow. An error means that it is gone.
    pub async fn send(&self, item: &T) -> Result<(), Refusal> {
        let item = to_raw_json(item)?;
        if let Some(room) = &self.sink.window {
            room.acquire(&item).await;
        }
        let line = ServerFrame { id: self.sink.id, body: ServerFrameBody::Item(item) };
        let sent = self.sink.frames.send(line).await;
        sent.map_err(|_| Refusal::unavailable("the client is gone"))
    }
}

/// The way back to whoever asked one question.
#[derive(Clone, Debug)]
pub(crate) struct ResponseSink {
    pub(crate) id: u64,
    pub(crate) frames: mpsc::Sender<ServerFrame>,
    /// None for a client that takes all there is.
    pub(crate) window: Option<Arc<FlowWindow>>,
}

/// What may be on its way to a client of one question's items.
#[derive(Debug)]
pub(crate) struct FlowWindow {
    capacity: u32,
    available: Semaphore,
    /// What the client can give back, whatever it says.
    unacked_bytes: AtomicU32,
}

impl FlowWindow {
    pub(crate) fn new(size: u32) -> Self {
        let size = size.max(1);
        Self {
            capacity: size,
            available: Semaphore::new(size as usize),
            unacked_bytes: AtomicU32::new(0),
        }
    }

    async fn acquire(&self, item: &RawValue) {
        let cost = window_cost(item, self.capacity);
        // It is never closed.
        if let Ok(taken) = self.available.acquire_many(cost).await {
            taken.forget();
            self.unacked_bytes.fetch_add(cost, Ordering::Relaxed);
        }
    }

    pub(crate) fn release(&self, bytes: u32) {
        let rest = |taken: u32| Some(taken.saturating_sub(bytes));
        let taken = self.unacked_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        let back = taken.unwrap_or_else(|taken| taken).min(bytes);
        self.available.add_permits(back as usize);
    }
}

/// An answer, or a part of one, as it is written.
pub(crate) fn to_raw_json<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Refusal> {
    let raw = serde_json::value::to_raw_value(value)
        .map_err(|error| Refusal::internal(format!("an answer cannot be written: {error}")))?;
    match raw.get().len() {
        bytes if bytes > REPLY_BYTES_MAX => Err(Refusal::limit(format!(
            "the answer is {bytes} bytes long, and {REPLY_BYTES_MAX} is the most; ask for less"
        ))),
        _ => Ok(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_comes_back_than_was_taken() {
        let room = FlowWindow::new(10);
        let item = to_raw_json("four").expect("text");
        room.acquire(&item).await;
        assert_eq!(room.available.available_permits(), 4, "six bytes with the quotes");
        for _ in 0..3 {
            room.release(u32::MAX);
            assert_eq!(room.available.available_permits(), 10);
        }
        let large = to_raw_json("larger than all there is").expect("text");
        room.acquire(&large).await;
        assert_eq!(room.available.available_permits(), 0);
    }
}
