//! The handle of a session.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::call::{RunResult, SpawnedTask};
use brigade_model::command::{
    AnswerCommand, Caller, ClientControl, CloseCommand, Command, GivenAnswer, MarkRead,
    ReadInboxCommand, Recipient, ResumeCommand, SendCommand, SetLimitsCommand, SpawnCommand,
};
use brigade_model::decide::CommandReply;
use brigade_model::event_author::CallerOrigin;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{CallIndex, ConversationId, MessageNo, Owner, SessionId, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::message::Message;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::sandbox::Sandbox;
#[cfg(feature = "agents")]
use brigade_model::spec::TaskSpec;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::{MessageRow, SessionRow};
#[cfg(feature = "agents")]
use brigade_model::work::Work;
use brigade_store::{MessagePage, MessageQuery};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "agents")]
use crate::agents::Blueprint;
use crate::error::{in_doubt_refusal, shutdown_refusal, store_refusal};
use crate::feed::{FeedSubscription, OwnerScope};
use crate::jobs::{ChildTask, JobContext};
use crate::loop_input::{LoopInput, SubmitResult};
use crate::new_task::{NewTask, TaskDraft, TaskType};
use crate::runtime::{Runtime, submit_from};
use crate::send_message::{MessageOrigin, SendMessage};
use crate::spawn_parent::SpawnParent;
use crate::task_handle::TaskHandle;
use crate::view::SessionView;

/// The most commands that one input of the loop has.
pub(crate) const SUBMITTED_MAX: usize = 256;

/// A session as its client, its operator or one of its tasks holds it. Cheap to clone.
///
/// [`Runtime::session`] returns it for a client, which sees its top-level tasks and consumes their
/// results. [`Runtime::operator_session`] returns it for the operator, who sees every task and whose
/// waits consume nothing.
///
/// ```
/// use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::builder().start().await?;
/// let client = runtime.session("kitchen").await?;
/// let operator = runtime.operator_session(client.id()).await?;
/// let one = NewTask::closure("one", |_: JobContext| async { Ok::<_, JobError>(1) });
/// let task = client.spawn(one).await?;
/// let shown = operator.wait_all([task.no()]).await?;
/// assert!(!shown[0].collected_before);
/// assert_eq!(task.result().await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) runtime: Runtime,
    pub(crate) id: SessionId,
    pub(crate) caller: Caller,
    /// The part of the calling task that acts for it. Its sandbox counts.
    pub(crate) acts_through: Option<TaskNo>,
    pub(crate) origin: Option<CallerOrigin>,
    pub(crate) view: Arc<SessionView>,
    /// Cancelled when the caller may no longer wait.
    pub(crate) cancellation: Option<CancellationToken>,
}

/// The result of running a task with a timeout.
#[derive(Clone, Debug)]
pub enum ForegroundResult<T = Json> {
    Ended(TaskHandle<T>, RunResult),
    /// The timeout passed, and the task continues in the background.
    Background(TaskHandle<T>),
}

impl Session {
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Returns the session's row, as of the last commit.
    pub fn row(&self) -> SessionRow {
        self.view.row()
    }

    /// Lets a client also control tasks that others started in the session.
    #[must_use]
    pub fn with_control(mut self, control: ClientControl) -> Self {
        if let Caller::Client(client) = &mut self.caller {
            client.control = control;
        }
        self
    }

    /// Lets a client also take results and messages of its own lapsed conversations.
    #[must_use]
    pub fn with_takeover(mut self, lapsed: impl IntoIterator<Item = ConversationId>) -> Self {
        if let Caller::Client(client) = &mut self.caller {
            client.lapsed = lapsed.into_iter().collect();
        }
        self
    }

    /// Names the place from which the caller acts, such as `"web form"`. The events that it causes
    /// have this label in their author (`EventRecord::by`). It gives no rights.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<CallerOrigin>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// Ends the waits of this session when the token is cancelled, with a refusal. From then on they
    /// consume no result. A wait whose result is being consumed at that moment returns it.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: CancellationToken) -> Self {
        self.cancellation = Some(cancellation);
        self
    }

    /// Starts a task and returns at once. In a job of this session, it is the job's child.
    pub async fn spawn<K: TaskType>(
        &self,
        task: NewTask<K>,
    ) -> Result<TaskHandle<K::Output>, Refusal> {
        let since = self.runtime.cursor();
        if let Some(job) = JobContext::current().filter(|job| job.session_id() == self.id) {
            let ChildTask { no, run, kind, .. } = job.spawn(task).await?;
            let nested = Self { caller: job.caller(), ..self.clone() };
            let child = SpawnedTask { no, run, kind, existing: false };
            return Ok(nested.spawned_handle(child, since));
        }
        let spawn = self.spawn_command(task.into_draft()).await?;
        match self.submit(spawn).await? {
            CommandReply::Spawned(spawned) => Ok(self.spawned_handle(spawned, since)),
            _ => Err(unexpected_reply()),
        }
    }

    /// Starts a task and waits for it. After the timeout it continues in the background.
    pub async fn run<K: TaskType>(
        &self,
        task: NewTask<K>,
        timeout: Duration,
    ) -> Result<ForegroundResult<K::Output>, Refusal> {
        let task = self.spawn(task).await?;
        match task.wait_within(timeout).await? {
            Some(result) => Ok(ForegroundResult::Ended(task, result)),
            None => Ok(ForegroundResult::Background(task)),
        }
    }

    /// Starts many tasks, with one acknowledgement for many of them. Each one succeeds or is refused by
    /// itself. If the call is dropped, only some of them may have started.
    /// Inside a job of this session they are the job's children, each recorded as it starts.
    pub async fn spawn_all<K: TaskType>(
        &self,
        tasks: impl IntoIterator<Item = NewTask<K>>,
    ) -> Result<Vec<Result<TaskHandle<K::Output>, Refusal>>, Refusal> {
        if JobContext::current().is_some_and(|job| job.session_id() == self.id) {
            let tasks: Vec<NewTask<K>> = tasks.into_iter().collect();
            let mut spawned = Vec::with_capacity(tasks.len());
            for task in tasks {
                spawned.push(self.spawn(task).await);
            }
            return Ok(spawned);
        }
        let mut commands = Vec::new();
        for task in tasks {
            commands.push(self.spawn_command(task.into_draft()).await);
        }
        let since = self.runtime.cursor();
        let replies = self.submit_all(commands).await?;
        Ok(replies
            .into_iter()
            .map(|reply| match reply? {
                CommandReply::Spawned(spawned) => Ok(self.spawned_handle(spawned, since.clone())),
                _ => Err(unexpected_reply()),
            })
            .collect())
    }

    /// Returns the task that acts here, if the caller is one.
    pub(crate) fn acting_task(&self) -> Result<Option<Arc<TaskRow>>, Refusal> {
        let Caller::Task { no, .. } = &self.caller else { return Ok(None) };
        let no = self.acts_through.unwrap_or(*no);
        // Nobody can tell the sandbox of a task that is not in memory any more.
        let unknown = || Refusal::forbidden("the task that you act as is not known any more");
        self.view.get(no).ok_or_else(unknown).map(Some)
    }

    async fn spawn_command(&self, task: TaskDraft) -> Result<Command, Refusal> {
        // A caller that acts as a task cannot start anything with a weaker sandbox than its own.
        let own = self.acting_task()?;
        let sandbox = match &own {
            Some(row) => performed_sandbox(row)?,
            None => None,
        };
        let sandbox = sandbox.as_ref();
        let parent = sandbox.map_or(SpawnParent::TopLevel, SpawnParent::SandboxedProcess);
        #[cfg(feature = "agents")]
        let agent = self.parent_agent(&task, sandbox).await?;
        #[cfg(feature = "agents")]
        let parent = agent.as_ref().map_or(parent, SpawnParent::Agent);
        let spec = Arc::new(task.into_spec(&self.runtime.inner.handlers, None, parent)?);
        #[cfg(feature = "agents")]
        if self.acts_through.is_some() {
            self.check_agent_rules(&spec).await?;
        }
        Ok(Command::Spawn(SpawnCommand { caller: self.caller.clone(), spec, call: None }))
    }

    /// Returns the agent whose permissions a new agent inherits, if any.
    #[cfg(feature = "agents")]
    async fn parent_agent(
        &self,
        task: &TaskDraft,
        sandbox: Option<&Sandbox>,
    ) -> Result<Option<Blueprint>, Refusal> {
        if !task.is_agent() {
            return Ok(None);
        }
        let mut agent = self.nearest_agent().await?;
        if let (Some(agent), Some(sandbox)) = (&mut agent, sandbox) {
            agent.restrict_to_process(sandbox);
        }
        Ok(agent)
    }

    /// Returns the nearest agent among the spawners of the task that acts here, whoever owns it
    /// now. A process of an agent starts agents with the permissions of that agent, and no more.
    #[cfg(feature = "agents")]
    async fn nearest_agent(&self) -> Result<Option<Blueprint>, Refusal> {
        let mut here = self.caller.owner().task();
        while let Some(no) = here {
            let row = match self.view.get(no) {
                Some(row) => row,
                None => self.load_task(no).await.map_err(|refusal| match refusal.kind {
                    RefusalKind::NotFound => Refusal::forbidden(
                        "the permissions of the agent that started you are not stored any more; ask the \
                         operator",
                    ),
                    _ => refusal,
                })?,
            };
            let placed = crate::worktrees::performed_work(&row)?;
            if let Work::Agent(agent) = placed.as_ref().unwrap_or(&row.spec.work) {
                return agent.blueprint.decode().map(Some);
            }
            here = row.spawner.map(|spawner| spawner.no).or(row.owner.task());
        }
        Ok(None)
    }

    /// Checks what a program starts as its agent by the rules of the agent. A program that asks for
    /// permissions has asked already where a rule says so.
    #[cfg(feature = "agents")]
    async fn check_agent_rules(&self, spec: &TaskSpec) -> Result<(), Refusal> {
        let Some(agent) = self.nearest_agent().await? else { return Ok(()) };
        self.runtime.agent_services()?.check_program_spawn(&agent, spec)
    }

    pub(crate) fn spawned_handle<T>(
        &self,
        spawned: SpawnedTask,
        since: FeedCursor,
    ) -> TaskHandle<T> {
        let SpawnedTask { no, run, kind, existing } = spawned;
        let session = self.clone();
        TaskHandle { session, no, run, kind, existing, since, result_type: PhantomData }
    }

    /// Sends a message to a task.
    pub fn send(&self, to: impl Into<TaskRef>, body: impl Serialize) -> SendMessage {
        let to = Recipient::Task(to.into());
        SendMessage::new(MessageOrigin::Session(self.clone()), to, body)
    }

    /// Sends an urgent message. See [`SendMessage::urgent`].
    pub fn interrupt(&self, to: impl Into<TaskRef>, body: impl Serialize) -> SendMessage {
        self.send(to, body).urgent()
    }

    /// Sends many messages in order, with one acknowledgement for many of them.
    pub async fn send_all<B: Serialize>(
        &self,
        messages: impl IntoIterator<Item = (TaskRef, B)>,
    ) -> Result<Vec<Result<MessageNo, Refusal>>, Refusal> {
        let commands = messages
            .into_iter()
            .map(|(to, body)| Json::of(&body).map(|body| self.send_command(to, body)));
        let replies = self.submit_all(commands.collect()).await?;
        Ok(replies.into_iter().map(|reply| reply.and_then(first_message_no)).collect())
    }

    pub(crate) fn send_command(&self, to: TaskRef, body: Json) -> Command {
        Command::Send(SendCommand::new(self.caller.clone(), Recipient::Task(to), body))
    }

    /// Returns a message and its delivery state, to callers who see its recipient.
    pub async fn receipt(&self, no: MessageNo) -> Result<Option<MessageRow>, Refusal> {
        let stored = self.runtime.inner.store.message(self.id, no).await;
        let Some(row) = stored.map_err(|e| store_refusal(&e))? else { return Ok(None) };
        self.check_recipient(&row).await?;
        Ok(Some(row))
    }

    /// Returns messages to and from a task, the newest first. A page has only those whose recipient
    /// the caller sees.
    pub async fn messages(&self, query: &MessageQuery) -> Result<MessagePage, Refusal> {
        self.get(query.task).await?;
        let stored = self.runtime.inner.store.messages(self.id, query).await;
        let MessagePage { items, next } = stored.map_err(|e| store_refusal(&e))?;
        let mut page = MessagePage { items: Vec::with_capacity(items.len()), next };
        for row in items {
            match self.check_recipient(&row).await {
                Ok(()) => page.items.push(row),
                Err(refusal)
                    if matches!(refusal.kind, RefusalKind::Forbidden | RefusalKind::NotFound) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(page)
    }

    async fn check_recipient(&self, row: &MessageRow) -> Result<(), Refusal> {
        let to = row.message.to;
        if self.owner_scope().is_none_or(|owner| to == owner) {
            return Ok(());
        }
        match to {
            Owner::Task(to) => self.get(to).await.map(|_| ()),
            Owner::Session => {
                Err(Refusal::forbidden(format!("message {} is not yours", row.message.no)))
            }
        }
    }

    /// Takes the unread messages that tasks sent to the session.
    pub async fn inbox(&self, most: usize) -> Result<Vec<Arc<Message>>, Refusal> {
        self.read_inbox(MarkRead::Oldest(most)).await
    }

    /// Reads the messages that tasks sent to the session, and marks some of them as read.
    pub async fn read_inbox(&self, mark_read: MarkRead) -> Result<Vec<Arc<Message>>, Refusal> {
        let read = ReadInboxCommand { caller: self.caller.clone(), mark_read };
        match self.submit(Command::ReadInbox(read)).await? {
            CommandReply::Inbox(messages) => Ok(messages),
            _ => Err(unexpected_reply()),
        }
    }

    /// Answers a question that a task asked, or an approval that it waits for.
    pub async fn answer(
        &self,
        task: impl Into<TaskRef>,
        answer: GivenAnswer,
    ) -> Result<(), Refusal> {
        self.answer_call(task, None, answer).await
    }

    /// Answers one of several open calls.
    pub async fn answer_call(
        &self,
        task: impl Into<TaskRef>,
        call: Option<CallIndex>,
        answer: GivenAnswer,
    ) -> Result<(), Refusal> {
        let caller = self.caller.clone();
        let task = task.into();
        let command = AnswerCommand { caller, task, call, answer, caller_call: None };
        self.submit(Command::Answer(command)).await.map(|_| ())
    }

    /// Starts the next run of an ended task.
    pub async fn resume(
        &self,
        task: impl Into<TaskRef>,
        limits: Option<Limits>,
    ) -> Result<TaskHandle, Refusal> {
        let resume = ResumeCommand { caller: self.caller.clone(), task: task.into(), limits };
        let since = self.runtime.cursor();
        match self.submit(Command::Resume(resume)).await? {
            CommandReply::Spawned(spawned) => Ok(self.spawned_handle(spawned, since)),
            _ => Err(unexpected_reply()),
        }
    }

    /// Sets the limits of the session, in place of its earlier ones.
    pub async fn set_limits(&self, limits: Limits) -> Result<(), Refusal> {
        let set = SetLimitsCommand { caller: self.caller.clone(), task: None, limits };
        self.submit(Command::SetLimits(set)).await.map(|_| ())
    }

    /// Sets the limits of a task and its descendants, in place of its earlier ones.
    pub async fn set_task_limits(
        &self,
        task: impl Into<TaskRef>,
        limits: Limits,
    ) -> Result<(), Refusal> {
        let task = Some(task.into());
        let set = SetLimitsCommand { caller: self.caller.clone(), task, limits };
        self.submit(Command::SetLimits(set)).await.map(|_| ())
    }

    /// Closes the session: nothing new starts in it, and running tasks are stopped.
    pub async fn close(&self, reason: Option<&str>) -> Result<(), Refusal> {
        let close = CloseCommand { caller: self.caller.clone(), reason: reason.map(Into::into) };
        self.submit(Command::Close(close)).await.map(|_| ())
    }

    /// Subscribes to the changes that this caller sees, starting after a place. A client sees
    /// the session and its top-level tasks, the operator everything.
    pub fn subscribe(&self, after: FeedCursor) -> FeedSubscription {
        let scope = self.owner_scope().map(|owner| OwnerScope::new(owner, self.view.clone()));
        self.runtime.inner.feed.subscribe(Some(self.id), after).with_scope(scope)
    }

    pub(crate) async fn submit(&self, command: Command) -> SubmitResult<CommandReply> {
        self.runtime.check_lease()?;
        submit_from(self.runtime.inner.inputs.of(self.id), self.id, command, self.origin.clone())
            .await
    }

    /// Submits many commands, in order and in slices, so that the commands of other sessions run in
    /// between. A command that was refused before keeps its position among the replies. After a
    /// slice that was not stored, the rest is not submitted, so that a repetition keeps the order.
    async fn submit_all(
        &self,
        commands: Vec<Result<Command, Refusal>>,
    ) -> Result<Vec<SubmitResult<CommandReply>>, Refusal> {
        let mut replies = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let slice: Vec<_> = commands.by_ref().take(SUBMITTED_MAX).collect();
            let count = slice.len();
            match self.submit_slice(slice).await {
                Ok(of_slice) => replies.extend(of_slice),
                Err(refusal) if replies.is_empty() => return Err(refusal),
                Err(refusal) => replies.extend(std::iter::repeat_n(Err(refusal), count)),
            }
            if replies.iter().rev().take(count).any(is_not_stored) {
                let unsent = || Refusal::unavailable("an earlier part of the batch was not stored");
                replies.extend(commands.map(|command| Err(command.err().unwrap_or_else(unsent))));
                break;
            }
        }
        Ok(replies)
    }

    /// Submits commands with one acknowledgement.
    pub(crate) async fn submit_slice(
        &self,
        commands: Vec<Result<Command, Refusal>>,
    ) -> Result<Vec<SubmitResult<CommandReply>>, Refusal> {
        let mut refused = Vec::new();
        let mut accepted = Vec::with_capacity(commands.len());
        for (at, command) in commands.into_iter().enumerate() {
            match command {
                Ok(command) => accepted.push(command),
                Err(refusal) => refused.push((at, refusal)),
            }
        }
        self.runtime.check_lease()?;
        let (reply, answer) = oneshot::channel();
        let session = self.id;
        let origin = self.origin.clone();
        let input = LoopInput::SubmitAll { session, commands: accepted, origin, reply };
        let inputs = self.runtime.inner.inputs.of(self.id);
        inputs.send(input).await.map_err(|_| shutdown_refusal())?;
        let mut replies = answer.await.map_err(|_| in_doubt_refusal())?;
        for (at, refusal) in refused {
            replies.insert(at, Err(refusal));
        }
        Ok(replies)
    }
}

fn is_not_stored(reply: &SubmitResult<CommandReply>) -> bool {
    use RefusalKind::{Internal, Unavailable, Unknown};
    reply.as_ref().is_err_and(|refusal| matches!(refusal.kind, Unavailable | Unknown | Internal))
}

pub(crate) fn first_message_no(reply: CommandReply) -> Result<MessageNo, Refusal> {
    match reply {
        CommandReply::Sent(numbers) => numbers.first().copied().ok_or_else(unexpected_reply),
        _ => Err(unexpected_reply()),
    }
}

pub(crate) fn unexpected_reply() -> Refusal {
    Refusal::internal("the loop replied with the wrong kind of reply")
}

/// Returns the sandbox of a task as it is performed, in its worktree if it has one.
fn performed_sandbox(row: &TaskRow) -> Result<Option<Sandbox>, Refusal> {
    #[cfg(feature = "processes")]
    if let Some(placed) = crate::worktrees::performed_work(row)? {
        return Ok(placed.sandbox().cloned());
    }
    Ok(row.spec.work.sandbox().cloned())
}
