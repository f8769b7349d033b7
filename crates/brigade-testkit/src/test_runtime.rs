//! A runtime of which each command can be looked at alone.

use std::sync::Arc;

use brigade_model::command::Command;
use brigade_model::decide::CommandReply;
use brigade_model::event::EventRecord;
use brigade_model::ids::{Position, Time};
use brigade_model::refusal::Refusal;
use brigade_runtime::{Runtime, RuntimeBuilder, Session};
use brigade_store::{EventQuery, MemoryStore, Store};

use crate::clock::PausedClock;

/// A runtime on paused time with one input per commit and a session at hand.
#[derive(Debug)]
pub struct TestRuntime {
    pub runtime: Runtime,
    pub session: Session,
    store: Arc<dyn Store>,
}

impl TestRuntime {
    /// When a test's time begins.
    pub const START: Time = Time(1_800_000_000_000);

    /// With a memory store. `build` registers jobs and performers.
    pub async fn new(build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        Self::on_store(Arc::new(MemoryStore::new()), build).await
    }

    /// On a store that may hold something already.
    ///
    /// # Panics
    /// When the runtime does not start: a test cannot go on then.
    pub async fn on_store(
        store: Arc<dyn Store>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let builder = Runtime::builder()
            .shared_store(store.clone())
            .clock(Arc::new(PausedClock::starting_at(Self::START)))
            .max_batch(1);
        let started = build(builder).start().await;
        let runtime = started.unwrap_or_else(|refusal| panic!("the runtime starts: {refusal}"));
        let opened = runtime.session("test").await;
        let session = opened.unwrap_or_else(|refusal| panic!("the session opens: {refusal}"));
        Self { runtime, session, store }
    }

    /// Puts one command through the loop. Returns the answer and the session's events since.
    pub async fn submit(
        &self,
        command: Command,
    ) -> (Result<CommandReply, Refusal>, Vec<Arc<EventRecord>>) {
        let before = self.runtime.position();
        let reply = self.runtime.submit(self.session.id(), command).await;
        (reply, self.events_after(before).await)
    }

    /// The session's events after a position.
    pub async fn events_after(&self, after: Position) -> Vec<Arc<EventRecord>> {
        let tree = Some(self.session.id());
        let query = EventQuery { session: tree, after, limit: usize::MAX };
        match self.store.events(&query).await {
            Ok(page) => page.items.into_iter().map(|item| item.record).collect(),
            Err(error) => panic!("the store answers: {error}"),
        }
    }
}
