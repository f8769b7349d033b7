//! The operations of the protocol, for one caller and one agent.

use std::path::Path;
use std::time::Duration;

use a2a::{
    A2AError, SendMessageConfiguration, SendMessageRequest, Task, TaskState, TaskStatus, error_code,
};
use brigade_agent::permission::PermissionRules;
use brigade_model::address::TaskRef;
use brigade_model::call::WaitMode;
use brigade_model::ids::{ClientIdentity, ConversationId};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_model::work::Work;
use brigade_protocol::http::TaskId;
use brigade_protocol::requests::{RunRequest, StopRequest};
use brigade_runtime::Session;
use sha2::{Digest, Sha256};

use super::incoming_message::{IncomingMessage, hex};
use super::protocol_error::{CallFailure, error_of};
use super::task_history::{history_length, read_history};
use super::task_status::{TaskFacts, artifacts_of};
use super::task_watch::TaskWatch;
use crate::http::access_token::TokenAccess;
use crate::http::caller::HttpCaller;
use crate::http::path_target::target_of;
use crate::http::routes::HttpState;
use crate::http::workspace_scope::no_workspace;
use crate::request_context::{CallerIdentity, LocatedTask, RequestContext};

/// The longest time for which a message waits for the end of its task.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// The longest time for which a cancellation waits for the end of its task.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(30);
/// The length of a context's id that the server chooses.
const CONTEXT_DIGITS: usize = 32;

/// A caller of a published agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentCall {
    pub(crate) state: HttpState,
    pub(crate) caller: HttpCaller,
    /// The name of the definition.
    pub(crate) agent: String,
    /// The session of the token.
    pub(crate) session: Session,
}

/// The parts of a task in an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskForm {
    pub(crate) history_length: usize,
    pub(crate) with_artifacts: bool,
}

impl TaskForm {
    pub(crate) fn whole(requested: Option<i32>) -> Result<Self, A2AError> {
        let history_length = history_length(requested).map_err(|refusal| error_of(&refusal))?;
        Ok(Self { history_length, with_artifacts: true })
    }
}

/// The effect of a message.
#[derive(Debug)]
pub(crate) enum SentMessage {
    Accepted(TaskId),
    /// The start was refused. There is no such task.
    Rejected(Box<Task>),
}

impl AgentCall {
    /// Checks that the agent is published and that the token is a client's.
    pub(crate) async fn new(
        state: HttpState,
        caller: HttpCaller,
        agent: String,
    ) -> Result<Self, CallFailure> {
        if state.published.find(&agent).is_none() {
            let text = format!("there is no agent {agent:?} here");
            return Err(CallFailure::Http(Refusal::not_found(text).into()));
        }
        let TokenAccess::Client { session } = caller.token.access else {
            let text =
                "an agent is called with a client's token: `brigade token add --client NAME`";
            return Err(CallFailure::Http(Refusal::forbidden(text).into()));
        };
        let session = caller.session_of(session).await;
        let session = session.map_err(|refusal| CallFailure::Http(refusal.into()))?;
        Ok(Self { state, caller, agent, session })
    }

    /// Returns true for tasks that this client started with this agent.
    pub(crate) fn is_own(&self, row: &TaskRow) -> bool {
        let is_agent = match &row.spec.work {
            Work::Agent(work) => work.definition.as_deref() == Some(&*self.agent),
            _ => false,
        };
        is_agent && self.caller.reader().is_owner_of(row)
    }

    /// Returns a task of this agent and this client. Every other one is not found.
    pub(crate) async fn find(&self, id: &str) -> Result<LocatedTask, A2AError> {
        let missing = || A2AError::task_not_found(id);
        let parsed: TaskId = id.parse().map_err(|_| missing())?;
        match self.caller.task(parsed).await {
            Ok(found) if self.is_own(&found.row) => Ok(found),
            Ok(_) => Err(missing()),
            Err(refusal) => match refusal.kind {
                RefusalKind::NotFound | RefusalKind::Forbidden => Err(missing()),
                _ => Err(error_of(&refusal)),
            },
        }
    }

    pub(crate) fn facts(&self, found: &LocatedTask) -> TaskFacts {
        TaskFacts::of(found, &found.session.approvals())
    }

    /// Returns a task. The answer with its end collects its result.
    pub(crate) async fn describe(
        &self,
        found: &LocatedTask,
        form: TaskForm,
    ) -> Result<Task, Refusal> {
        let facts = self.facts(found);
        let artifacts = match form.with_artifacts {
            true => {
                self.collect(found).await?;
                artifacts_of(&found.row)
            }
            false => Vec::new(),
        };
        let history = read_history(found, &facts, form.history_length).await?;
        Ok(Task {
            id: facts.id.to_string(),
            context_id: facts.context_id.clone(),
            status: facts.status(&found.row),
            artifacts: (!artifacts.is_empty()).then_some(artifacts),
            history: (!history.is_empty()).then_some(history),
            metadata: None,
        })
    }

    /// Marks the result of an ended task as collected by the client that started it.
    pub(crate) async fn collect(&self, found: &LocatedTask) -> Result<(), Refusal> {
        if found.row.is_alive() || found.row.is_collected() {
            return Ok(());
        }
        let conversation = found.row.client.as_ref().and_then(|it| it.conversation.clone());
        let context = self.context(conversation)?;
        let session = context.session_by_id(self.session.id()).await?;
        session.wait_within(vec![found.no.into()], WaitMode::Any, Duration::ZERO).await?;
        Ok(())
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<Task, A2AError> {
        let found = self.find(id).await?;
        if !found.row.is_alive() {
            return Err(A2AError::task_not_cancelable(id));
        }
        let stopped = async {
            let context = self.context(None)?;
            let reason = Some("canceled over A2A".to_owned());
            context.call(StopRequest { target: target_of(found.no), reason, grace_ms: None }).await
        };
        stopped.await.map_err(|refusal| match refusal.kind {
            RefusalKind::Ended => A2AError::task_not_cancelable(id),
            _ => error_of(&refusal),
        })?;
        let form = TaskForm::whole(None)?;
        self.await_task(found.no.into(), form, Interest::End).await
    }

    /// Sends a message, and waits for the end of the task or for a state in which it needs input,
    /// unless the client wants the answer at once.
    pub(crate) async fn send_and_wait(
        &self,
        request: SendMessageRequest,
    ) -> Result<Task, A2AError> {
        let configuration = request.configuration.clone();
        let length = configuration.as_ref().and_then(|it| it.history_length);
        let form = TaskForm::whole(length)?;
        let at_once = configuration.and_then(|it| it.return_immediately).unwrap_or(false);
        let id = match self.send(request).await? {
            SentMessage::Rejected(task) => return Ok(*task),
            SentMessage::Accepted(id) => id,
        };
        match at_once {
            true => {
                let found = self.find(&id.to_string()).await?;
                self.describe(&found, form).await.map_err(|refusal| error_of(&refusal))
            }
            false => self.await_task(id.no.into(), form, Interest::EndOrInput).await,
        }
    }

    /// Waits for a state of interest, for a bounded time. Returns the task as it is then.
    async fn await_task(
        &self,
        task: TaskRef,
        form: TaskForm,
        interest: Interest,
    ) -> Result<Task, A2AError> {
        let awaited = async {
            let found = crate::task_lookup::locate_task(self.session.clone(), task).await?;
            let id = TaskId { session: self.session.id(), no: found.no };
            let mut watch = TaskWatch::open(self.clone(), id, form).await?;
            let reached = async {
                while !interest.is_reached(&watch) {
                    if watch.next().await?.is_empty() {
                        break;
                    }
                }
                Ok::<_, Refusal>(())
            };
            tokio::select! {
                biased;
                () = self.caller.reader().token_ended() => return Err(ended_token(id)),
                reached = reached => reached?,
                () = tokio::time::sleep(interest.timeout()) => {}
                () = self.state.daemon.shutdown.shutdown_token.cancelled() => {
                    return Err(Refusal::unavailable("the server shuts down; get the task later"));
                }
            }
            let found = self.caller.task(id).await?;
            if self.caller.has_ended() {
                return Err(ended_token(id));
            }
            self.describe(&found, form).await
        };
        awaited.await.map_err(|refusal| error_of(&refusal))
    }

    /// Carries out a message: starts a task, answers a question, decides an approval or delivers it.
    pub(crate) async fn send(&self, request: SendMessageRequest) -> Result<SentMessage, A2AError> {
        check_configuration(request.configuration.as_ref())?;
        let message = IncomingMessage::parse(request.message)?;
        match message.task {
            Some(id) => {
                self.deliver(id, &message).await?;
                Ok(SentMessage::Accepted(id))
            }
            None => self.start(&message).await,
        }
    }

    async fn start(&self, message: &IncomingMessage) -> Result<SentMessage, A2AError> {
        let context_id = match &message.context {
            Some(context) => context.clone(),
            None => self.new_context(message)?,
        };
        match self.spawn(message, context_id.clone()).await {
            Ok(id) => Ok(SentMessage::Accepted(id)),
            Err(refusal) => match refusal.kind {
                RefusalKind::Limit | RefusalKind::Forbidden | RefusalKind::NotFound => {
                    Ok(SentMessage::Rejected(Box::new(new_rejected(message, &context_id, refusal))))
                }
                _ => Err(error_of(&refusal)),
            },
        }
    }

    async fn spawn(
        &self,
        message: &IncomingMessage,
        context_id: ConversationId,
    ) -> Result<TaskId, Refusal> {
        let workspace = self.session.row().name.to_string();
        if !Path::new(&workspace).is_absolute() {
            return Err(no_workspace());
        }
        // The definition bounds the permissions. The sandbox bounds what a client's agent reaches.
        let request = RunRequest {
            key: Some(format!("a2a/{}", message.id)),
            agent: Some(self.agent.clone()),
            cwd: Some(workspace),
            permissions: PermissionRules::all(),
            keep: true,
            sandbox: Some(Default::default()),
            ..RunRequest::new("", &message.text)
        };
        let reply = self.context(Some(context_id))?.call(request).await?;
        let task: TaskRef = reply.task.address.parse()?;
        let found = crate::task_lookup::locate_task(self.session.clone(), task).await?;
        Ok(TaskId { session: self.session.id(), no: found.no })
    }

    /// Returns the context of a first message, the same one if the message is repeated.
    fn new_context(&self, message: &IncomingMessage) -> Result<ConversationId, A2AError> {
        let digest = Sha256::new().chain_update(&self.caller.token.id).chain_update(&message.id);
        let mut id = hex(&digest.finalize());
        id.truncate(CONTEXT_DIGITS);
        id.parse().map_err(|refusal| error_of(&refusal))
    }

    /// Returns the context of requests as this client, in one of its conversations.
    pub(super) fn context(
        &self,
        conversation: Option<ConversationId>,
    ) -> Result<RequestContext, Refusal> {
        let context = self.caller.writer()?.in_session(self.session.id());
        let name = self.caller.token.client_name().as_str().into();
        let client = ClientIdentity { name, conversation };
        Ok(RequestContext { caller: CallerIdentity::Client(client), ..context })
    }
}

/// Returns the refusal of a caller whose token ended after its request had an effect.
fn ended_token(id: TaskId) -> Refusal {
    let text = format!("the token has expired or was revoked; the request reached the task {id}");
    Refusal::unavailable(text)
}

/// The state for which a request waits.
#[derive(Clone, Copy, Debug)]
enum Interest {
    End,
    EndOrInput,
}

impl Interest {
    fn timeout(self) -> Duration {
        match self {
            Self::End => CANCEL_WAIT_MAX,
            Self::EndOrInput => WAIT_MAX,
        }
    }

    fn is_reached(self, watch: &TaskWatch) -> bool {
        match self {
            Self::End => watch.state().is_terminal(),
            Self::EndOrInput => watch.state().is_terminal() || watch.is_interrupted(),
        }
    }
}

fn check_configuration(configuration: Option<&SendMessageConfiguration>) -> Result<(), A2AError> {
    let push = configuration.and_then(|it| it.task_push_notification_config.as_ref());
    match push {
        Some(_) => Err(A2AError::push_notification_not_supported()),
        None => Ok(()),
    }
}

/// Returns the task of a refused start. It is stored nowhere.
fn new_rejected(message: &IncomingMessage, context: &ConversationId, refusal: Refusal) -> Task {
    let id = format!("rejected-{}", hex(&Sha256::digest(&message.id)));
    let reason = a2a::Message {
        message_id: format!("{id}-reason"),
        context_id: Some(context.to_string()),
        task_id: None,
        role: a2a::Role::Agent,
        parts: vec![a2a::Part::text(refusal.message)],
        metadata: None,
        extensions: None,
        reference_task_ids: None,
    };
    let status = TaskStatus { state: TaskState::Rejected, message: Some(reason), timestamp: None };
    Task {
        id,
        context_id: context.to_string(),
        status,
        artifacts: None,
        history: None,
        metadata: None,
    }
}

/// Returns the error of an operation on push notifications.
pub(crate) fn no_push_notifications() -> A2AError {
    A2AError::new(error_code::PUSH_NOTIFICATION_NOT_SUPPORTED, "push notifications are not sent")
}
