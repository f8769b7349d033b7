//! Draining: the runtime accepts no new work and finishes what runs.

use std::time::Duration;

use brigade_model::command::{Caller, Command};
use brigade_model::decide::decide;
use brigade_model::event::Event;
use brigade_model::ids::Time;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskState;
use brigade_model::task_tree::TaskTree;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::error::shutdown_refusal;
use crate::loop_input::LoopInput;
use crate::performer::TaskId;
use crate::runtime::Runtime;

/// The result of [`Runtime::drain`].
#[derive(Clone, Debug, Default)]
pub struct DrainResult {
    /// The tasks that had not ended, by session and number.
    pub alive: Vec<AliveTask>,
}

/// A task that had not ended when a drain was over.
#[derive(Clone, Debug)]
pub struct AliveTask {
    pub task: TaskId,
    pub session: SessionName,
    /// The address within its session, such as `job:5`.
    pub address: String,
    pub state: TaskState,
}

impl DrainResult {
    /// Returns whether no task was running any more.
    pub fn is_drained(&self) -> bool {
        self.running().next().is_none()
    }

    /// Returns the tasks that were still running or stopping. A shutdown interrupts them.
    pub fn running(&self) -> impl Iterator<Item = &AliveTask> {
        self.alive
            .iter()
            .filter(|alive| matches!(alive.state, TaskState::Running | TaskState::Stopping(_)))
    }
}

/// The state of a drain in a loop.
#[derive(Debug, Default)]
pub(crate) struct DrainState {
    is_draining: bool,
    waiters: Vec<oneshot::Sender<()>>,
}

impl DrainState {
    pub(crate) fn begin(&mut self, waiter: oneshot::Sender<()>) {
        self.is_draining = true;
        self.waiters.push(waiter);
    }

    /// Answers those who wait for the end of the drain.
    pub(crate) fn finish(&mut self) {
        for waiter in self.waiters.drain(..) {
            let _ = waiter.send(());
        }
    }

    /// Refuses a command of a caller outside the runtime that would begin a run. A repeated spawn
    /// that finds its task by its key begins none.
    pub(crate) fn check(
        &self,
        tree: &TaskTree,
        command: &Command,
        now: Time,
    ) -> Result<(), Refusal> {
        if !self.is_draining || matches!(command.caller(), None | Some(Caller::Task { .. })) {
            return Ok(());
        }
        let decision = decide(tree, command, now.max(tree.row().now))?;
        let begins_run =
            |event: &Event| matches!(event, Event::Spawned(_) | Event::RunOpened { .. });
        match decision.drafts.iter().any(|draft| begins_run(&draft.event)) {
            true => Err(Refusal::unavailable(
                "the runtime drains and starts nothing new; try again when it has been started again",
            )),
            false => Ok(()),
        }
    }
}

impl Runtime {
    /// Accepts no new work and waits until no task runs, at most for this time.
    ///
    /// From now on, spawns by clients and the operator are refused as `unavailable`, and so are
    /// messages and resumes that would open a further run. Children of tasks may still start, and
    /// queued tasks start as slots become free. A suspended task, which waits for a timer, a message
    /// or an approval, does not hold up the drain.
    ///
    /// Returns the tasks that are alive at the end. Call [`Runtime::shutdown`] afterwards. There is
    /// no way back to normal work.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use brigade_runtime::Runtime;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), brigade_model::refusal::Refusal> {
    /// let runtime = Runtime::builder().start().await?;
    /// let drained = runtime.drain(Duration::from_secs(30)).await?;
    /// for task in drained.running() {
    ///     eprintln!("{}/{} is interrupted", task.session, task.address);
    /// }
    /// runtime.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain(&self, timeout: Duration) -> Result<DrainResult, Refusal> {
        let mut drained = Vec::new();
        let clock = &self.inner.clock;
        let deadline = clock.now().after(timeout.into());
        let input = || {
            let (reply, received) = oneshot::channel();
            drained.push(received);
            LoopInput::Drain { reply }
        };
        if self.inner.inputs.send_all(input).await.contains(&false) {
            return Err(shutdown_refusal());
        }
        tokio::select! {
            biased;
            drained = join_all(drained) => {
                drained.into_iter().collect::<Result<Vec<()>, _>>().map_err(|_| shutdown_refusal())?;
            }
            () = clock.sleep_until(deadline) => {}
        }
        Ok(DrainResult { alive: self.inner.view.alive_tasks() })
    }
}
