//! A question and its answer.

use std::future::Future;
use std::marker::PhantomData;

use brigade_model::refusal::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::desk::Desk;
use crate::requests::Request;
use crate::wire::{FromDaemon, Said};

/// Something that a client can ask for.
pub trait Ask: Into<Request> + Send + Sized {
    /// The answer.
    type Done: Serialize + DeserializeOwned + Send;
    /// What comes before the answer; never, for most questions.
    type Item: Serialize + DeserializeOwned + Send;

    fn answer(
        self,
        desk: &Desk,
        items: &Items<Self::Item>,
    ) -> impl Future<Output = Result<Self::Done, Refusal>> + Send;
}

/// No value: for questions without items.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Never {}

/// Where the items of one answer go.
#[derive(Debug)]
pub struct Items<T> {
    id: u64,
    lines: mpsc::Sender<FromDaemon>,
    kind: PhantomData<fn(T)>,
}

impl<T: Serialize> Items<T> {
    pub(crate) fn new(id: u64, lines: mpsc::Sender<FromDaemon>) -> Self {
        Self { id, lines, kind: PhantomData }
    }

    /// Hands out one, waiting while the client is slow. An error means that it is gone.
    pub async fn send(&self, item: &T) -> Result<(), Refusal> {
        let line = FromDaemon { id: self.id, what: Said::Item(raw(item)?) };
        let sent = self.lines.send(line).await;
        sent.map_err(|_| Refusal::unavailable("the client is gone"))
    }
}

pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Refusal> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| Refusal::internal(format!("an answer cannot be written: {error}")))
}
