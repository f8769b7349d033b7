//! The context of a job, through which it makes its calls.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::call::{CallCompletion, ConditionRequest, RunResult, WaitMode};
use brigade_model::command::{
    AnswerCommand, AttemptReport, CallRecord, Caller, Command, GivenAnswer, SpawnCommand,
    StopCommand, StopTarget,
};
use brigade_model::decide::{CommandReply, StopResult};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{Attempt, CallIndex, MessageNo, Millis, RunNo, SessionId, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::{CostEstimate, Usage};
use brigade_model::message::Message;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::calls::{CallStart, CompletionFuture, JobCalls};
use super::child_task::ChildTask;
use super::registry::HandlerRegistry;
use super::stop_signal::StopSignal;
use crate::fleet::AttemptLease;
use crate::loop_input::LoopInput;
use crate::new_task::{NewTask, TaskType};
use crate::performer::{Reporter, TaskId};
use crate::runtime::submit;
use crate::spawn_parent::SpawnParent;
use crate::task_error::TaskError;
use crate::task_handle::decode_result;

/// The pause before a command is submitted again that the store could not take.
pub(crate) const REPORT_RETRY_PAUSE: Duration = Duration::from_millis(100);

tokio::task_local! {
    /// The job whose future is being polled.
    pub(crate) static CURRENT: JobContext;
}

/// A job's access to the runtime. Cheap to clone.
///
/// Calls are recorded: when the job is entered again after a wait or a crash, each call returns its
/// recorded result. A job must therefore make the same calls in the same order. Code that depends
/// on the outside (time, randomness, the network) belongs in a [`JobContext::step`]. A call is made
/// when its method is called, not when its future is first polled.
///
/// `sleep`, `wait`, `receive` and `ask` suspend the job. The future of a named job is dropped, and
/// created again when the call is complete. Work that it was doing outside of a step is dropped
/// with it.
///
/// ```
/// use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = Runtime::builder().start().await?.session("bakery").await?;
/// let bake = NewTask::closure("bake", |ctx: JobContext| async move {
///     ctx.step("weigh", || async { Ok::<_, JobError>(500) }).await
/// });
/// assert_eq!(session.spawn(bake).await?.result().await?, 500);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct JobContext {
    pub(crate) inner: Arc<JobContextInner>,
}

#[derive(Debug)]
pub(crate) struct JobContextInner {
    pub(crate) task: TaskId,
    pub(crate) run: RunNo,
    /// The number of journal entries of earlier runs.
    pub(crate) earlier_entries: Option<u32>,
    pub(crate) attempt: AtomicU32,
    pub(crate) calls: Arc<JobCalls>,
    pub(crate) handlers: Arc<HandlerRegistry>,
    pub(crate) inputs: mpsc::Sender<LoopInput>,
    pub(crate) lease: Option<Arc<AttemptLease>>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) state: Mutex<Option<Json>>,
    pub(crate) stop: StopSignal,
    /// The signal that resumes a suspended closure; `None` for a named job.
    pub(crate) resume_signal: Option<Notify>,
}

/// The result of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildWaitResult {
    Ended(Vec<RunResult>),
    /// The timeout passed. Nothing was consumed.
    TimedOut,
}

impl JobContext {
    /// Returns the job that is calling, if one is.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    pub fn task(&self) -> TaskNo {
        self.inner.task.no
    }

    pub fn run(&self) -> RunNo {
        self.inner.run
    }

    /// Returns the id of the session of this job.
    pub fn session_id(&self) -> SessionId {
        self.inner.task.session
    }

    /// Returns a token that is cancelled when the task is asked to stop. A grace period follows.
    pub fn stop_token(&self) -> CancellationToken {
        self.inner.stop.token()
    }

    pub fn is_stopping(&self) -> bool {
        self.inner.stop.is_set()
    }

    /// Sleeps for a duration, across restarts.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let slept = self.park_call(ConditionRequest::Timer { duration: duration.into() });
        async move { slept.await.map(|_| ()) }
    }

    /// Waits for the next message of the inbox.
    pub fn receive(&self) -> impl Future<Output = Result<Arc<Message>, Refusal>> {
        let received = self.park_call(ConditionRequest::Message { timeout: None, name: None });
        async move {
            match &*received.await? {
                CallCompletion::Message(message) => Ok(message.clone()),
                other => Err(unexpected_completion("receive", other)),
            }
        }
    }

    /// Waits for messages, and takes all that have arrived, in order. One journal entry holds them,
    /// so it costs much less than a [`receive`](Self::receive) for each. Of more than 256
    /// messages, or of very long ones, it takes the first.
    pub fn receive_all(&self) -> impl Future<Output = Result<Vec<Arc<Message>>, Refusal>> {
        let received = self.park_call(ConditionRequest::Messages);
        async move {
            match &*received.await? {
                CallCompletion::Messages(messages) => Ok(messages.clone()),
                other => Err(unexpected_completion("receive", other)),
            }
        }
    }

    /// Waits for the next message with a timeout. Returns `None` when it passed.
    pub fn receive_within(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<Arc<Message>>, Refusal>> {
        let received =
            self.park_call(ConditionRequest::Message { timeout: Some(timeout.into()), name: None });
        async move {
            match &*received.await? {
                CallCompletion::Message(message) => Ok(Some(message.clone())),
                CallCompletion::Elapsed => Ok(None),
                other => Err(unexpected_completion("receive", other)),
            }
        }
    }

    /// Asks the parent, or the operator, and suspends the job until the answer arrives.
    pub fn ask<T: DeserializeOwned>(
        &self,
        question: impl Serialize,
    ) -> impl Future<Output = Result<T, Refusal>> {
        let question = Json::of(&question);
        let asked =
            question.map(|question| self.park_call(ConditionRequest::Question { question }));
        async move {
            match &*asked?.await? {
                CallCompletion::Reply(reply) => reply.decode(),
                other => Err(unexpected_completion("ask", other)),
            }
        }
    }

    /// Starts a child. When the job is entered again, this returns the child that it started
    /// before.
    pub fn spawn<K: TaskType>(
        &self,
        task: NewTask<K>,
    ) -> impl Future<Output = Result<ChildTask<K::Output>, Refusal>> {
        let task = task.into_draft();
        let call = self.begin(&EntryLabel::Spawn);
        async move {
            let index = match call? {
                JobCall::Known(completion) => {
                    return match &*completion_result(completion.await?)? {
                        CallCompletion::Spawned(spawned) => Ok(spawned.clone().into()),
                        other => Err(unexpected_completion("spawn", other)),
                    };
                }
                JobCall::New(index) => index,
            };
            let _running = self.inner.calls.mark_running();
            let spec = task.into_spec(
                &self.inner.handlers,
                Some(&format!("call:{index}")),
                SpawnParent::TopLevel,
            )?;
            let spawn =
                SpawnCommand { caller: self.caller(), spec: Arc::new(spec), call: Some(index) };
            match &*self.submit_recorded(index, EntryLabel::Spawn, Command::Spawn(spawn)).await? {
                CallCompletion::Spawned(spawned) => Ok(spawned.clone().into()),
                other => Err(unexpected_completion("spawn", other)),
            }
        }
    }

    /// Waits for any of these children, and consumes the results of those that have ended. Without
    /// children, returns at once.
    pub fn wait_any<'a, T: 'a>(
        &self,
        children: impl IntoIterator<Item = &'a ChildTask<T>>,
    ) -> impl Future<Output = Result<Vec<RunResult>, Refusal>> {
        let waited = self.wait(children, WaitMode::Any, None);
        async move { waited.await.and_then(expect_ended) }
    }

    /// Waits for all of these children and consumes their results. Without children, returns at
    /// once.
    pub fn wait_all<'a, T: 'a>(
        &self,
        children: impl IntoIterator<Item = &'a ChildTask<T>>,
    ) -> impl Future<Output = Result<Vec<RunResult>, Refusal>> {
        let waited = self.wait(children, WaitMode::All, None);
        async move { waited.await.and_then(expect_ended) }
    }

    /// Waits for all children whose results were not collected, for any or for all of them. Returns
    /// at once if there are none.
    pub fn wait_uncollected(
        &self,
        mode: WaitMode,
    ) -> impl Future<Output = Result<Vec<RunResult>, Refusal>> {
        let waited = self.wait_tasks(Vec::new(), mode, None);
        async move { waited.await.and_then(expect_ended) }
    }

    /// Waits for children, with a timeout. Without children, returns at once.
    pub fn wait<'a, T: 'a>(
        &self,
        children: impl IntoIterator<Item = &'a ChildTask<T>>,
        mode: WaitMode,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<ChildWaitResult, Refusal>> {
        let tasks: Vec<TaskNo> = children.into_iter().map(|child| child.no).collect();
        let waited = (!tasks.is_empty()).then(|| self.wait_tasks(tasks, mode, timeout));
        async move {
            match waited {
                Some(waited) => waited.await,
                None => Ok(ChildWaitResult::Ended(Vec::new())),
            }
        }
    }

    fn wait_tasks(
        &self,
        tasks: Vec<TaskNo>,
        mode: WaitMode,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<ChildWaitResult, Refusal>> + use<> {
        let timeout: Option<Millis> = timeout.map(Into::into);
        let request = ConditionRequest::Tasks { tasks, mode, timeout, interruptible: false };
        let waited = self.park_call(request);
        async move {
            match &*waited.await? {
                CallCompletion::Results(results) => Ok(ChildWaitResult::Ended(results.clone())),
                CallCompletion::Elapsed => Ok(ChildWaitResult::TimedOut),
                other => Err(unexpected_completion("wait", other)),
            }
        }
    }

    /// Waits for a child, and returns the result of a run that succeeded. Returns the outcome of
    /// any other run as an error.
    pub fn result<T: DeserializeOwned>(
        &self,
        child: &ChildTask<T>,
    ) -> impl Future<Output = Result<T, TaskError>> {
        let waited = self.wait_all([child]);
        async move {
            let run = waited.await?.pop();
            decode_result(run.ok_or_else(|| Refusal::internal("a wait returned no result"))?)
        }
    }

    /// Answers the open question of a child.
    pub fn answer<T>(
        &self,
        child: &ChildTask<T>,
        reply: impl Serialize,
    ) -> impl Future<Output = Result<(), Refusal>> {
        let task = TaskRef::from(child.no);
        let answered = Json::of(&reply).map(|reply| {
            self.submit_once(EntryLabel::Answer, move |caller, record| {
                Command::Answer(AnswerCommand {
                    caller,
                    task,
                    call: None,
                    answer: GivenAnswer::Reply(reply),
                    caller_call: Some(record),
                })
            })
        });
        async move { answered?.await.map(|_| ()) }
    }

    /// Stops a child and its descendants.
    pub fn stop<T>(
        &self,
        child: &ChildTask<T>,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<StopResult, Refusal>> {
        self.stop_target(StopTarget::Task(TaskRef::from(child.no)), reason)
    }

    /// Stops this job and its descendants.
    pub fn stop_itself(
        &self,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<StopResult, Refusal>> {
        self.stop_target(StopTarget::Itself, reason)
    }

    /// Stops all children that are alive.
    pub fn stop_children(
        &self,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<StopResult, Refusal>> {
        self.stop_target(StopTarget::Children, reason)
    }

    fn stop_target(
        &self,
        target: StopTarget,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<StopResult, Refusal>> {
        let reason = reason.map(Into::into);
        let stopped = self.submit_once(EntryLabel::Stop, move |caller, call| {
            Command::Stop(StopCommand { caller, target, reason, grace: None, call: Some(call) })
        });
        async move {
            match &*stopped.await? {
                CallCompletion::Value(stopped) => stopped.decode(),
                other => Err(unexpected_completion("stop", other)),
            }
        }
    }

    /// Submits a command that records its completion. When the job is entered again, it gets the
    /// completion without submitting the command twice.
    fn submit_once(
        &self,
        label: EntryLabel,
        command: impl FnOnce(Caller, CallIndex) -> Command,
    ) -> impl Future<Output = Result<Arc<CallCompletion>, Refusal>> {
        let call = self.begin(&label);
        let context = self.clone();
        let command = match &call {
            Ok(JobCall::New(index)) => Some(command(self.caller(), *index)),
            _ => None,
        };
        async move {
            match (call?, command) {
                (JobCall::New(index), Some(command)) => {
                    let _running = context.inner.calls.mark_running();
                    context.submit_recorded(index, label, command).await
                }
                (JobCall::Known(completion), _) => completion_result(completion.await?),
                (JobCall::New(_), None) => Err(Refusal::internal("a call has no command")),
            }
        }
    }

    /// Reports progress, which every observer sees in order. Does nothing during replay.
    pub async fn progress(&self, note: impl Serialize) -> Result<(), Refusal> {
        if self.inner.calls.is_replaying() {
            return Ok(());
        }
        self.report(AttemptReport::Progress(Json::of(&note)?)).await.map(|_| ())
    }

    /// Reserves an amount in the budgets of the task and its ancestors. Belongs in a step, together
    /// with the spending and the [`JobContext::charge`].
    pub async fn reserve(&self, most: Usage, least: Usage) -> Result<Usage, Refusal> {
        match self.report(AttemptReport::Reserve(CostEstimate { max: most, min: least })).await? {
            CommandReply::Granted(granted) => Ok(granted),
            CommandReply::Exhausted(limit) => {
                Err(Refusal::limit(format!("the {limit} budget is spent")))
            }
            _ => Err(Refusal::internal("a reservation got the wrong kind of reply")),
        }
    }

    /// Charges the amount that was spent, and releases the reservation.
    pub async fn charge(&self, spent: Usage) -> Result<(), Refusal> {
        self.report(AttemptReport::Charge(spent)).await.map(|_| ())
    }

    /// Returns the state that was set last, also by an earlier attempt.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, Refusal> {
        let state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        state.map(|state| state.decode()).transpose()
    }

    /// Stores typed state, which later attempts get. Does nothing during replay, so that the last
    /// state stays.
    pub async fn set_state(&self, state: impl Serialize) -> Result<(), Refusal> {
        if self.inner.calls.is_replaying() {
            return Ok(());
        }
        let state = Json::of(&state)?;
        self.report(AttemptReport::State(state.clone())).await?;
        *self.inner.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        Ok(())
    }

    /// Begins the next call. This happens when its method is called and not when its future is
    /// first polled. A `select!` polls in any order, but the order of calls stays that of the
    /// program.
    pub(super) fn begin(&self, label: &EntryLabel) -> Result<JobCall, Refusal> {
        Ok(match self.inner.calls.begin(label)? {
            CallStart::Known(index) => JobCall::Known(self.inner.calls.completion(index)),
            CallStart::New(index) => JobCall::New(index),
        })
    }

    pub(super) fn park_call(
        &self,
        request: ConditionRequest,
    ) -> impl Future<Output = Result<Arc<CallCompletion>, Refusal>> + use<> {
        let completion = self.begin(&request.label()).map(|call| match call {
            JobCall::Known(completion) => completion,
            JobCall::New(index) => {
                self.inner.calls.park(index, request);
                self.inner.calls.completion(index)
            }
        });
        async move { completion_result(completion?.await?) }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::Task { no: self.inner.task.no, attempt: self.inner.attempt() }
    }

    pub(super) async fn report(&self, report: AttemptReport) -> Result<CommandReply, Refusal> {
        let _running = self.inner.calls.mark_running();
        self.inner.report(report).await
    }

    async fn submit(&self, command: Command) -> Result<CommandReply, Refusal> {
        self.inner.submit(command).await
    }

    /// Submits a command that records its completion, and returns that completion in its order. A
    /// refusal is recorded instead.
    pub(super) async fn submit_recorded(
        &self,
        index: CallIndex,
        label: EntryLabel,
        command: Command,
    ) -> Result<Arc<CallCompletion>, Refusal> {
        self.inner.calls.register_call(index);
        let completion = self.inner.calls.completion(index);
        if let Err(refusal) = self.submit(command).await
            && !self.inner.record_refusal(index, label, &refusal).await
        {
            return Err(refusal);
        }
        completion_result(completion.await?)
    }
}

/// A call that was begun: it is in the journal, or it is new and to be executed.
pub(super) enum JobCall {
    Known(CompletionFuture),
    New(CallIndex),
}

impl JobContextInner {
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt(self.attempt.load(Ordering::Acquire))
    }

    pub(crate) fn reporter(&self) -> Reporter {
        Reporter {
            task: self.task,
            attempt: self.attempt(),
            inputs: self.inputs.clone(),
            lease: self.lease.clone(),
        }
    }

    pub(crate) async fn report(&self, report: AttemptReport) -> Result<CommandReply, Refusal> {
        self.submit(self.reporter().command(report)).await
    }

    /// Records the refusal of a call, so that the job gets the same when it is entered again.
    pub(crate) async fn record_refusal(
        &self,
        index: CallIndex,
        label: EntryLabel,
        refusal: &Refusal,
    ) -> bool {
        let completion = Arc::new(CallCompletion::Refused(refusal.clone()));
        // An attempt that has ended records nothing more, and no later one replays it.
        let record = CallRecord::new(index, label, completion);
        self.report(AttemptReport::Record(record)).await.is_ok()
    }

    /// Submits a command and retries while the store is unavailable, so that jobs do not see
    /// outages.
    async fn submit(&self, command: Command) -> Result<CommandReply, Refusal> {
        loop {
            match submit(&self.inputs, self.task.session, command.clone()).await {
                Err(refusal)
                    if refusal.kind == RefusalKind::Unavailable && !self.inputs.is_closed() =>
                {
                    tokio::time::sleep(REPORT_RETRY_PAUSE).await;
                }
                result => return result,
            }
        }
    }
}

/// Returns a recorded completion. A recorded refusal becomes an error.
pub(super) fn completion_result(
    completion: Arc<CallCompletion>,
) -> Result<Arc<CallCompletion>, Refusal> {
    match &*completion {
        CallCompletion::Refused(refusal) => Err(refusal.clone()),
        _ => Ok(completion),
    }
}

pub(super) fn first_message_no(sent: &[MessageNo]) -> Result<MessageNo, Refusal> {
    sent.first().copied().ok_or_else(|| Refusal::internal("a message has no number"))
}

fn expect_ended(waited: ChildWaitResult) -> Result<Vec<RunResult>, Refusal> {
    match waited {
        ChildWaitResult::Ended(results) => Ok(results),
        ChildWaitResult::TimedOut => Err(Refusal::internal("a wait without a timeout timed out")),
    }
}

pub(super) fn unexpected_completion(call: &str, completion: &CallCompletion) -> Refusal {
    Refusal::conflict(format!("the journal has {completion:?} for {call}"))
}
