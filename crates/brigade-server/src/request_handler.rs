//! The trait of a request's handler, and the sending of its items and its reply.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use brigade_model::refusal::Refusal;
use brigade_protocol::call::{Call, NoItems};
use brigade_protocol::flow_window::FlowWindow;
use brigade_protocol::frames::{LINE_BYTES_MAX, ServerFrame, ServerFrameBody};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::request_context::RequestContext;

/// The maximum size of a reply. The rest of a line is for the other fields of its frame.
const REPLY_BYTES_MAX: usize = LINE_BYTES_MAX as usize - 1024;

/// The handler of a request.
pub(crate) trait RequestHandler: Call {
    fn handle(
        self,
        context: &RequestContext,
        items: &ItemSender<Self::Item>,
    ) -> impl Future<Output = Result<Self::Reply, Refusal>> + Send;
}

impl RequestContext {
    /// Calls the handler of a request that sends no items.
    pub(crate) async fn call<R>(&self, request: R) -> Result<R::Reply, Refusal>
    where
        R: RequestHandler<Item = NoItems>,
    {
        request.handle(self, &ItemSender::new(ResponseSink::without_items())).await
    }
}

/// Sends the items of one request to its client.
#[derive(Debug)]
pub(crate) struct ItemSender<T> {
    sink: ResponseSink,
    kind: PhantomData<fn(T)>,
}

impl<T: Serialize> ItemSender<T> {
    pub(crate) fn new(sink: ResponseSink) -> Self {
        Self { sink, kind: PhantomData }
    }

    /// Sends an item. Waits while the client's window is full. Fails if the client disconnected.
    pub(crate) async fn send(&self, item: &T) -> Result<(), Refusal> {
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

impl ResponseSink {
    /// Returns the sink of a request that sends no items.
    pub(crate) fn without_items() -> Self {
        let (frames, _) = mpsc::channel(1);
        Self { id: 0, frames, window: None }
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
