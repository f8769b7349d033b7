//! The notifications of a daemon: one reader of the feed and one sender, on one node of a fleet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_model::spec::RequestedNotifier;
use brigade_model::suggestion::find_nearest;
use brigade_protocol::requests::{ListNotifiersReply, NotifierInfo};
use brigade_runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::feed_place::FeedPlace;
use super::feed_reader::FeedReader;
use super::notifier::NotifierSet;
use super::pending_notification::{DeliveryState, PendingNotification};
use super::sender::Sender;
use super::sender_lease::SenderLease;

/// The notifications between reader and sender. More of them wait for the sender.
const CHANNEL_CAPACITY: usize = 256;
/// The pause after an error of the store, or of the reader.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The notifiers of a daemon, and the state of their service.
#[derive(Debug, Default)]
pub(crate) struct NotificationService {
    notifiers: OnceLock<Arc<NotifierSet>>,
    pending_count: Arc<AtomicUsize>,
}

impl NotificationService {
    /// Sets the notifiers, once and before the service runs.
    pub(crate) fn set_notifiers(&self, notifiers: NotifierSet) {
        let _ = self.notifiers.set(Arc::new(notifiers));
    }

    /// Refuses a notifier that is not configured.
    pub(crate) fn check_requested(&self, requested: &RequestedNotifier) -> Result<(), Refusal> {
        let notifiers = self.notifiers.get().cloned().unwrap_or_default();
        let name = match requested {
            _ if notifiers.is_empty() => {
                return Err(Refusal::invalid(
                    "no notifier is configured: write `notify` into the configuration of the \
                     daemon, and restart it",
                ));
            }
            RequestedNotifier::All => return Ok(()),
            RequestedNotifier::Named(name) => name,
        };
        if notifiers.find(name).is_some() {
            return Ok(());
        }
        let names: Vec<&str> = notifiers.iter().map(|notifier| &*notifier.name).collect();
        let near = find_nearest(name, names.iter().copied());
        let hint = match near {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the daemon has {}", names.join(", ")),
        };
        Err(Refusal::invalid(format!("no notifier is called {name:?}; {hint}")))
    }

    /// Returns whether this daemon has notifications to send.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending_count.load(Ordering::Relaxed) > 0
    }

    /// Returns the notifiers with what they have not delivered.
    pub(crate) async fn describe(&self, runtime: &Runtime) -> Result<ListNotifiersReply, Refusal> {
        let mut notifiers: BTreeMap<String, NotifierInfo> = BTreeMap::new();
        for notifier in self.notifiers.get().iter().flat_map(|set| set.iter()) {
            notifiers.entry(notifier.name.to_string()).or_default().is_configured = true;
        }
        for state in [DeliveryState::Pending, DeliveryState::DeadLetter] {
            let count = |one: &PendingNotification| {
                let info = notifiers.entry(one.notification.notifier.clone()).or_default();
                match state {
                    DeliveryState::Pending => info.pending += 1,
                    DeliveryState::DeadLetter => info.dead_letters += 1,
                }
                if one.last_problem.is_some() {
                    info.problem.clone_from(&one.last_problem);
                }
            };
            PendingNotification::visit(runtime, state, count).await?;
        }
        let (gaps, last_gap_at) = FeedPlace::read_gaps(runtime).await?;
        let named = notifiers.into_iter().map(|(name, info)| NotifierInfo { name, ..info });
        Ok(ListNotifiersReply {
            notifiers: named.collect(),
            gaps,
            last_gap_at: last_gap_at.map(|time| time.0),
        })
    }

    /// Creates and sends notifications until the shutdown.
    pub(crate) async fn run(&self, runtime: &Runtime, shutdown: &CancellationToken) {
        let notifiers = self.notifiers.get().cloned().unwrap_or_default();
        if notifiers.is_empty() {
            forget_place(runtime).await;
            return;
        }
        while !shutdown.is_cancelled() {
            let mut lease = tokio::select! {
                () = shutdown.cancelled() => return,
                lease = SenderLease::acquire(runtime) => lease,
            };
            let ended = tokio::select! {
                ended = self.send(runtime, notifiers.clone(), shutdown) => Some(ended),
                () = lease.keep(runtime) => None,
            };
            self.pending_count.store(0, Ordering::Relaxed);
            match ended {
                None => tracing::warn!("another node sends notifications from now on"),
                Some(ended) => {
                    if let Err(problem) = ended {
                        tracing::warn!(%problem, "notifications begin again");
                    }
                    lease.release(runtime).await;
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep(RETRY_PAUSE) => {}
            }
        }
    }

    /// Reads and sends until the shutdown or an error.
    async fn send(
        &self,
        runtime: &Runtime,
        notifiers: Arc<NotifierSet>,
        shutdown: &CancellationToken,
    ) -> Result<(), Refusal> {
        let (created, from_reader) = mpsc::channel(CHANNEL_CAPACITY);
        let pending_count = self.pending_count.clone();
        let sender = Sender::open(runtime.clone(), notifiers.clone(), from_reader, pending_count);
        let sender = sender.await?;
        let reader = FeedReader::open(runtime.clone(), notifiers, created).await?;
        tokio::select! {
            ended = sender.run(shutdown) => ended,
            Err(refusal) = reader.run() => Err(refusal),
        }
    }
}

/// Forgets the place in the feed of a daemon without notifiers, so that a notifier that is added
/// later gets no old events. Other nodes of a fleet may have notifiers.
async fn forget_place(runtime: &Runtime) {
    if runtime.is_in_fleet() {
        return;
    }
    if let Err(problem) = FeedPlace::remove(runtime).await {
        tracing::warn!(%problem, "the place of notifications cannot be removed");
    }
}
