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

/// Sets the number of loops from the variable `BRIGADE_TEST_LOOPS`, if it is there and the store has
/// several writers. So the same tests run with one loop and with several.
///
/// # Panics
/// Panics if the variable is not a number.
pub async fn with_test_loops(builder: RuntimeBuilder, store: &dyn Store) -> RuntimeBuilder {
    let Ok(loops) = std::env::var("BRIGADE_TEST_LOOPS") else { return builder };
    let Ok(loops) = loops.parse() else { panic!("BRIGADE_TEST_LOOPS is {loops}, not a number") };
    // A store with one writer has one lane, which it returns each time.
    let lanes = (store.open_lane().await, store.open_lane().await);
    match lanes {
        (Ok(one), Ok(other)) if one == other => builder,
        _ => builder.loops(loops),
    }
}

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
        let builder = with_test_loops(Runtime::builder(), &*store).await;
        Self::start(builder, store, build).await
    }

    /// Starts a runtime with one loop, for a test of its lane.
    ///
    /// # Panics
    /// Panics if the runtime does not start.
    pub async fn with_one_loop(
        store: Arc<dyn Store>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        Self::start(Runtime::builder().loops(1), store, build).await
    }

    async fn start(
        builder: RuntimeBuilder,
        store: Arc<dyn Store>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let builder = builder
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
