//! The feed as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::refusal::Refusal;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};

use super::run_events::RunEvents;
use crate::feed::{FeedSubscription, FeedUpdate};
use crate::session::Session;
use crate::task_handle::TaskHandle;

/// A stream of updates. It ends when the runtime has shut down.
///
/// [`EventStream::cursor`] says where to go on after the stream was dropped.
pub struct EventStream {
    updates: BoxStream<'static, PositionedUpdate>,
    cursor: FeedCursor,
}

/// An update, and the place after which the next one comes.
struct PositionedUpdate {
    update: Result<FeedUpdate, Refusal>,
    cursor: FeedCursor,
}

impl FeedSubscription {
    /// Turns the subscription into a stream.
    pub fn into_stream(self) -> EventStream {
        let cursor = self.cursor();
        let updates = stream::unfold(self, |mut feed| async move {
            let update = feed.next().await?;
            let cursor = feed.cursor();
            Some((PositionedUpdate { update, cursor }, feed))
        });
        EventStream { updates: updates.boxed(), cursor }
    }
}

impl Session {
    /// Returns the events from now on that this caller sees. [`Session::subscribe`] starts at
    /// another place.
    ///
    /// ```
    /// use brigade_model::event::Event;
    /// use brigade_runtime::{FeedUpdate, NewTask, Runtime};
    /// use futures_util::StreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder().start().await?;
    /// let session = runtime.session("demo").await?;
    /// let mut events = session.events();
    /// let job = NewTask::closure("add", |_| async { Ok::<_, brigade_runtime::JobError>(2) });
    /// session.spawn(job).await?;
    /// while let Some(update) = events.next().await {
    ///     let FeedUpdate::Event(item) = update? else { continue };
    ///     if let Event::Ended { outcome, .. } = &item.record.event {
    ///         assert_eq!(outcome.label(), "succeeded");
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> EventStream {
        self.subscribe(self.runtime.cursor()).into_stream()
    }
}

impl<T> TaskHandle<T> {
    /// Returns the events of the task since the request that returned this handle. The end of the
    /// run is the last one. The operator also sees the events of descendants.
    ///
    /// ```
    /// # use brigade_runtime::{JobError, NewTask, Runtime};
    /// use futures_util::StreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder().start().await?;
    /// # let session = runtime.session("demo").await?;
    /// let task = session.spawn(NewTask::closure("add", |_| async { Ok::<_, JobError>(2) })).await?;
    /// // It is spawned, and it ends.
    /// assert_eq!(task.events().count().await, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> EventStream {
        let events = RunEvents::new(self);
        let cursor = events.cursor();
        let updates = stream::unfold(events, |mut events| async move {
            let update = events.next().await.transpose()?;
            let cursor = events.cursor();
            Some((PositionedUpdate { update, cursor }, events))
        });
        EventStream { updates: updates.boxed(), cursor }
    }
}

impl EventStream {
    /// Returns the place after the last update, for [`Session::subscribe`].
    pub fn cursor(&self) -> FeedCursor {
        self.cursor.clone()
    }
}

impl Stream for EventStream {
    type Item = Result<FeedUpdate, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.updates.poll_next_unpin(context));
        Poll::Ready(next.map(|next| {
            self.cursor = next.cursor;
            next.update
        }))
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
