//! What a job can do.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::call::{CallCompletion, ConditionRequest, RunResult, SpawnedTask, WaitMode};
use brigade_model::command::{
    AnswerCommand, AttemptReport, CallRecord, Caller, Command, GivenAnswer, SpawnCommand,
    StopCommand, StopTarget,
};
use brigade_model::decide::{CommandReply, StopResult};
use brigade_model::ids::{Attempt, CallIndex, MessageNo, Millis, RunNo, SessionId, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::message::Message;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::work::TaskKind;
use brigade_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::calls::{CallStart, CompletionFuture, JobCalls};
use super::registry::{HandlerRegistry, JobError};
use super::stop_signal::StopSignal;
use crate::agents::SpawnParent;
use crate::loop_input::LoopInput;
use crate::new_task::NewTask;
use crate::performer::{Reporter, TaskId, submit};

/// How long to wait before saying again what the store could not take.
pub(crate) const REPORT_RETRY_PAUSE: Duration = Duration::from_millis(100);

tokio::task_local! {
    /// The job whose future is being polled.
    pub(crate) static CURRENT: JobContext;
}

/// A job's side of the runtime. Cheap to clone.
///
/// Calls are recorded: when the job is entered again after a wait or a crash, each returns what it
/// returned before. A job must therefore make the same calls in the same order; whatever depends
/// on the outside (time, randomness, the network) belongs into a [`JobContext::step`]. A call is
/// made when its method is called, not when its future is first polled.
///
/// `sleep`, `wait`, `receive` and `ask` let go of the job: its future is dropped and made again
/// when the answer is there. Anything else that the future was doing outside of a step is dropped
/// with it.
#[derive(Clone, Debug)]
pub struct JobContext {
    pub(crate) inner: Arc<JobContextInner>,
}

#[derive(Debug)]
pub(crate) struct JobContextInner {
    pub(crate) task: TaskId,
    pub(crate) run: RunNo,
    pub(crate) attempt: AtomicU32,
    pub(crate) calls: Arc<JobCalls>,
    pub(crate) handlers: Arc<HandlerRegistry>,
    pub(crate) inputs: mpsc::Sender<LoopInput>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) state: Mutex<Option<Json>>,
    pub(crate) stop: StopSignal,
}

/// A child that this job spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildTask {
    pub no: TaskNo,
    pub run: RunNo,
    pub kind: TaskKind,
}

/// How a wait came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildWaitResult {
    Ended(Vec<RunResult>),
    /// The time was up. Nothing was consumed.
    TimedOut,
}

impl JobContext {
    /// The job that is calling, if one is.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    pub fn task(&self) -> TaskNo {
        self.inner.task.no
    }

    pub fn run(&self) -> RunNo {
        self.inner.run
    }

    pub(crate) fn session_id(&self) -> SessionId {
        self.inner.task.session
    }

    /// Cancelled when the task is told to stop. There is a grace period to end in.
    pub fn stop_token(&self) -> CancellationToken {
        self.inner.stop.token()
    }

    pub fn is_stopping(&self) -> bool {
        self.inner.stop.is_set()
    }

    /// Does something once. Its result is recorded; when the job is entered again, that is
    /// returned instead. If the process dies before the record, the body runs again.
    pub fn step<T, E, Fut>(
        &self,
        name: &str,
        body: impl FnOnce() -> Fut,
    ) -> impl Future<Output = Result<T, JobError>>
    where
        T: Serialize + DeserializeOwned,
        E: Into<JobError>,
        Fut: Future<Output = Result<T, E>>,
    {
        let label: Arc<str> = format!("step {name}").into();
        let call = self.begin(&label);
        async move {
            let index = match call? {
                JobCall::Known(answer) => return step_result(&*answer.await?),
                JobCall::New(index) => index,
            };
            self.inner.calls.wait_replayed().await;
            let _under_way = self.inner.calls.mark_running();
            let result = body().await.map_err(Into::into);
            let answer = match result.and_then(|value| Ok(Json::of(&value)?)) {
                Ok(value) => CallCompletion::Value(value),
                Err(error) => CallCompletion::Error(error.message().clone()),
            };
            self.inner.calls.register_call(index);
            let written = CallRecord::new(index, label, Arc::new(answer));
            self.report(AttemptReport::Record(written)).await?;
            step_result(&*self.inner.calls.completion(index).await?)
        }
    }

    /// Rests for a while, across restarts.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = Result<(), Refusal>> {
        let slept = self.park_call(ConditionRequest::Timer { duration: span.into() });
        async move { slept.await.map(|_| ()) }
    }

    /// The next message of the inbox.
    pub fn receive(&self) -> impl Future<Output = Result<Arc<Message>, Refusal>> {
        let received = self.park_call(ConditionRequest::Message { patience: None });
        async move {
            match &*received.await? {
                CallCompletion::Message(message) => Ok(message.clone()),
                other => Err(unexpected_completion("receive", other)),
            }
        }
    }

    /// The next message, or `None` when none comes in time.
    pub fn receive_within(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<Arc<Message>>, Refusal>> {
        let received =
            self.park_call(ConditionRequest::Message { patience: Some(patience.into()) });
        async move {
            match &*received.await? {
                CallCompletion::Message(message) => Ok(Some(message.clone())),
                CallCompletion::Elapsed => Ok(None),
                other => Err(unexpected_completion("receive", other)),
            }
        }
    }

    /// Asks the parent, or the operator, and rests until the answer is there.
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

    /// Starts a child. Entered again, the job finds the child that it started before.
    pub fn spawn(&self, task: NewTask) -> impl Future<Output = Result<ChildTask, Refusal>> {
        let call = self.begin("spawn");
        async move {
            let index = match call? {
                JobCall::Known(answer) => {
                    return match &*completion_result(answer.await?)? {
                        CallCompletion::Spawned(spawned) => Ok(spawned.clone().into()),
                        other => Err(unexpected_completion("spawn", other)),
                    };
                }
                JobCall::New(index) => index,
            };
            let _under_way = self.inner.calls.mark_running();
            let spec = task.into_spec(
                &self.inner.handlers,
                Some(&format!("call:{index}")),
                SpawnParent::TopLevel,
            )?;
            let spawn =
                SpawnCommand { caller: self.caller(), spec: Arc::new(spec), call: Some(index) };
            match &*self.submit_recorded(index, "spawn", Command::Spawn(spawn)).await? {
                CallCompletion::Spawned(spawned) => Ok(spawned.clone().into()),
                other => Err(unexpected_completion("spawn", other)),
            }
        }
    }

    /// Waits for one of these children; their results are consumed.
    pub fn wait_any<'a>(
        &self,
        children: impl IntoIterator<Item = &'a ChildTask>,
    ) -> impl Future<Output = Result<Vec<RunResult>, Refusal>> {
        let waited = self.wait(children, WaitMode::Any, None);
        async move { waited.await.and_then(expect_ended) }
    }

    /// Waits for all of these children; their results are consumed.
    pub fn wait_all<'a>(
        &self,
        children: impl IntoIterator<Item = &'a ChildTask>,
    ) -> impl Future<Output = Result<Vec<RunResult>, Refusal>> {
        let waited = self.wait(children, WaitMode::All, None);
        async move { waited.await.and_then(expect_ended) }
    }

    /// Waits for children. None named means all whose results nobody has taken.
    pub fn wait<'a>(
        &self,
        children: impl IntoIterator<Item = &'a ChildTask>,
        mode: WaitMode,
        patience: Option<Duration>,
    ) -> impl Future<Output = Result<ChildWaitResult, Refusal>> {
        let tasks = children.into_iter().map(|child| child.no).collect();
        let patience: Option<Millis> = patience.map(Into::into);
        let asked =
            ConditionRequest::Tasks { tasks, mode, timeout: patience, interruptible: false };
        let waited = self.park_call(asked);
        async move {
            match &*waited.await? {
                CallCompletion::Results(endings) => Ok(ChildWaitResult::Ended(endings.clone())),
                CallCompletion::Elapsed => Ok(ChildWaitResult::TimedOut),
                other => Err(unexpected_completion("wait", other)),
            }
        }
    }

    /// Answers the question that a child is waiting with.
    pub fn answer(
        &self,
        child: &ChildTask,
        reply: impl Serialize,
    ) -> impl Future<Output = Result<(), Refusal>> {
        let task = TaskRef::from(child.no);
        let answered = Json::of(&reply).map(|reply| {
            self.submit_once("answer", move |caller, record| {
                let (answer, record) = (GivenAnswer::Reply(reply), Some(record));
                Command::Answer(AnswerCommand {
                    caller,
                    task,
                    call: None,
                    answer,
                    caller_call: record,
                })
            })
        });
        async move { answered?.await.map(|_| ()) }
    }

    /// Stops a child and all below it.
    pub fn stop(
        &self,
        child: &ChildTask,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<StopResult, Refusal>> {
        self.stop_target(StopTarget::Task(TaskRef::from(child.no)), reason)
    }

    /// Stops this job itself and all below it.
    pub fn stop_itself(
        &self,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<StopResult, Refusal>> {
        self.stop_target(StopTarget::Itself, reason)
    }

    /// Stops every living child.
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
        let stopped = self.submit_once("stop", move |caller, call| {
            Command::Stop(StopCommand { caller, target, reason, grace: None, call: Some(call) })
        });
        async move {
            match &*stopped.await? {
                CallCompletion::Value(stopped) => stopped.decode(),
                other => Err(unexpected_completion("stop", other)),
            }
        }
    }

    /// A command that is recorded with its answer, so that a job that is entered again is told the
    /// answer and does not give the command twice.
    fn submit_once(
        &self,
        label: &'static str,
        command: impl FnOnce(Caller, CallIndex) -> Command,
    ) -> impl Future<Output = Result<Arc<CallCompletion>, Refusal>> {
        let call = self.begin(label);
        let context = self.clone();
        let command = match &call {
            Ok(JobCall::New(index)) => Some(command(self.caller(), *index)),
            _ => None,
        };
        async move {
            match (call?, command) {
                (JobCall::New(index), Some(command)) => {
                    let _under_way = context.inner.calls.mark_running();
                    context.submit_recorded(index, label, command).await
                }
                (JobCall::Known(answer), _) => completion_result(answer.await?),
                (JobCall::New(_), None) => Err(Refusal::internal("a call has no command")),
            }
        }
    }

    /// Says how far it is. Everybody who watches sees it, in order. While a job that was entered
    /// again goes over what it did before, it says nothing.
    pub async fn progress(&self, note: impl Serialize) -> Result<(), Refusal> {
        if self.inner.calls.is_replaying() {
            return Ok(());
        }
        self.report(AttemptReport::Progress(Json::of(&note)?)).await.map(|_| ())
    }

    /// Sets aside what something may cost, up the whole tree, before it is spent. Belongs into a
    /// step, together with the spending and the [`JobContext::charge`].
    pub async fn reserve(&self, most: Usage, least: Usage) -> Result<Usage, Refusal> {
        match self.report(AttemptReport::Reserve { most, least }).await? {
            CommandReply::Granted(granted) => Ok(granted),
            CommandReply::Exhausted(limit) => {
                Err(Refusal::limit(format!("the {limit} budget is spent")))
            }
            _ => Err(Refusal::internal("a reservation was answered with something else")),
        }
    }

    /// Says what was spent. Whatever was reserved is free again.
    pub async fn charge(&self, spent: Usage) -> Result<(), Refusal> {
        self.report(AttemptReport::Charge(spent)).await.map(|_| ())
    }

    /// The state that was set last, also by an earlier attempt.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, Refusal> {
        let state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        state.map(|state| state.decode()).transpose()
    }

    /// Keeps typed state: restored when the job goes on. While a job that was entered again goes
    /// over what it did before, what it had set last stays.
    pub async fn set_state(&self, state: impl Serialize) -> Result<(), Refusal> {
        if self.inner.calls.is_replaying() {
            return Ok(());
        }
        let state = Json::of(&state)?;
        self.report(AttemptReport::State(state.clone())).await?;
        *self.inner.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        Ok(())
    }

    /// Makes the next call. That happens when it is asked for and not when it is first polled, so
    /// that the order of the calls is the order of the program also where a `select!` polls them
    /// in any order.
    pub(super) fn begin(&self, label: &str) -> Result<JobCall, Refusal> {
        Ok(match self.inner.calls.begin(label)? {
            CallStart::Known(index) => JobCall::Known(self.inner.calls.completion(index)),
            CallStart::New(index) => JobCall::New(index),
        })
    }

    fn park_call(
        &self,
        asked: ConditionRequest,
    ) -> impl Future<Output = Result<Arc<CallCompletion>, Refusal>> + use<> {
        let answer = self.begin(call_label(&asked)).map(|call| match call {
            JobCall::Known(answer) => answer,
            JobCall::New(index) => {
                self.inner.calls.park(index, asked);
                self.inner.calls.completion(index)
            }
        });
        async move { completion_result(answer?.await?) }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::Task { no: self.inner.task.no, attempt: self.inner.attempt() }
    }

    async fn report(&self, what: AttemptReport) -> Result<CommandReply, Refusal> {
        let _under_way = self.inner.calls.mark_running();
        self.inner.report(what).await
    }

    async fn submit(&self, command: Command) -> Result<CommandReply, Refusal> {
        self.inner.submit(command).await
    }

    /// Submits a command that records its answer, and hears of it in its turn; a refusal is recorded
    /// beside it.
    pub(super) async fn submit_recorded(
        &self,
        index: CallIndex,
        label: &'static str,
        command: Command,
    ) -> Result<Arc<CallCompletion>, Refusal> {
        self.inner.calls.register_call(index);
        let answer = self.inner.calls.completion(index);
        if let Err(refusal) = self.submit(command).await
            && !self.inner.record_refusal(index, label, &refusal).await
        {
            return Err(refusal);
        }
        completion_result(answer.await?)
    }
}

/// A call that was made: the journal knows it, or it is to be carried out.
pub(super) enum JobCall {
    Known(CompletionFuture),
    New(CallIndex),
}

impl JobContextInner {
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt(self.attempt.load(Ordering::Acquire))
    }

    pub(crate) fn reporter(&self) -> Reporter {
        Reporter { task: self.task, attempt: self.attempt(), inputs: self.inputs.clone() }
    }

    pub(crate) async fn report(&self, what: AttemptReport) -> Result<CommandReply, Refusal> {
        self.submit(self.reporter().command(what)).await
    }

    /// Records that a call was refused, so that the job is told the same when it is entered again.
    pub(crate) async fn record_refusal(
        &self,
        index: CallIndex,
        label: &'static str,
        refusal: &Refusal,
    ) -> bool {
        let answer = Arc::new(CallCompletion::Refused(refusal.clone()));
        // An attempt that is over records nothing more, and will not be entered again with it.
        let written = CallRecord::new(index, label, answer);
        self.report(AttemptReport::Record(written)).await.is_ok()
    }

    /// Says something until it is heard: that the store was away for a moment is no news to a job.
    async fn submit(&self, command: Command) -> Result<CommandReply, Refusal> {
        loop {
            match submit(&self.inputs, self.task.session, command.clone()).await {
                Err(refusal)
                    if refusal.kind == RefusalKind::Unavailable && !self.inputs.is_closed() =>
                {
                    tokio::time::sleep(REPORT_RETRY_PAUSE).await;
                }
                heard => return heard,
            }
        }
    }
}

fn step_result<T: DeserializeOwned>(answer: &CallCompletion) -> Result<T, JobError> {
    match answer {
        CallCompletion::Value(value) => Ok(value.decode()?),
        CallCompletion::Error(message) => Err(JobError::new(message)),
        other => Err(unexpected_completion("step", other).into()),
    }
}

/// The word under which a parked call is found again in the journal.
pub(crate) fn call_label(asked: &ConditionRequest) -> &'static str {
    match asked {
        ConditionRequest::Tasks { .. } => "wait",
        ConditionRequest::Message { .. } => "receive",
        ConditionRequest::Inbox => "news",
        ConditionRequest::Timer { .. } => "sleep",
        ConditionRequest::Question { .. } => "ask",
        ConditionRequest::Approval { .. } => "approve",
        ConditionRequest::ClientTool { .. } => "client tool",
    }
}

/// An answer from the journal, where the value of anything but a step is a refusal.
pub(super) fn completion_result(
    answer: Arc<CallCompletion>,
) -> Result<Arc<CallCompletion>, Refusal> {
    match &*answer {
        CallCompletion::Refused(refusal) => Err(refusal.clone()),
        _ => Ok(answer),
    }
}

pub(super) fn first_message_no(sent: &[MessageNo]) -> Result<MessageNo, Refusal> {
    sent.first().copied().ok_or_else(|| Refusal::internal("a message has no number"))
}

fn expect_ended(waited: ChildWaitResult) -> Result<Vec<RunResult>, Refusal> {
    match waited {
        ChildWaitResult::Ended(endings) => Ok(endings),
        ChildWaitResult::TimedOut => Err(Refusal::internal("a wait without patience timed out")),
    }
}

pub(super) fn unexpected_completion(call: &str, answer: &CallCompletion) -> Refusal {
    Refusal::conflict(format!("the journal answers {call} with {answer:?}"))
}

impl From<SpawnedTask> for ChildTask {
    fn from(spawned: SpawnedTask) -> Self {
        Self { no: spawned.no, run: spawned.run, kind: spawned.kind }
    }
}
