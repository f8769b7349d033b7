//! The changes of one task.

use a2a::{StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::TaskId;
use brigade_runtime::FeedSubscription;
use futures_util::FutureExt;

use super::agent_call::{AgentCall, TaskForm};
use crate::http::a2a::task_status::artifacts_of;

/// The number of events that are taken for one look at the task.
const BATCH_EVENTS: usize = 256;

/// A reader of the changes of one task. Dropping a future of it loses nothing.
#[derive(Debug)]
pub(crate) struct TaskWatch {
    call: AgentCall,
    id: TaskId,
    feed: FeedSubscription,
    /// The task as last seen. Its artifacts are not in it before the end.
    last: Task,
    /// An event arrived after the last look.
    has_changed: bool,
}

impl TaskWatch {
    pub(crate) async fn open(call: AgentCall, id: TaskId, form: TaskForm) -> Result<Self, Refusal> {
        let runtime = &call.state.daemon.runtime;
        // The position is read first, so that no change is missed. The operator's view has the
        // approvals of descendants.
        let position = runtime.cursor();
        let feed = runtime.operator_session(id.session).await?.subscribe(position);
        let found = call.caller.task(id).await?;
        let last = call.describe(&found, form).await?;
        Ok(Self { call, id, feed, last, has_changed: false })
    }

    pub(crate) fn task(&self) -> &Task {
        &self.last
    }

    pub(crate) fn state(&self) -> &TaskState {
        &self.last.status.state
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        *self.state() == TaskState::InputRequired
    }

    /// Waits until the token of the caller is no longer valid.
    pub(crate) fn token_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let context = self.call.caller.reader().clone();
        async move { context.token_ended().await }
    }

    /// Waits for a change of the status. Returns its events, or none if the runtime shuts down.
    pub(crate) async fn next(&mut self) -> Result<Vec<StreamResponse>, Refusal> {
        loop {
            if self.has_changed {
                let events = self.look().await?;
                self.has_changed = false;
                if !events.is_empty() {
                    return Ok(events);
                }
            }
            match self.feed.next().await {
                Some(update) => update?,
                None => return Ok(Vec::new()),
            };
            self.has_changed = true;
            for _ in 0..BATCH_EVENTS {
                match self.feed.next().now_or_never() {
                    Some(Some(update)) => update?,
                    Some(None) | None => break,
                };
            }
        }
    }

    async fn look(&mut self) -> Result<Vec<StreamResponse>, Refusal> {
        let found = self.call.caller.task(self.id).await?;
        let status = self.call.facts(&found).status(&found.row);
        if status.state == self.last.status.state && status.message == self.last.status.message {
            return Ok(Vec::new());
        }
        if status.state.is_terminal() {
            self.call.collect(&found).await?;
        }
        let task_id = self.last.id.clone();
        let context_id = self.last.context_id.clone();
        let mut events = Vec::new();
        for artifact in artifacts_of(&found.row) {
            events.push(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: task_id.clone(),
                context_id: context_id.clone(),
                artifact,
                append: Some(false),
                last_chunk: Some(true),
                metadata: None,
            }));
        }
        self.last.status = status.clone();
        let event = TaskStatusUpdateEvent { task_id, context_id, status, metadata: None };
        events.push(StreamResponse::StatusUpdate(event));
        Ok(events)
    }
}
