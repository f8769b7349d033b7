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

use crate::desk::Desk;
use crate::requests::Request;
use crate::wire::{FromDaemon, LINE_MAX, Said, cost};

/// What a line holds beside an answer is less than the rest.
const ANSWER_MAX: usize = LINE_MAX as usize - 1024;

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
    way: Way,
    kind: PhantomData<fn(T)>,
}

impl<T: Serialize> Items<T> {
    pub(crate) fn new(way: Way) -> Self {
        Self { way, kind: PhantomData }
    }

    /// Hands out one, waiting while the client is slow. An error means that it is gone.
    pub async fn send(&self, item: &T) -> Result<(), Refusal> {
        let item = raw(item)?;
        if let Some(room) = &self.way.room {
            room.take(&item).await;
        }
        let line = FromDaemon { id: self.way.id, what: Said::Item(item) };
        let sent = self.way.lines.send(line).await;
        sent.map_err(|_| Refusal::unavailable("the client is gone"))
    }
}

/// The way back to whoever asked one question.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) id: u64,
    pub(crate) lines: mpsc::Sender<FromDaemon>,
    /// None for a client that takes all there is.
    pub(crate) room: Option<Arc<Room>>,
}

/// What may be on its way to a client of one question's items.
#[derive(Debug)]
pub(crate) struct Room {
    size: u32,
    free: Semaphore,
    /// What the client can give back, whatever it says.
    taken: AtomicU32,
}

impl Room {
    pub(crate) fn new(size: u32) -> Self {
        let size = size.max(1);
        Self { size, free: Semaphore::new(size as usize), taken: AtomicU32::new(0) }
    }

    async fn take(&self, item: &RawValue) {
        let cost = cost(item, self.size);
        // It is never closed.
        if let Ok(taken) = self.free.acquire_many(cost).await {
            taken.forget();
            self.taken.fetch_add(cost, Ordering::Relaxed);
        }
    }

    pub(crate) fn give_back(&self, bytes: u32) {
        let rest = |taken: u32| Some(taken.saturating_sub(bytes));
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        let back = taken.unwrap_or_else(|taken| taken).min(bytes);
        self.free.add_permits(back as usize);
    }
}

/// An answer, or a part of one, as it is written.
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Refusal> {
    let raw = serde_json::value::to_raw_value(value)
        .map_err(|error| Refusal::internal(format!("an answer cannot be written: {error}")))?;
    match raw.get().len() {
        bytes if bytes > ANSWER_MAX => Err(Refusal::limit(format!(
            "the answer is {bytes} bytes long, and {ANSWER_MAX} is the most; ask for less"
        ))),
        _ => Ok(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_comes_back_than_was_taken() {
        let room = Room::new(10);
        let item = raw("four").expect("text");
        room.take(&item).await;
        assert_eq!(room.free.available_permits(), 4, "six bytes with the quotes");
        for _ in 0..3 {
            room.give_back(u32::MAX);
            assert_eq!(room.free.available_permits(), 10);
        }
        let large = raw("larger than all there is").expect("text");
        room.take(&large).await;
        assert_eq!(room.free.available_permits(), 0);
    }
}
