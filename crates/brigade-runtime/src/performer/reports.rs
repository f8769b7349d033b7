//! The reports that most performers need, in one call each, and performers behind an `Arc`.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use brigade_model::action::StartAction;
use brigade_model::command::{AttemptReport, WorkResult};
use brigade_model::ids::Attempt;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_model::work::Work;
use brigade_store::BoxFuture;
use serde::Serialize;

use crate::clock::Clock;
use crate::performer::{Delivery, Performer, ReconcileResult, Reporter, StopMode, TaskId};

impl Reporter {
    /// Ends the task as succeeded with this result. A result that is not JSON, or too large, ends
    /// it as failed with that reason.
    pub fn succeed<T: Serialize + ?Sized>(&self, result: &T) -> impl Future<Output = ()> + Send {
        let result = Json::of(result);
        async move {
            match result {
                Ok(result) => self.end(WorkResult::Returned(result)).await,
                Err(refusal) => self.fail(format!("the result cannot be stored: {refusal}")).await,
            }
        }
    }

    /// Ends the task as failed with this error.
    pub fn fail(&self, error: impl Display) -> impl Future<Output = ()> + Send {
        let failure = Failure::error(error.to_string());
        self.end(WorkResult::Failed { failure, partial: None })
    }

    /// Ends the task after a stop: nothing of its work is running any more.
    pub async fn stopped(&self) {
        self.end(WorkResult::Stopped { partial: None, spent: None }).await;
    }

    /// Stores a progress note, which replaces the last one.
    pub fn progress<T: Serialize + ?Sized>(
        &self,
        note: &T,
    ) -> impl Future<Output = Result<(), Refusal>> + Send {
        let note = Json::of(note);
        async move { self.report(AttemptReport::Progress(note?)).await.map(|_| ()) }
    }

    /// Stores the state of the work. The next attempt gets it by `StartAction::saved_state`, and
    /// `reconcile` finds it in the task's row.
    pub fn save_state<T: Serialize + ?Sized>(
        &self,
        state: &T,
    ) -> impl Future<Output = Result<(), Refusal>> + Send {
        let state = Json::of(state);
        async move { self.report(AttemptReport::State(state?)).await.map(|_| ()) }
    }

    async fn end(&self, result: WorkResult) {
        self.post(AttemptReport::Ended(result.into())).await;
    }
}

/// A performer that its program shares.
impl<P: Performer + ?Sized> Performer for Arc<P> {
    fn start(&self, start: StartAction, reporter: Reporter) {
        (**self).start(start, reporter);
    }

    fn resolve(&self, work: &Work) -> Option<Work> {
        (**self).resolve(work)
    }

    fn set_clock(&self, clock: Arc<dyn Clock>) {
        (**self).set_clock(clock);
    }

    fn deliver(&self, task: TaskId, attempt: Attempt, delivery: Delivery) {
        (**self).deliver(task, attempt, delivery);
    }

    fn stop(&self, task: TaskId, mode: StopMode) {
        (**self).stop(task, mode);
    }

    fn halt(&self, task: TaskId) {
        (**self).halt(task);
    }

    fn reconcile<'a>(
        &'a self,
        task: TaskId,
        row: &'a TaskRow,
        reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        (**self).reconcile(task, row, reporter)
    }

    fn tasks_with_data(&self) -> BoxFuture<'_, Vec<TaskId>> {
        (**self).tasks_with_data()
    }

    fn remove_data(&self, task: TaskId) -> BoxFuture<'_, ()> {
        (**self).remove_data(task)
    }

    fn remove_all(&self, tasks: Vec<TaskId>) -> BoxFuture<'_, ()> {
        (**self).remove_all(tasks)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        (**self).shutdown()
    }
}
