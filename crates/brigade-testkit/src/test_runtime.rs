//! A runtime for tests that returns the events of each command.

use std::sync::Arc;

use brigade_model::command::Command;
use brigade_model::decide::CommandReply;
use brigade_model::event::EventRecord;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;
use brigade_runtime::{Runtime, RuntimeBuilder, Session};
use brigade_store::{EventQuery, MemoryStore, Store};

use crate::clock::PausedClock;

/// A runtime on paused time with one input per commit and an open session.
#[derive(Debug)]
pub struct TestRuntime {
    pub runtime: Runtime,
    pub session: Session,
    store: Arc<dyn Store>,
}

impl TestRuntime {
    /// The time at which a test begins.
    pub const START: Time = Time(1_800_000_000_000);

    /// Starts a runtime on a new memory store. `build` registers jobs and performers.
    pub async fn new(build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        Self::on_store(Arc::new(MemoryStore::new()), build).await
    }

    /// Starts a runtime on a store that may hold data already.
    ///
    /// # Panics
    /// Panics if the runtime does not start.
    pub async fn on_store(
        store: Arc<dyn Store>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let builder = Runtime::builder()
            .shared_store(store.clone())
            .clock(Arc::new(PausedClock::starting_at(Self::START)))
            .max_batch(1);
        let started = build(builder).start().await;
        let runtime =
            started.unwrap_or_else(|refusal| panic!("the runtime does not start: {refusal}"));
        let opened = runtime.session("test").await;
        let session =
            opened.unwrap_or_else(|refusal| panic!("the session does not open: {refusal}"));
        Self { runtime, session, store }
    }

    /// Submits one command. Returns the reply and the events that the session has got since.
    pub async fn submit(
        &self,
        command: Command,
    ) -> (Result<CommandReply, Refusal>, Vec<Arc<EventRecord>>) {
        let before = self.runtime.cursor();
        let reply = self.runtime.submit(self.session.id(), command).await;
        (reply, self.events_after(before).await)
    }

    /// Returns the session's events after a place.
    pub async fn events_after(&self, after: FeedCursor) -> Vec<Arc<EventRecord>> {
        let session = Some(self.session.id());
        let query = EventQuery { session, after, limit: usize::MAX };
        match self.store.events(&query).await {
            Ok(page) => page.items.into_iter().map(|item| item.record).collect(),
            Err(error) => panic!("reading events: {error}"),
        }
    }
}
