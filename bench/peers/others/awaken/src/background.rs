//! A manager of background tasks, with the inbox that receives their events.

use std::future::Future;
use std::sync::Arc;

use awaken_runtime::StateStore;
use awaken_runtime::extensions::background::{
    BackgroundTaskManager, BackgroundTaskPlugin, TaskContext, TaskId, TaskParentContext, TaskResult,
};
use awaken_runtime::inbox::{InboxReceiver, inbox_channel};
use peers_harness::BoxError;
use serde_json::json;

/// The owner of all tasks.
pub(crate) const THREAD: &str = "thread";

/// A manager and the inbox of its owner.
pub(crate) struct Background {
    pub(crate) manager: Arc<BackgroundTaskManager>,
    events: InboxReceiver,
}

impl Background {
    pub(crate) fn start() -> Result<Self, BoxError> {
        let manager = Arc::new(BackgroundTaskManager::new());
        let store = StateStore::new();
        store.install_plugin(BackgroundTaskPlugin::with_store(manager.clone(), store.clone()))?;
        let (sender, events) = inbox_channel();
        manager.set_owner_inbox(sender);
        Ok(Self { manager, events })
    }

    /// Spawns a task below a parent, if there is one.
    pub(crate) async fn spawn<F, Fut>(
        &self,
        parent: Option<&TaskId>,
        body: F,
    ) -> Result<TaskId, BoxError>
    where
        F: FnOnce(TaskContext) -> Fut + Send + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        let parent = TaskParentContext { task_id: parent.cloned(), ..Default::default() };
        Ok(self.manager.spawn(THREAD, "work", None, "Do nothing.", parent, body).await?)
    }

    /// Waits for this number of events. A task has one at its end, and those that it emits.
    pub(crate) async fn wait_for_events(&mut self, count: usize) -> Result<(), BoxError> {
        for _ in 0..count {
            self.events.recv_or_cancel(None).await.ok_or("the inbox is closed")?;
        }
        Ok(())
    }
}

/// The work of a task that ends at once.
pub(crate) async fn do_nothing(_context: TaskContext) -> TaskResult {
    TaskResult::Success(json!(null))
}

/// The work of a task that reports its start and runs until it is cancelled.
pub(crate) async fn run_until_cancelled(context: TaskContext) -> TaskResult {
    context.emit("running", json!(null));
    context.cancel_token.cancelled().await;
    TaskResult::Cancelled
}
