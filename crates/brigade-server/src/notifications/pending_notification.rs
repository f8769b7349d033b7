//! A notification on its way to one notifier, as a record; and dead letters.

use std::time::Duration;

use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;
use brigade_runtime::Runtime;
use brigade_store::{
    ExpectedVersion, NewRecord, RecordKey, RecordKind, RecordQuery, RecordVersion,
};
use serde::{Deserialize, Serialize};

use super::notification::Notification;

const PENDING_KIND: RecordKind = RecordKind::from_static("notification");
const DEAD_KIND: RecordKind = RecordKind::from_static("notification-dead-letter");

/// The time for which a dead letter is stored.
const DEAD_LETTER_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A notification that was not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingNotification {
    pub(super) notification: Notification,
    pub(super) created_at: Time,
    /// The number of failed attempts.
    pub(super) attempts: u32,
    pub(super) next_attempt_at: Time,
    /// The problem of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_problem: Option<String>,
}

/// The place of a pending notification among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueuedNotification {
    pub(super) notifier: String,
    /// The key of its record.
    pub(super) record: String,
    pub(super) due: Time,
}

/// The state of a notification in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryState {
    Pending,
    /// It was given up.
    DeadLetter,
}

/// A pending notification as it was read.
#[derive(Clone, Debug)]
pub(super) struct StoredPending {
    pub(super) pending: PendingNotification,
    version: RecordVersion,
}

impl PendingNotification {
    pub(super) fn new(notification: Notification, now: Time) -> Self {
        Self {
            notification,
            created_at: now,
            attempts: 0,
            next_attempt_at: now,
            last_problem: None,
        }
    }

    pub(super) fn queued(&self) -> QueuedNotification {
        let Notification { notifier, key, .. } = &self.notification;
        QueuedNotification {
            notifier: notifier.clone(),
            record: format!("{notifier}/{key}"),
            due: self.next_attempt_at,
        }
    }

    /// Stores a new notification, unless it is stored already.
    pub(super) async fn create(&self, runtime: &Runtime) -> Result<(), Refusal> {
        let key = RecordKey::new(PENDING_KIND, self.queued().record)?;
        let record = NewRecord::new(key, encode(self)?)?;
        runtime.records().put(&record, ExpectedVersion::Absent).await.map(|_| ())
    }

    /// Returns a pending notification, or `None` if it was delivered or is a dead letter.
    pub(super) async fn read(
        runtime: &Runtime,
        record: &str,
    ) -> Result<Option<StoredPending>, Refusal> {
        let key = RecordKey::new(PENDING_KIND, record)?;
        let Some(found) = runtime.records().get(&key).await? else { return Ok(None) };
        Ok(Some(StoredPending { pending: decode(&found.value)?, version: found.version }))
    }

    /// Visits all notifications of a state.
    pub(super) async fn visit(
        runtime: &Runtime,
        state: DeliveryState,
        mut visit: impl FnMut(&Self),
    ) -> Result<(), Refusal> {
        let mut query = RecordQuery::new(match state {
            DeliveryState::Pending => PENDING_KIND,
            DeliveryState::DeadLetter => DEAD_KIND,
        });
        loop {
            let page = runtime.records().list(&query).await?;
            for item in &page.items {
                match decode(&item.record.value) {
                    Ok(pending) => visit(&pending),
                    // A newer version may have written it, and can send it.
                    Err(problem) => {
                        tracing::warn!(record = item.key, %problem, "a notification is skipped");
                    }
                }
            }
            match page.next {
                Some(next) => query = query.after(next),
                None => return Ok(()),
            }
        }
    }
}

impl StoredPending {
    /// Removes a notification after its delivery.
    pub(super) async fn remove(&self, runtime: &Runtime) -> Result<(), Refusal> {
        let key = RecordKey::new(PENDING_KIND, self.pending.queued().record)?;
        runtime.records().remove(&key, Some(self.version)).await.map(|_| ())
    }

    /// Stores a failed attempt. A record that another node has changed stays as it is.
    pub(super) async fn replace(
        &self,
        runtime: &Runtime,
        pending: &PendingNotification,
    ) -> Result<(), Refusal> {
        let key = RecordKey::new(PENDING_KIND, pending.queued().record)?;
        let record = NewRecord::new(key, encode(pending)?)?;
        runtime.records().put(&record, ExpectedVersion::Version(self.version)).await.map(|_| ())
    }

    /// Makes the notification a dead letter. A crash in between repeats it.
    pub(super) async fn give_up(
        &self,
        runtime: &Runtime,
        pending: &PendingNotification,
    ) -> Result<(), Refusal> {
        let key = RecordKey::new(DEAD_KIND, pending.queued().record)?;
        let record = NewRecord::new(key, encode(pending)?)?;
        let put =
            runtime.records().put_for(DEAD_LETTER_LIFETIME, record, ExpectedVersion::Any).await;
        if let Err(problem) = put {
            // Dead letters may not hold up what can be delivered. The log has this one.
            tracing::warn!(%problem, "a dead letter cannot be stored");
        }
        self.remove(runtime).await
    }
}

fn encode(pending: &PendingNotification) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(pending)
        .map_err(|error| Refusal::internal(format!("a record cannot be encoded: {error}")))
}

fn decode(value: &[u8]) -> Result<PendingNotification, Refusal> {
    serde_json::from_slice(value)
        .map_err(|error| Refusal::internal(format!("a stored notification is wrong: {error}")))
}
