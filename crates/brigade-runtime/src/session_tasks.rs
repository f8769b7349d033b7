//! The tasks of a session as its caller sees them: one by its address, lists, and handles.

use std::sync::Arc;

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::call::SpawnedTask;
use brigade_model::command::Caller;
use brigade_model::ids::{Owner, RunNo, TaskNo};
use brigade_model::name::TaskName;
use brigade_model::refusal::Refusal;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_store::{RunRow, TaskQuery};

use crate::error::store_refusal;
use crate::session::Session;
use crate::task_handle::TaskHandle;

impl Session {
    /// Returns a handle of an existing task, by its number, its address or its name. Its result is
    /// JSON; [`TaskHandle::typed`] declares its type.
    ///
    /// A task that does not exist is refused as `NotFound`, and one that this caller does not see
    /// as `Forbidden`. A handle is of the latest run, so an address of an earlier run is refused as
    /// `Ended`: [`Session::earlier_run`] reads its outcome.
    ///
    /// ```
    /// use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder().start().await?;
    /// # let session = runtime.session("kitchen").await?;
    /// let bake = NewTask::closure("bake", |ctx: JobContext| async move {
    ///     Ok::<_, JobError>(ctx.receive().await?.body.decode::<u32>()?)
    /// });
    /// let no = session.spawn(bake.name("Bread")).await?.no();
    ///
    /// let bread = session.task("Bread").await?.typed::<u32>();
    /// bread.send(180).await?;
    /// assert_eq!(bread.result().await?, 180);
    /// assert_eq!(session.task("job:1").await?.no(), no);
    /// assert!(session.task("Cake").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn task(
        &self,
        task: impl TryInto<TaskRef, Error: Into<Refusal>>,
    ) -> Result<TaskHandle, Refusal> {
        let since = self.runtime.cursor();
        let task: TaskRef = task.try_into().map_err(Into::into)?;
        let run = task.run;
        let found = self.get(task).await?;
        let latest = found.row.run;
        if let Some(run) = run.filter(|run| *run != latest) {
            return Err(Refusal::ended(format!(
                "run {run} of {} is over, and its latest is {latest}; read its outcome with \
                 `earlier_run`",
                found.address()
            )));
        }
        let kind = found.row.spec.work.kind();
        let spawned = SpawnedTask { no: found.no, run: latest, kind, existing: true };
        Ok(self.spawned_handle(spawned, since))
    }

    /// Returns a task as of the last commit: from memory, or from the store if it was evicted.
    pub async fn get(
        &self,
        task: impl TryInto<TaskRef, Error: Into<Refusal>>,
    ) -> Result<StoredTask, Refusal> {
        let task: TaskRef = task.try_into().map_err(Into::into)?;
        let found = match &task.selector {
            TaskSelector::Number(no) | TaskSelector::KindAndNumber(_, no) => {
                match self.view.get(*no) {
                    Some(row) => StoredTask::new(*no, row),
                    None => StoredTask::new(*no, self.load_task(*no).await?),
                }
            }
            TaskSelector::Name(name) => self.find_by_name(name).await?,
        };
        if let TaskSelector::KindAndNumber(kind, no) = &task.selector
            && found.row.spec.work.kind() != *kind
        {
            return Err(Refusal::not_found(format!(
                "there is no {kind}:{no}; {no} is {}",
                found.address()
            )));
        }
        if !self.may_see(&found.row) {
            return Err(Refusal::forbidden(format!("{} is not yours", found.address())));
        }
        match task.run {
            Some(run) if run == RunNo::NONE || run > found.row.run => Err(Refusal::not_found(
                format!("{} has no run {run}; its latest is {}", found.address(), found.row.run),
            )),
            _ => Ok(found),
        }
    }

    pub(crate) async fn load_task(&self, no: TaskNo) -> Result<Arc<TaskRow>, Refusal> {
        let row =
            self.runtime.inner.store.task(self.id, no).await.map_err(|e| store_refusal(&e))?;
        row.map(Arc::new).ok_or_else(|| Refusal::not_found(format!("there is no task {no}")))
    }

    async fn find_by_name(&self, name: &TaskName) -> Result<StoredTask, Refusal> {
        let mut alive = self.view.list(self.owner_scope());
        alive.retain(|StoredTask { row, .. }| {
            row.is_alive() && row.name.as_ref().is_some_and(|other| other.same_as(name))
        });
        if let Some(found) = alive.pop() {
            return Ok(found);
        }
        let store = &self.runtime.inner.store;
        let stored = store.task_named(self.id, self.owner_scope(), name).await;
        stored.map_err(|e| store_refusal(&e))?.ok_or_else(|| {
            Refusal::not_found(format!("no task here is called {:?}", name.as_str()))
        })
    }

    pub(crate) fn owner_scope(&self) -> Option<Owner> {
        match self.caller {
            Caller::Operator => None,
            Caller::Client(_) | Caller::Task { .. } => Some(self.caller.owner()),
        }
    }

    fn may_see(&self, row: &TaskRow) -> bool {
        self.owner_scope().is_none_or(|owner| row.owner == owner)
    }

    /// Returns the tasks in memory that this caller sees, by number: all that are alive, and all
    /// whose results nobody has collected.
    pub fn list(&self) -> Vec<StoredTask> {
        let mut tasks = self.view.list(self.owner_scope());
        // Some other ended tasks are in memory as the budget holders of tasks that they kept.
        tasks.retain(|task| self.is_listed(&task.row));
        tasks
    }

    fn is_listed(&self, row: &TaskRow) -> bool {
        let owner_takes = || match row.owner {
            Owner::Session => row.client.is_some(),
            Owner::Task(owner) => self.view.get(owner).is_some_and(|owner| owner.is_alive()),
        };
        row.is_alive() || row.holds_slot() || !row.is_collected() && owner_takes()
    }

    /// Returns stored tasks, also those that have ended and were collected.
    pub async fn history(&self, query: &TaskQuery) -> Result<Vec<StoredTask>, Refusal> {
        let query = TaskQuery { owner: self.owner_scope().or(query.owner), ..query.clone() };
        self.runtime.inner.store.tasks(self.id, &query).await.map_err(|e| store_refusal(&e))
    }

    /// Returns the outcome of an earlier run.
    pub async fn earlier_run(&self, no: TaskNo, run: RunNo) -> Result<Option<RunRow>, Refusal> {
        self.get(no).await?;
        self.runtime.inner.store.run(self.id, no, run).await.map_err(|e| store_refusal(&e))
    }
}
