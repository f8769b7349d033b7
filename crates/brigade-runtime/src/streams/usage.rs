//! The tokens and the cost of a task.

use brigade_model::limits::Usage;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;

use crate::task_handle::TaskHandle;

/// The tokens and the cost of a task in all its runs, as of the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskUsage {
    /// The usage of the task itself.
    pub own: Usage,
    /// The usage of its descendants.
    pub descendants: Usage,
    /// The part of both that is an upper bound, because the real cost of a call is unknown.
    pub unknown: Usage,
    /// The amount reserved for a model call in progress. It is in none of the other fields.
    pub reserved: Usage,
}

impl TaskUsage {
    /// Returns the usage of the task and its descendants.
    pub fn total(&self) -> Usage {
        self.own.plus(self.descendants)
    }
}

impl From<&TaskRow> for TaskUsage {
    fn from(row: &TaskRow) -> Self {
        let Some(extras) = &row.extras else { return Self::default() };
        Self {
            own: row.own_usage(),
            descendants: extras.descendants_usage,
            unknown: extras.unknown_usage,
            reserved: extras.reserved,
        }
    }
}

impl<T> TaskHandle<T> {
    /// Returns the tokens and the cost so far, of the task itself and of its descendants.
    ///
    /// ```
    /// # use brigade_runtime::{JobError, NewTask, Runtime};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder().start().await?;
    /// # let session = runtime.session("demo").await?;
    /// let task = session.spawn(NewTask::closure("add", |_| async { Ok::<_, JobError>(2) })).await?;
    /// let usage = task.usage().await?;
    /// println!("{} tokens, {} of them by sub-agents", usage.total().tokens, usage.descendants.tokens);
    /// # assert!(usage.total().is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn usage(&self) -> Result<TaskUsage, Refusal> {
        let row = self.get().await?;
        Ok(TaskUsage::from(&*row))
    }
}
