//! Sends pending notifications: makes their attempts, and stores what came of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;
use brigade_runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::command_delivery::run_command;
use super::notifier::{Notifier, NotifierSet, NotifierTarget};
use super::pending_notification::{
    DeliveryState, PendingNotification, QueuedNotification, StoredPending,
};
use super::retry_policy::RetryPolicy;
use super::send_queue::SendQueue;
use super::webhook_delivery::WebhookClients;

/// The attempts to notify, by notifier and result.
const NOTIFICATIONS: &str = "brigade_notifications_total";

/// The time for attempts to end when the daemon shuts down. The next daemon repeats the others.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// The pause after an error of the store.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// The number of rejections after which a notification is given up.
const REJECTIONS_MAX: u32 = 3;
/// The number of times that a change of a record is tried.
const STORE_TRIES: usize = 5;

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeliveryResult {
    Delivered,
    /// Another attempt may succeed, after the pause that the receiver asked for.
    Failed {
        problem: String,
        retry_after: Option<Duration>,
    },
    /// The receiver does not want the notification. A few more attempts show whether that was for a
    /// moment only.
    Rejected(String),
}

impl DeliveryResult {
    pub(super) fn failed(problem: impl Into<String>) -> Self {
        Self::Failed { problem: problem.into(), retry_after: None }
    }
}

pub(super) struct Sender {
    runtime: Runtime,
    notifiers: Arc<NotifierSet>,
    created: mpsc::Receiver<QueuedNotification>,
    queue: SendQueue,
    webhooks: Arc<WebhookClients>,
    /// The number of pending notifications, for others.
    pending_count: Arc<AtomicUsize>,
}

/// The change of a record after an attempt.
#[derive(Clone, Copy)]
enum RecordChange<'a> {
    Remove,
    Replace(&'a PendingNotification),
    GiveUp(&'a PendingNotification),
}

/// The end of one attempt.
struct Attempted {
    queued: QueuedNotification,
    next: Option<Time>,
}

impl Sender {
    /// Creates a sender of all stored notifications and of those that the reader creates.
    pub(super) async fn open(
        runtime: Runtime,
        notifiers: Arc<NotifierSet>,
        created: mpsc::Receiver<QueuedNotification>,
        pending_count: Arc<AtomicUsize>,
    ) -> Result<Self, Refusal> {
        let mut queue = SendQueue::default();
        let add = |pending: &PendingNotification| queue.add(pending.queued());
        PendingNotification::visit(&runtime, DeliveryState::Pending, add).await?;
        let webhooks = Arc::default();
        Ok(Self { runtime, notifiers, created, queue, webhooks, pending_count })
    }

    /// Sends until the shutdown, or until an attempt panics. Attempts that run at the shutdown have a
    /// short time to end.
    pub(super) async fn run(mut self, shutdown: &CancellationToken) -> Result<(), Refusal> {
        let mut attempts = JoinSet::new();
        loop {
            self.pending_count.store(self.queue.len(), Ordering::Relaxed);
            let clock = self.runtime.clock();
            while let Some(queued) = self.queue.take_due(clock.now()) {
                let notifier = self.notifiers.find(&queued.notifier).cloned();
                attempts.spawn(attempt(
                    self.runtime.clone(),
                    self.webhooks.clone(),
                    notifier,
                    queued,
                ));
            }
            let next_due = async {
                match self.queue.next_due() {
                    Some(due) => clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(ended) = attempts.join_next() => {
                    // The next sender lists all records, and makes the attempt again.
                    let Attempted { queued, next } = ended.map_err(|error| {
                        Refusal::internal(format!("an attempt to notify ended early: {error}"))
                    })?;
                    self.queue.finish(&queued, next);
                }
                Some(created) = self.created.recv() => self.queue.add(created),
                () = next_due => {}
            }
        }
        let ended = async { while attempts.join_next().await.is_some() {} };
        let _ = timeout(SHUTDOWN_GRACE, ended).await;
        Ok(())
    }
}

/// Makes one attempt, and stores its result.
async fn attempt(
    runtime: Runtime,
    webhooks: Arc<WebhookClients>,
    notifier: Option<Arc<Notifier>>,
    queued: QueuedNotification,
) -> Attempted {
    let now = || runtime.clock().now();
    let stored = match PendingNotification::read(&runtime, &queued.record).await {
        Ok(Some(stored)) => stored,
        // It was delivered, or given up.
        Ok(None) => return Attempted { queued, next: None },
        Err(problem) => {
            tracing::warn!(%problem, "a notification cannot be read");
            return Attempted { queued, next: Some(now().after(STORE_PAUSE.into())) };
        }
    };
    if stored.pending.next_attempt_at > now() {
        return Attempted { queued, next: Some(stored.pending.next_attempt_at) };
    }
    let result = match &notifier {
        Some(notifier) => deliver(notifier, &webhooks, &stored.pending, now()).await,
        None => DeliveryResult::failed("no notifier of this name is configured"),
    };
    let retry = notifier.map(|notifier| notifier.retry).unwrap_or_default();
    let next = match result {
        DeliveryResult::Delivered => {
            count_attempt(&queued.notifier, "delivered");
            store_result(&runtime, &stored, RecordChange::Remove).await;
            None
        }
        DeliveryResult::Failed { problem, retry_after } => {
            let failure = FailedAttempt { problem, retry_after, is_rejection: false };
            store_failure(&runtime, &stored, retry, failure).await
        }
        DeliveryResult::Rejected(problem) => {
            let failure = FailedAttempt { problem, retry_after: None, is_rejection: true };
            store_failure(&runtime, &stored, retry, failure).await
        }
    };
    Attempted { queued, next }
}

async fn deliver(
    notifier: &Notifier,
    webhooks: &WebhookClients,
    pending: &PendingNotification,
    now: Time,
) -> DeliveryResult {
    match &notifier.target {
        NotifierTarget::Command(command) => {
            run_command(command, &pending.notification, notifier.timeout).await
        }
        NotifierTarget::Webhook(webhook) => {
            webhooks.post(notifier, webhook, &pending.notification, now).await
        }
    }
}

/// The failure of one attempt.
struct FailedAttempt {
    problem: String,
    retry_after: Option<Duration>,
    is_rejection: bool,
}

/// Stores a failed attempt, or gives the notification up. Returns the time of the next attempt.
async fn store_failure(
    runtime: &Runtime,
    stored: &StoredPending,
    retry: RetryPolicy,
    failure: FailedAttempt,
) -> Option<Time> {
    let FailedAttempt { problem, retry_after, is_rejection } = failure;
    let mut pending = stored.pending.clone();
    pending.attempts = pending.attempts.saturating_add(1);
    pending.last_problem = Some(problem.clone());
    let now = runtime.clock().now();
    let pause = retry.pause_after(pending.attempts, brigade_runtime::new_lease_holder());
    let pause = pause.max(retry_after.unwrap_or_default());
    let next = retry.next_attempt(pending.created_at, now, pause);
    let next = next.filter(|_| !is_rejection || pending.attempts < REJECTIONS_MAX);
    let notifier = &pending.notification.notifier;
    let key = &pending.notification.key;
    match next {
        Some(next) => {
            let attempts = pending.attempts;
            count_attempt(notifier, "failed");
            tracing::warn!(notifier, key, attempts, problem, ?pause, "a notification failed");
            let pending = PendingNotification { next_attempt_at: next, ..pending };
            store_result(runtime, stored, RecordChange::Replace(&pending)).await;
        }
        None => {
            let attempts = pending.attempts;
            count_attempt(notifier, "dead_letter");
            tracing::error!(notifier, key, attempts, problem, "a notification was given up");
            store_result(runtime, stored, RecordChange::GiveUp(&pending)).await;
        }
    }
    next
}

fn count_attempt(notifier: &str, result: &'static str) {
    metrics::counter!(NOTIFICATIONS, "notifier" => notifier.to_owned(), "result" => result)
        .increment(1);
}

/// Changes a record, several times if the store fails. If it never succeeds, the next daemon makes
/// the attempt again.
async fn store_result(runtime: &Runtime, stored: &StoredPending, change: RecordChange<'_>) {
    for _ in 0..STORE_TRIES {
        let changed = match change {
            RecordChange::Remove => stored.remove(runtime).await,
            RecordChange::Replace(pending) => stored.replace(runtime, pending).await,
            RecordChange::GiveUp(pending) => stored.give_up(runtime, pending).await,
        };
        let Err(problem) = changed else { return };
        tracing::warn!(%problem, "a notification cannot be changed");
        sleep(STORE_PAUSE).await;
    }
}
