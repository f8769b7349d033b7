//! The caller and the daemon's services, as a request handler sees them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use brigade_agent::definition::DefinitionSet;
use brigade_mcp::server::streamable_http::McpHttpService;
use brigade_model::address::{TaskAddress, TaskRef, TaskSelector};
use brigade_model::command::ClientControl;
use brigade_model::event_author::CallerOrigin;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Attempt, ClientIdentity, RunNo, SessionId, TaskNo};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::spec::RequestedNotifier;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::SessionState;
use brigade_runtime::{FeedSubscription, Runtime, Session, TaskId};
use uuid::Uuid;

use crate::admission::Admission;
use crate::conversations::ConversationRegistry;
use crate::external_programs::ExternalPrograms;
use crate::http::listeners::HttpListeners;
use crate::http::local_requests::LocalRequests;
use crate::http::open_requests::TokenValidity;
use crate::http::shared_state::HttpShared;
use crate::notifications::service::NotificationService;
use crate::shutdown_handle::ShutdownHandle;
use crate::task_lookup;
use crate::trust_store::TrustStore;
use brigade_protocol::TaskTarget;
use brigade_protocol::frames::PROTOCOL_VERSION;
use brigade_protocol::operator_key::OperatorKey;
use brigade_protocol::requests::StatusReply;
use brigade_protocol::state_dir::StateDir;

/// A task that was found.
#[derive(Clone, Debug)]
pub struct LocatedTask {
    pub session: Session,
    pub no: TaskNo,
    pub run: Option<RunNo>,
    pub row: Arc<TaskRow>,
}

impl LocatedTask {
    pub fn task_ref(&self) -> TaskRef {
        TaskRef { selector: TaskSelector::Number(self.no), run: self.run }
    }
}

/// A task as typed, with its session resolved.
pub(crate) struct ResolvedTarget {
    pub(crate) session: Session,
    pub(crate) task: TaskRef,
}

/// The identity under which a connection acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallerIdentity {
    Operator,
    Client(ClientIdentity),
    /// A descendant of a task's process acts as that task.
    Task {
        id: TaskId,
        attempt: Attempt,
    },
}

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct DaemonState {
    pub(crate) runtime: Runtime,
    pub(crate) state_dir: StateDir,
    pub(crate) operator_key: OperatorKey,
    pub(crate) admission: Arc<Admission>,
    pub(crate) started_at: Instant,
    /// The id of the store, which is part of every cursor.
    pub(crate) store_id: Uuid,
    pub(crate) http_listeners: HttpListeners,
    pub(crate) http: HttpShared,
    /// The daemon was started to serve HTTP.
    pub(crate) is_server: bool,
    /// The MCP server of all listeners.
    pub(crate) mcp_service: McpHttpService<LocalRequests>,
    /// Connections that have sent a request, and all without a conversation.
    pub(crate) client_count: AtomicUsize,
    /// Connections that only signal the presence of a conversation.
    pub(crate) presence_count: AtomicUsize,
    pub(crate) conversations: Arc<ConversationRegistry>,
    pub(crate) trust_store: OnceLock<Arc<TrustStore>>,
    pub(crate) external_programs: OnceLock<Arc<ExternalPrograms>>,
    pub(crate) metrics_renderer: OnceLock<MetricsRenderer>,
    pub(crate) notifications: NotificationService,
    pub(crate) shutdown: ShutdownHandle,
}

/// Renders the metrics in the text format of Prometheus.
pub(crate) struct MetricsRenderer(pub(crate) Box<dyn Fn() -> String + Send + Sync>);

impl std::fmt::Debug for MetricsRenderer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetricsRenderer")
    }
}

#[derive(Clone, Debug)]
pub struct RequestContext {
    pub(crate) daemon: Arc<DaemonState>,
    pub(crate) caller: CallerIdentity,
    /// The place from which the caller acts, as a label in the authors of events. It gives no rights.
    pub(crate) origin: Option<CallerOrigin>,
    /// The tasks that a client may control.
    pub(crate) control: ClientControl,
    /// The session of a request that names none. A path of the HTTP API has the id of a session.
    pub(crate) path_session: Option<SessionId>,
    /// The only session that the caller may use, as a client's token has one.
    pub(crate) session_scope: Option<SessionId>,
    /// The validity of the token of an HTTP request.
    pub(crate) validity: Option<TokenValidity>,
}

impl RequestContext {
    pub fn runtime(&self) -> &Runtime {
        &self.daemon.runtime
    }

    /// Waits until the caller's token is no longer valid, if it has one.
    pub(crate) async fn token_ended(&self) {
        match &self.validity {
            Some(validity) => validity.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Returns true if the caller's token was revoked or has expired since the request began.
    pub(crate) fn token_has_ended(&self) -> bool {
        let validity = self.validity.as_ref();
        validity.is_some_and(|validity| validity.cancellation().is_cancelled())
    }

    /// Returns the context of requests in a session. Their field `session` is empty.
    #[must_use]
    pub(crate) fn in_session(&self, id: SessionId) -> Self {
        Self { path_session: Some(id), ..self.clone() }
    }

    /// Returns the session of this id, as the caller sees it.
    pub(crate) async fn session_by_id(&self, id: SessionId) -> Result<Session, Refusal> {
        let session = match &self.caller {
            CallerIdentity::Operator => self.runtime().operator_session(id).await?,
            CallerIdentity::Client(client) => {
                let session = self.runtime().client_session(id, client.clone()).await?;
                session.with_control(self.control)
            }
            CallerIdentity::Task { id: own, attempt } => {
                let session = self.runtime().task_session(*own, *attempt).await?;
                if session.id() != id {
                    return Err(Refusal::forbidden("this session is not yours"));
                }
                session
            }
        };
        self.check_session_scope(Some(id))?;
        Ok(self.label(session))
    }

    /// Labels a session with the origin of this caller.
    fn label(&self, session: Session) -> Session {
        match &self.origin {
            Some(origin) => session.with_origin(origin.clone()),
            None => session,
        }
    }

    /// Refuses every session but that of the token. Whether there is another one is not told.
    fn check_session_scope(&self, id: Option<SessionId>) -> Result<(), Refusal> {
        match self.session_scope {
            Some(own) if Some(own) != id => {
                Err(Refusal::forbidden("this token is of another session"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the open session of this name, or creates it.
    pub async fn open_session(&self, name: &str) -> Result<Session, Refusal> {
        if let Some(id) = self.path_session.filter(|_| name.is_empty()) {
            return self.session_by_id(id).await;
        }
        if self.session_scope.is_some() {
            return self.existing_session(name).await;
        }
        let session = match &self.caller {
            CallerIdentity::Operator => {
                let session = self.runtime().session(name).await?;
                self.runtime().operator_session(session.id()).await?
            }
            CallerIdentity::Client(client) => {
                let session = self.runtime().session_as(name, client.clone()).await?;
                session.with_control(self.control)
            }
            CallerIdentity::Task { id, attempt } => {
                self.runtime().task_session(*id, *attempt).await?
            }
        };
        Ok(self.label(session))
    }

    /// Returns the session of this name, or refuses if there is none.
    pub async fn existing_session(&self, name: &str) -> Result<Session, Refusal> {
        if let Some(id) = self.path_session.filter(|_| name.is_empty()) {
            return self.session_by_id(id).await;
        }
        if let CallerIdentity::Task { id, attempt } = &self.caller {
            let session = self.runtime().task_session(*id, *attempt).await?;
            return if session.row().name.to_string() == name {
                Ok(self.label(session))
            } else {
                Err(Refusal::forbidden(format!("the session {name} is not yours")))
            };
        }
        let found = self.runtime().find_session(name).await?;
        self.check_session_scope(found.as_ref().map(|row| row.id))?;
        let Some(row) = found else {
            return Err(Refusal::not_found(format!("there is no session {name}")));
        };
        let session = match &self.caller {
            CallerIdentity::Client(client) => {
                let session = self.runtime().client_session(row.id, client.clone()).await?;
                session.with_control(self.control)
            }
            CallerIdentity::Operator | CallerIdentity::Task { .. } => {
                self.runtime().operator_session(row.id).await?
            }
        };
        Ok(self.label(session))
    }

    /// Returns the named session, or all open ones.
    pub async fn sessions(&self, name: Option<&str>) -> Result<Vec<Session>, Refusal> {
        if let Some(name) = name {
            return match self.existing_session(name).await {
                Ok(session) => Ok(vec![session]),
                Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(Vec::new()),
                Err(refusal) => Err(refusal),
            };
        }
        if let Some(id) = self.session_scope {
            return Ok(vec![self.session_by_id(id).await?]);
        }
        let mut sessions = Vec::new();
        match &self.caller {
            CallerIdentity::Task { id, attempt } => {
                let session = self.runtime().task_session(*id, *attempt).await?;
                sessions.push(self.label(session));
            }
            CallerIdentity::Operator | CallerIdentity::Client(_) => {
                for row in self.runtime().sessions().await? {
                    if row.state != SessionState::Closed {
                        sessions.push(self.existing_session(row.name.as_str()).await?);
                    }
                }
            }
        }
        Ok(sessions)
    }

    /// Returns the closed sessions that are still stored. Only the operator sees them.
    pub async fn closed_sessions(&self) -> Result<Vec<Session>, Refusal> {
        let mut sessions = Vec::new();
        if self.caller == CallerIdentity::Operator {
            for row in self.runtime().sessions().await? {
                if row.state == SessionState::Closed {
                    let session = self.runtime().operator_session(row.id).await?;
                    sessions.push(self.label(session));
                }
            }
        }
        Ok(sessions)
    }

    /// Returns the task that the user typed.
    pub async fn find_task(&self, target: &TaskTarget) -> Result<LocatedTask, Refusal> {
        let ResolvedTarget { session, task } = self.resolve_target(target).await?;
        task_lookup::locate_task(session, task).await
    }

    /// Resolves the session of a task that the user typed.
    pub(crate) async fn resolve_target(
        &self,
        target: &TaskTarget,
    ) -> Result<ResolvedTarget, Refusal> {
        let address: TaskAddress = target.task.parse()?;
        let name = address.session.as_ref().map_or(&*target.session, |name| name.as_str());
        let session = match self.existing_session(name).await {
            Err(refusal) if refusal.kind == RefusalKind::NotFound && address.session.is_none() => {
                return Err(Refusal::not_found(format!(
                    "there is no {} here: nothing was ever started in {name}",
                    target.task
                )));
            }
            session => session?,
        };
        Ok(ResolvedTarget { session, task: address.task })
    }

    /// Returns the session in which to wait for tasks. A task waits by parking a call. Its
    /// processes cannot, so they wait with the operator's view, which collects nothing. The program
    /// of an agent waits in its agent's place.
    pub(crate) async fn session_for_wait(&self, session: Session) -> Result<Session, Refusal> {
        match self.caller {
            CallerIdentity::Task { id, .. } if !self.runtime().is_part(id) => {
                self.runtime().operator_session(session.id()).await
            }
            _ => Ok(session),
        }
    }

    /// Returns true if this client started the task, in any conversation. The operator and tasks
    /// count as owners of all tasks that they see.
    pub(crate) fn is_owner_of(&self, row: &TaskRow) -> bool {
        match &self.caller {
            CallerIdentity::Client(caller) => {
                row.client.as_ref().is_some_and(|client| client.name == caller.name)
            }
            CallerIdentity::Operator | CallerIdentity::Task { .. } => true,
        }
    }

    pub(crate) fn is_client(&self) -> bool {
        matches!(self.caller, CallerIdentity::Client(_))
    }

    /// Returns true if waits of this caller collect results.
    pub(crate) fn consumes_results(&self) -> bool {
        match self.caller {
            CallerIdentity::Client(_) => true,
            CallerIdentity::Task { id, .. } => self.runtime().is_part(id),
            CallerIdentity::Operator => false,
        }
    }

    /// Subscribes to the events that this caller sees.
    pub async fn subscribe(
        &self,
        session: Option<&str>,
        after: FeedCursor,
    ) -> Result<FeedSubscription, Refusal> {
        match session {
            Some(name) => Ok(self.existing_session(name).await?.subscribe(after)),
            None => {
                self.require_operator("see the events of all sessions")?;
                Ok(self.runtime().subscribe(after))
            }
        }
    }

    pub async fn session_name(&self, session: SessionId) -> Result<String, Refusal> {
        let session = self.runtime().operator_session(session).await?;
        Ok(session.row().name.to_string())
    }

    /// Returns the definitions for a directory that this caller may read.
    pub(crate) async fn definitions(&self, directory: &str) -> Result<DefinitionSet, Refusal> {
        match &self.caller {
            CallerIdentity::Operator | CallerIdentity::Client(_) => {
                self.runtime().definitions(Some(directory))
            }
            CallerIdentity::Task { id, attempt } => {
                self.runtime().task_session(*id, *attempt).await?.definitions(directory)
            }
        }
    }

    pub(crate) fn trust_store(&self) -> Result<&TrustStore, Refusal> {
        let trust = self.daemon.trust_store.get();
        let missing = || Refusal::unavailable("this daemon has no store of trusted definitions");
        trust.map(|trust| &**trust).ok_or_else(missing)
    }

    /// Refuses callers other than the operator. The refusal names the action.
    pub fn require_operator(&self, action: &str) -> Result<(), Refusal> {
        match self.caller {
            CallerIdentity::Operator => Ok(()),
            CallerIdentity::Client(_) | CallerIdentity::Task { .. } => {
                Err(Refusal::forbidden(format!("only the operator may {action}")))
            }
        }
    }

    /// Refuses a request for a notifier that is not configured, or that is not the operator's.
    pub(crate) fn check_notifier(
        &self,
        requested: Option<&RequestedNotifier>,
    ) -> Result<(), Refusal> {
        let Some(requested) = requested else { return Ok(()) };
        self.require_operator("choose a notifier")?;
        self.daemon.notifications.check_requested(requested)
    }

    pub(crate) async fn status(&self) -> Result<StatusReply, Refusal> {
        let sessions = self.runtime().sessions().await?;
        let mut alive_tasks = 0;
        let mut open_sessions = 0;
        for row in sessions.iter().filter(|row| row.state != SessionState::Closed) {
            open_sessions += 1;
            let session = self.runtime().operator_session(row.id).await?;
            alive_tasks += session.list().iter().filter(|task| task.row.is_alive()).count();
        }
        Ok(StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            pid: std::process::id(),
            state_dir: self.daemon.state_dir.path().display().to_string(),
            uptime_ms: self.daemon.started_at.elapsed().as_millis() as u64,
            clients: self.daemon.client_count.load(Ordering::Relaxed),
            sessions: open_sessions,
            alive_tasks,
        })
    }

    pub(crate) fn request_shutdown(&self) {
        self.daemon.shutdown.request_shutdown();
    }
}
