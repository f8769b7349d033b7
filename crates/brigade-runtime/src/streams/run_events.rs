//! The events of one run, up to its end.

use std::collections::BTreeSet;

use brigade_model::command::Caller;
use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Owner, RunNo, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;

use crate::feed::{FeedSubscription, FeedUpdate};
use crate::session::Session;
use crate::task_handle::TaskHandle;

/// A reader of the events of a task and its descendants, from the handle's request to the end of
/// its run.
#[derive(Debug)]
pub(crate) struct RunEvents {
    session: Session,
    feed: FeedSubscription,
    no: TaskNo,
    run: RunNo,
    /// The task and its descendants so far.
    tasks: BTreeSet<TaskNo>,
    end: RunEnd,
}

/// The end of the events.
#[derive(Debug)]
enum RunEnd {
    /// The run may have ended before the first event.
    Unchecked,
    /// The run's end is among the events to come.
    ByEvent,
    /// The run has ended, and its events are before this place.
    At(FeedCursor),
    Reached,
}

impl RunEvents {
    pub(crate) fn new<T>(task: &TaskHandle<T>) -> Self {
        let session = task.session.clone();
        let feed = session.subscribe(task.since.clone());
        // A job that is replayed gets a handle of a child that it spawned long ago.
        let spawned_since = !task.existing && !matches!(session.caller, Caller::Task { .. });
        let end = if spawned_since { RunEnd::ByEvent } else { RunEnd::Unchecked };
        let mut tasks = BTreeSet::from([task.no]);
        // A child has a higher number than its owner, unless it was passed on.
        for StoredTask { no, row } in session.view.list(None) {
            if row.owner.task().is_some_and(|owner| tasks.contains(&owner)) {
                tasks.insert(no);
            }
        }
        Self { session, feed, no: task.no, run: task.run, tasks, end }
    }

    pub(crate) fn cursor(&self) -> FeedCursor {
        self.feed.cursor()
    }

    /// Returns the next update, or `None` after the end of the run.
    pub(crate) async fn next(&mut self) -> Result<Option<FeedUpdate>, Refusal> {
        loop {
            let end = match &self.end {
                RunEnd::Unchecked => {
                    self.check_end().await;
                    continue;
                }
                RunEnd::ByEvent => None,
                RunEnd::At(cursor) => Some(cursor),
                RunEnd::Reached => return Ok(None),
            };
            let Some(update) = self.feed.next_to(end).await? else { return Ok(None) };
            match &update {
                FeedUpdate::Event(item) => {
                    if is_end_of(&item.record.event, self.no, self.run) {
                        self.end = RunEnd::Reached;
                    }
                    if !self.is_shown(&item.record.event) {
                        continue;
                    }
                }
                // The end may be among the events that are not stored any more.
                FeedUpdate::Gap { .. } => self.end = RunEnd::Unchecked,
            }
            return Ok(Some(update));
        }
    }

    async fn check_end(&mut self) {
        let task = self.session.get(self.no).await;
        let runs = task.is_ok_and(|StoredTask { row, .. }| row.run == self.run && row.is_alive());
        self.end = match runs {
            true => RunEnd::ByEvent,
            // The row may be newer than the feed, which gets the events of a commit after its rows.
            false => RunEnd::At(self.session.runtime.inner.feed.visible_cursor()),
        };
    }

    fn is_shown(&mut self, event: &Event) -> bool {
        let spawned = match event {
            Event::Spawned(spawned) => Some((spawned.no, spawned.owner)),
            Event::RunOpened { no, owner, .. } => Some((*no, *owner)),
            _ => None,
        };
        if let Some((no, Owner::Task(owner))) = spawned
            && self.tasks.contains(&owner)
        {
            self.tasks.insert(no);
        }
        match event {
            Event::Collected { runs } => runs.iter().any(|run| self.tasks.contains(&run.no)),
            event => event.task().is_some_and(|no| self.tasks.contains(&no)),
        }
    }
}

fn is_end_of(event: &Event, no: TaskNo, run: RunNo) -> bool {
    matches!(event, Event::Ended { no: ended, run: of, .. } if *ended == no && *of == run)
}

impl Session {
    /// Returns when a run has ended, or when no event can tell that any more.
    #[cfg(feature = "processes")]
    pub(crate) async fn wait_run_end(&self, no: TaskNo, run: RunNo) {
        let mut feed = self.subscribe(self.runtime.cursor());
        while let Ok(StoredTask { row, .. }) = self.get(no).await {
            if row.run > run || row.ended().is_some() {
                return;
            }
            loop {
                match feed.next().await {
                    Some(Ok(FeedUpdate::Event(item)))
                        if !is_end_of(&item.record.event, no, run) => {}
                    Some(Ok(_)) => break,
                    Some(Err(_)) | None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use brigade_model::event::Event;
    use brigade_model::refusal::Refusal;
    use futures_util::stream::{BoxStream, Stream};
    use futures_util::{FutureExt, StreamExt};

    use crate::feed::FeedUpdate;
    use crate::{JobContext, JobError, NewTask, Runtime};

    /// The items of a stream that is read as far as it is ready.
    struct ReadyReader<T> {
        stream: BoxStream<'static, Result<T, Refusal>>,
        items: Vec<T>,
        has_ended: bool,
    }

    impl<T> ReadyReader<T> {
        fn new(
            stream: impl Stream<Item = Result<T, Refusal>> + Send + 'static,
        ) -> Arc<Mutex<Self>> {
            let stream = stream.boxed();
            Arc::new(Mutex::new(Self { stream, items: Vec::new(), has_ended: false }))
        }

        fn read_ready(&mut self) {
            while !self.has_ended
                && let Some(next) = self.stream.next().now_or_never()
            {
                match next {
                    Some(item) => self.items.push(item.unwrap()),
                    None => self.has_ended = true,
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_opens_between_the_row_and_the_event_of_the_end_has_the_end() {
        let runtime = Runtime::builder().start().await.unwrap();
        let session = runtime.session("kitchen").await.unwrap();
        let bake = || {
            let job = NewTask::closure("bake", |ctx: JobContext| async move {
                ctx.receive().await?;
                ctx.progress(60).await?;
                Ok::<_, JobError>("bread")
            });
            job.key("bread")
        };
        let first = session.spawn(bake()).await.unwrap();
        let again = session.spawn(bake()).await.unwrap();
        assert!(again.existed());
        let events = ReadyReader::new(again.events());
        let notes = ReadyReader::new(again.progress::<u32>());
        let no = again.no();
        let view = session.view.clone();
        let read_events = events.clone();
        let read_notes = notes.clone();
        let has_opened = Arc::new(AtomicBool::new(false));
        let opened = has_opened.clone();
        runtime.inner.feed.call_before_publish(move || {
            let has_ended = view.get(no).is_some_and(|row| !row.is_alive());
            if has_ended && !opened.swap(true, Ordering::SeqCst) {
                read_events.lock().unwrap().read_ready();
                read_notes.lock().unwrap().read_ready();
            }
        });
        first.send("go").await.unwrap();
        first.wait().await.unwrap();
        assert!(has_opened.load(Ordering::SeqCst));

        let mut events = events.lock().unwrap();
        events.read_ready();
        assert!(events.has_ended);
        let is_end = |update: &FeedUpdate| {
            let FeedUpdate::Event(item) = update else { return false };
            matches!(item.record.event, Event::Ended { .. })
        };
        let ends: Vec<bool> = events.items.iter().map(is_end).collect();
        assert_eq!(ends.iter().filter(|is_end| **is_end).count(), 1);
        assert_eq!(ends.last(), Some(&true));
        let position = |update: &FeedUpdate| match update {
            FeedUpdate::Event(item) => item.position.no,
            FeedUpdate::Gap { to } => panic!("a gap to {to}"),
        };
        let positions: Vec<_> = events.items.iter().map(position).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "no event twice");

        let mut notes = notes.lock().unwrap();
        notes.read_ready();
        assert!(notes.has_ended);
        assert_eq!(notes.items, [60]);
    }
}
