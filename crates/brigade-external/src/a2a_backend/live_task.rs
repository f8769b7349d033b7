//! The remote tasks of attempts that run, and the end of those whose attempt is stopped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use a2a::Task;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::remote_client::{OutgoingMessage, RemoteClient, RemoteError};

/// The time in which the remote side must confirm the end of a task. It is shorter than the usual
/// grace period of a stop.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(4);
const CANCEL_PAUSE: Duration = Duration::from_millis(250);

/// The remote tasks of all attempts, by the key of their agent.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveTasks(Arc<Mutex<HashMap<Arc<str>, Arc<LiveTask>>>>);

impl LiveTasks {
    /// Adds an attempt. It is removed with the guard, unless it is stopped.
    pub(super) fn add(&self, key: Arc<str>, live: Arc<LiveTask>) -> LiveGuard {
        lock(&self.0).insert(key.clone(), live.clone());
        LiveGuard { tasks: self.clone(), key, live, is_kept: false }
    }

    /// Ends the remote task of a stopped attempt. Returns its description if it may still run.
    pub(super) async fn end(&self, key: &str) -> Option<String> {
        let live = lock(&self.0).get(key).cloned()?;
        let survivor = live.end().await;
        self.remove(key, &live);
        survivor
    }

    /// Removes an attempt, unless a later one has replaced it.
    fn remove(&self, key: &str, live: &Arc<LiveTask>) {
        let mut tasks = lock(&self.0);
        if tasks.get(key).is_some_and(|listed| Arc::ptr_eq(listed, live)) {
            tasks.remove(key);
        }
    }
}

/// An attempt in the list.
pub(super) struct LiveGuard {
    tasks: LiveTasks,
    key: Arc<str>,
    live: Arc<LiveTask>,
    /// True if the attempt remains in the list, since it may be stopped at this moment.
    pub(super) is_kept: bool,
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        if !self.is_kept && !self.live.stop.is_cancelled() {
            self.tasks.remove(&self.key, &self.live);
        }
    }
}

/// The remote task that goes on while an attempt runs.
#[derive(Debug)]
pub(super) struct LiveTask {
    client: Arc<RemoteClient>,
    stop: CancellationToken,
    /// Messages that are being sent. They outlive the attempt.
    sends: TaskTracker,
    state: Mutex<LiveState>,
}

#[derive(Debug, Default)]
struct LiveState {
    id: Option<String>,
    /// True if a message may have started a task whose id is not known.
    is_unsure: bool,
    /// True if the end of the task was not confirmed in time.
    is_given_up: bool,
}

impl LiveTask {
    pub(super) fn new(client: Arc<RemoteClient>, stop: CancellationToken) -> Self {
        Self { client, stop, sends: TaskTracker::new(), state: Mutex::default() }
    }

    pub(super) fn set(&self, id: &str) {
        lock(&self.state).id = Some(id.to_owned()).filter(|id| !id.is_empty());
    }

    /// Notes that an earlier attempt may have sent a message whose task is not known.
    pub(super) fn set_unsure(&self) {
        lock(&self.state).is_unsure = true;
    }

    pub(super) fn id(&self) -> Option<String> {
        lock(&self.state).id.clone()
    }

    pub(super) fn take(&self) -> Option<String> {
        lock(&self.state).id.take()
    }

    /// Sends a message. The request goes on if the attempt is dropped.
    pub(super) async fn send(
        self: &Arc<Self>,
        message: OutgoingMessage,
    ) -> Result<Task, RemoteError> {
        let live = self.clone();
        let sending = self.sends.spawn(async move {
            let was_unsure = std::mem::replace(&mut lock(&live.state).is_unsure, true);
            let sent = live.client.send(&message).await;
            if let Some(late) = live.note_sent(&sent, was_unsure) {
                live.client.cancel_logged(&late).await;
            }
            sent
        });
        let interrupted =
            |error: tokio::task::JoinError| RemoteError::Interrupted(error.to_string());
        sending.await.map_err(interrupted)?
    }

    /// Notes the answer to a message. Returns the task that nobody waits for any more, if it is one.
    fn note_sent(&self, sent: &Result<Task, RemoteError>, was_unsure: bool) -> Option<String> {
        let mut state = lock(&self.state);
        state.is_unsure = match sent {
            Ok(_) | Err(RemoteError::Refused { .. }) => false,
            // This message was not sent, but an earlier one may have been.
            Err(RemoteError::NotConnected(_)) => was_unsure,
            Err(RemoteError::Interrupted(_)) => true,
        };
        let id = sent.as_ref().ok().map(|task| task.id.clone()).filter(|id| !id.is_empty())?;
        state.id = Some(id.clone());
        state.is_given_up.then_some(id)
    }

    /// Cancels the task, and waits until the remote side confirms that it has ended.
    async fn end(&self) -> Option<String> {
        self.sends.close();
        let mut problem = "there was no answer in time".to_owned();
        let ended = timeout(CANCEL_TIMEOUT, self.try_end(&mut problem)).await;
        let mut state = lock(&self.state);
        state.is_given_up = ended.is_err();
        let name = match &state.id {
            Some(id) => format!("remote task {id}"),
            None if state.is_unsure => "a remote task whose id is not known".to_owned(),
            None => return None,
        };
        match ended {
            Ok(CancelResult::Ended) => None,
            Ok(CancelResult::Refused) | Err(_) => {
                Some(format!("{name} at {} may still run: {problem}", self.client.url()))
            }
        }
    }

    async fn try_end(&self, problem: &mut String) -> CancelResult {
        // A message to this task may be on its way, and may be answered only when the task ends.
        let known = self.id();
        let ended = match &known {
            Some(id) => self.cancel(id, problem).await,
            None => CancelResult::Refused,
        };
        // A message on its way may start another task.
        self.sends.wait().await;
        match self.id() {
            Some(id) if known.as_ref() != Some(&id) => self.cancel(&id, problem).await,
            _ => ended,
        }
    }

    /// Cancels a task until the remote side says that it has ended, or refuses.
    async fn cancel(&self, id: &str, problem: &mut String) -> CancelResult {
        let mut is_accepted = false;
        loop {
            let found = match is_accepted {
                true => self.client.get(id).await,
                false => self.client.cancel(id).await,
            };
            match found {
                Ok(task) if task.status.state.is_terminal() => return CancelResult::Ended,
                Ok(_) => {
                    is_accepted = true;
                    "its end was not confirmed in time".clone_into(problem);
                }
                // A task that has ended by itself cannot be canceled.
                Err(RemoteError::Refused { text, .. }) => {
                    *problem = text;
                    let found = self.client.get(id).await;
                    return match found.is_ok_and(|task| task.status.state.is_terminal()) {
                        true => CancelResult::Ended,
                        false => CancelResult::Refused,
                    };
                }
                Err(RemoteError::NotConnected(text) | RemoteError::Interrupted(text)) => {
                    *problem = text;
                }
            }
            sleep(CANCEL_PAUSE).await;
        }
    }
}

/// The reply of the remote side to a cancellation.
enum CancelResult {
    Ended,
    Refused,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_live() -> Arc<LiveTask> {
        let client = RemoteClient::new("http://127.0.0.1:9").unwrap();
        Arc::new(LiveTask::new(Arc::new(client), CancellationToken::new()))
    }

    #[test]
    fn the_end_of_an_attempt_leaves_the_next_one_in_the_list() {
        let tasks = LiveTasks::default();
        let first = tasks.add("agent".into(), new_live());
        let next = new_live();
        let guard = tasks.add("agent".into(), next.clone());
        drop(first);
        assert!(Arc::ptr_eq(lock(&tasks.0).get("agent").unwrap(), &next));
        drop(guard);
        assert!(lock(&tasks.0).is_empty());
    }

    #[test]
    fn a_message_that_was_not_sent_leaves_an_earlier_one_unsure() {
        let live = new_live();
        let not_connected = Err(RemoteError::NotConnected("refused".into()));
        for was_unsure in [true, false] {
            assert_eq!(live.note_sent(&not_connected, was_unsure), None);
            assert_eq!(lock(&live.state).is_unsure, was_unsure);
        }
        let interrupted = Err(RemoteError::Interrupted("reset".into()));
        live.note_sent(&interrupted, false);
        assert!(lock(&live.state).is_unsure);
        let refused = Err(RemoteError::Refused { code: -32600, text: "no".into() });
        live.note_sent(&refused, true);
        assert!(!lock(&live.state).is_unsure);
    }
}
