//! Reads the feed, and creates the pending notifications of its events.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_runtime::{FeedSubscription, FeedUpdate, Runtime};
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::feed_place::FeedPlace;
use super::notification::NotableEvent;
use super::notifier::NotifierSet;
use super::pending_notification::{PendingNotification, QueuedNotification};

/// The number of updates after which the place is stored, at most.
const BATCH_UPDATES: usize = 256;
/// The time after which a place is stored although no event before it was notable. A crash repeats
/// the reading of these events.
const IDLE_PLACE_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after an error of the store, and while no record is free.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct FeedReader {
    runtime: Runtime,
    notifiers: Arc<NotifierSet>,
    created: mpsc::Sender<QueuedNotification>,
    place: FeedPlace,
    feed: FeedSubscription,
    /// The notifications whose records are stored, and which the sender gets after the place is.
    uncommitted: Vec<QueuedNotification>,
    /// The time at which the place is stored at last.
    store_place_at: Option<Instant>,
}

impl FeedReader {
    pub(super) async fn open(
        runtime: Runtime,
        notifiers: Arc<NotifierSet>,
        created: mpsc::Sender<QueuedNotification>,
    ) -> Result<Self, Refusal> {
        let place = FeedPlace::open(&runtime).await?;
        let feed = runtime.subscribe(place.cursor()?);
        let uncommitted = Vec::new();
        Ok(Self { runtime, notifiers, created, place, feed, uncommitted, store_place_at: None })
    }

    /// Reads until the feed ends, or until another sender has taken over.
    pub(super) async fn run(mut self) -> Result<(), Refusal> {
        loop {
            let update = tokio::select! {
                update = self.feed.next() => update,
                () = sleep_until_some(self.store_place_at) => {
                    self.store_place().await?;
                    continue;
                }
            };
            if !self.take_batch(update).await {
                return Ok(());
            }
            self.store_place_at.get_or_insert_with(|| Instant::now() + IDLE_PLACE_INTERVAL);
            if !self.uncommitted.is_empty() {
                self.store_place().await?;
            }
        }
    }

    /// Takes an update and those that are there already. Returns false at the end of the feed.
    async fn take_batch(&mut self, first: Option<Result<FeedUpdate, Refusal>>) -> bool {
        let mut update = first;
        let mut count = 0;
        loop {
            match update {
                None => return false,
                // The subscription continues at the same place.
                Some(Err(problem)) => {
                    tracing::warn!(%problem, "the feed cannot be read for notifications");
                    sleep(RETRY_PAUSE).await;
                    return true;
                }
                Some(Ok(update)) => self.take(update).await,
            }
            count += 1;
            if count == BATCH_UPDATES {
                return true;
            }
            match self.feed.next().now_or_never() {
                Some(next) => update = next,
                None => return true,
            }
        }
    }

    async fn take(&mut self, update: FeedUpdate) {
        match update {
            FeedUpdate::Event(item) => {
                let Some(event) = NotableEvent::of(&item.record) else { return };
                // The place does not move behind the event before its notifications are stored.
                while let Err(problem) = self.create_notifications(&event).await {
                    match problem.kind {
                        RefusalKind::Limit => tracing::warn!(
                            "too many notifications are pending; the next ones wait in the feed"
                        ),
                        RefusalKind::Unavailable | RefusalKind::Unknown => {
                            tracing::warn!(%problem, "a notification cannot be stored");
                        }
                        // Another attempt would fail as well, and hold up all later events.
                        _ => {
                            let session = event.session;
                            tracing::error!(%session, no = %event.no, %problem, "no notification");
                            return;
                        }
                    }
                    sleep(RETRY_PAUSE).await;
                }
            }
            FeedUpdate::Gap { to } => {
                tracing::error!(
                    %to,
                    "retention has removed events before notifications were created for them"
                );
                self.place.note_gap(self.runtime.clock().now());
            }
            // Other updates have no notifications.
            _ => {}
        }
    }

    async fn create_notifications(&mut self, event: &NotableEvent) -> Result<(), Refusal> {
        let session = match self.runtime.operator_session(event.session).await {
            Err(refusal) if refusal.kind == RefusalKind::NotFound => return Ok(()),
            session => session?,
        };
        let row = match session.get(event.no).await {
            Err(refusal) if refusal.kind == RefusalKind::NotFound => None,
            stored => Some(stored?.row),
        };
        let row = row.as_deref();
        if row.is_some_and(|row| row.spec.part_of_parent) {
            return Ok(());
        }
        let session = session.row();
        if event.is_granted(&session, row) {
            return Ok(());
        }
        let notification = event.describe(&session.name, row);
        let now = self.runtime.clock().now();
        let requested = row.and_then(|row| row.spec.notify.as_ref());
        for notifier in self.notifiers.iter() {
            if !notifier.selects(event.kind(), &notification.task, requested) {
                continue;
            }
            let mut notification = notification.clone();
            notification.notifier = notifier.name.to_string();
            let pending = PendingNotification::new(notification, now);
            // One that exists was created before a crash, or by a call that reported an error.
            pending.create(&self.runtime).await?;
            self.uncommitted.push(pending.queued());
        }
        Ok(())
    }

    /// Stores the place, and then passes the notifications before it to the sender.
    async fn store_place(&mut self) -> Result<(), Refusal> {
        let cursor: FeedCursor = self.feed.cursor();
        loop {
            match self.place.advance(&self.runtime, &cursor).await {
                Ok(()) => break,
                Err(refusal) if refusal.kind == RefusalKind::Conflict => return Err(refusal),
                Err(problem) => {
                    tracing::warn!(%problem, "the place of notifications cannot be stored");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
        self.store_place_at = None;
        for created in self.uncommitted.drain(..) {
            // A sender that has ended is followed by one that lists all records.
            let _ = self.created.send(created).await;
        }
        Ok(())
    }
}

async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
