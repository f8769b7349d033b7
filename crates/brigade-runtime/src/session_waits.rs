//! The waits of a session: for any or all of some tasks, with and without a timeout.

use std::future::Future;
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::call::{RunResult, WaitMode};
use brigade_model::command::CollectCommand;
use brigade_model::decide::CommandReply;
use brigade_model::ids::TaskNo;
use brigade_model::refusal::Refusal;
use tokio::sync::{mpsc, oneshot};

use crate::error::{cancelled_refusal, in_doubt_refusal, shutdown_refusal};
use crate::loop_input::{LoopInput, ReplyTo, SubmitResult, WaitInput};
use crate::session::{Session, unexpected_reply};

/// The result of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    Ended(Vec<RunResult>),
    /// The timeout passed while these tasks were running. Nothing was consumed.
    TimedOut(Vec<TaskNo>),
}

impl Session {
    /// Waits until any of these tasks has ended, and consumes the results of those that have.
    /// Without tasks, returns at once.
    pub async fn wait_any<T: Into<TaskRef>>(
        &self,
        tasks: impl IntoIterator<Item = T>,
    ) -> Result<Vec<RunResult>, Refusal> {
        self.wait_for(tasks.into_iter().map(Into::into).collect(), WaitMode::Any).await
    }

    /// Waits until all of these tasks have ended, and consumes their results. Without tasks, returns
    /// at once.
    pub async fn wait_all<T: Into<TaskRef>>(
        &self,
        tasks: impl IntoIterator<Item = T>,
    ) -> Result<Vec<RunResult>, Refusal> {
        self.wait_for(tasks.into_iter().map(Into::into).collect(), WaitMode::All).await
    }

    /// Waits for runs of this client whose results nobody has collected: for any or for all of them.
    /// Returns at once if there are none.
    pub async fn wait_uncollected(&self, mode: WaitMode) -> Result<Vec<RunResult>, Refusal> {
        let waited = self.wait_until(Vec::new(), mode, std::future::pending()).await?;
        waited.ok_or_else(|| Refusal::internal("a wait without a timeout timed out"))
    }

    /// Waits with a timeout. A wait that times out consumes nothing.
    pub async fn wait_within(
        &self,
        tasks: Vec<TaskRef>,
        mode: WaitMode,
        timeout: Duration,
    ) -> Result<WaitResult, Refusal> {
        let clock = &self.runtime.inner.clock;
        let timed_out = clock.sleep_until(clock.now().after(timeout.into()));
        let requested = tasks.clone();
        match self.wait_until(tasks, mode, timed_out).await? {
            Some(results) => Ok(WaitResult::Ended(results)),
            None => self.still_running(requested).await.map(WaitResult::TimedOut),
        }
    }

    /// Returns those of these tasks that are alive; without tasks, those of all that this caller
    /// sees.
    async fn still_running(&self, tasks: Vec<TaskRef>) -> Result<Vec<TaskNo>, Refusal> {
        let mut found = Vec::with_capacity(tasks.len());
        if tasks.is_empty() {
            found = self.list();
        }
        for task in tasks {
            found.push(self.get(task).await?);
        }
        let alive = found.into_iter().filter(|task| task.row.is_alive());
        Ok(alive.map(|task| task.no).collect())
    }

    async fn wait_for(
        &self,
        tasks: Vec<TaskRef>,
        mode: WaitMode,
    ) -> Result<Vec<RunResult>, Refusal> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let waited = self.wait_until(tasks, mode, std::future::pending()).await?;
        waited.ok_or_else(|| Refusal::internal("a wait without a timeout timed out"))
    }

    /// Waits until the future `timed_out` completes. Returns `None` then, and consumes nothing.
    /// Without tasks, waits for runs of this client whose results nobody has collected.
    pub async fn wait_until(
        &self,
        tasks: Vec<TaskRef>,
        mode: WaitMode,
        timed_out: impl Future<Output = ()>,
    ) -> Result<Option<Vec<RunResult>>, Refusal> {
        let collect = CollectCommand { caller: self.caller.clone(), tasks, mode };
        self.runtime.check_lease()?;
        let (reply, mut answer) = oneshot::channel();
        let id = self.runtime.next_wait_id();
        let wait = WaitInput {
            id,
            session: self.id,
            collect,
            origin: self.origin.clone(),
            cancellation: self.cancellation.clone(),
            reply: ReplyTo::Local(reply),
        };
        let inputs = self.runtime.inner.inputs.of(self.id);
        inputs.send(LoopInput::Wait(wait)).await.map_err(|_| shutdown_refusal())?;
        let mut cancel = CancelWaitOnDrop { id, inputs, armed: true };
        let end = tokio::select! {
            biased;
            answered = &mut answer => WaitEnd::Answered(answered),
            () = self.cancelled() => WaitEnd::Cancelled,
            () = timed_out => WaitEnd::TimedOut,
        };
        let answered = match end {
            WaitEnd::Answered(answered) => answered.map_err(|_| in_doubt_refusal())?,
            WaitEnd::Cancelled | WaitEnd::TimedOut => {
                // The loop may be delivering the result at this moment: only it can tell.
                inputs.send(LoopInput::CancelWait { id }).await.map_err(|_| shutdown_refusal())?;
                let answered = (&mut answer).await;
                cancel.armed = false;
                match (answered, end) {
                    (Ok(answered), _) => answered,
                    (Err(_), WaitEnd::Cancelled) => return Err(cancelled_refusal()),
                    (Err(_), _) => return Ok(None),
                }
            }
        };
        cancel.armed = false;
        match answered? {
            CommandReply::Results(results) => Ok(Some(results)),
            _ => Err(unexpected_reply()),
        }
    }

    pub(crate) async fn cancelled(&self) {
        match &self.cancellation {
            Some(cancellation) => cancellation.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

/// The first of the events that end a wait.
enum WaitEnd {
    Answered(Result<SubmitResult<CommandReply>, oneshot::error::RecvError>),
    Cancelled,
    TimedOut,
}

/// A guard that cancels a wait when its caller drops it.
struct CancelWaitOnDrop<'a> {
    id: u64,
    inputs: &'a mpsc::Sender<LoopInput>,
    armed: bool,
}

impl Drop for CancelWaitOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            // If the queue is full, the loop drops the wait the next time it decides it.
            let _ = self.inputs.try_send(LoopInput::CancelWait { id: self.id });
        }
    }
}
