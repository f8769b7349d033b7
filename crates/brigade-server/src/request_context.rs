//! Where a question finds what it needs: the runtime, and who asks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use brigade_agent::definition::DefinitionSet;
use brigade_model::address::{TaskAddress, TaskRef, TaskSelector as Named};
use brigade_model::command::ClientControl;
use brigade_model::ids::{Attempt, ClientIdentity, Position, RunNo, SessionId, TaskNo};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_model::task_tree::SessionState;
use brigade_runtime::{FeedSubscription, Runtime, Session, TaskId};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::conversations::ConversationRegistry;
use crate::frames::PROTOCOL_VERSION;
use crate::operator_key::OperatorKey;
use crate::requests::StatusReply;
use crate::state_dir::StateDir;
use crate::task_lookup;
use crate::trust_store::TrustStore;

/// A task as it was typed, and the session in which it is looked for unless it names another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTarget {
    pub session: String,
    pub task: String,
}

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
        TaskRef { selector: Named::Number(self.no), run: self.run }
    }
}

/// As whom a connection acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallerIdentity {
    Operator,
    Client(ClientIdentity),
    /// A process below a command acts as that command's task.
    Task {
        id: TaskId,
        attempt: Attempt,
    },
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct DaemonState {
    pub(crate) runtime: Runtime,
    pub(crate) state_dir: StateDir,
    pub(crate) operator_key: OperatorKey,
    pub(crate) admission: Arc<Admission>,
    pub(crate) started_at: Instant,
    /// Connections that ask or have asked something.
    pub(crate) client_count: AtomicUsize,
    /// Connections that only say that a conversation is there.
    pub(crate) presence_count: AtomicUsize,
    pub(crate) conversations: Arc<ConversationRegistry>,
    /// The definitions that the operator trusts.
    pub(crate) trust_store: OnceLock<Arc<TrustStore>>,
    /// What is counted, in Prometheus' words.
    pub(crate) metrics_renderer: OnceLock<MetricsRenderer>,
    /// Cancelled when the daemon is to leave.
    pub(crate) shutdown_token: CancellationToken,
}

/// Writes down what is counted.
pub(crate) struct MetricsRenderer(pub(crate) Box<dyn Fn() -> String + Send + Sync>);

impl std::fmt::Debug for MetricsRenderer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counts")
    }
}

#[derive(Clone, Debug)]
pub struct RequestContext {
    pub(crate) daemon: Arc<DaemonState>,
    pub(crate) caller: CallerIdentity,
    /// Of a client: whose work it may steer.
    pub(crate) control: ClientControl,
}

impl RequestContext {
    pub fn runtime(&self) -> &Runtime {
        &self.daemon.runtime
    }

    /// The open session of this name, made if there is none.
    pub async fn open_session(&self, name: &str) -> Result<Session, Refusal> {
        match &self.caller {
            CallerIdentity::Operator => {
                let session = self.runtime().session(name).await?;
                self.runtime().operator_session(session.id()).await
            }
            CallerIdentity::Client(client) => {
                let session = self.runtime().session_as(name, client.clone()).await?;
                Ok(session.with_control(self.control))
            }
            CallerIdentity::Task { id, attempt } => {
                self.runtime().task_session(*id, *attempt).await
            }
        }
    }

    /// The session of this name, if there is one.
    pub async fn existing_session(&self, name: &str) -> Result<Session, Refusal> {
        if let CallerIdentity::Task { id, attempt } = &self.caller {
            let session = self.runtime().task_session(*id, *attempt).await?;
            return if session.row().name.to_string() == name {
                Ok(session)
            } else {
                Err(Refusal::forbidden(format!("the session {name} is not yours")))
            };
        }
        let Some(row) = self.runtime().find_session(name).await? else {
            return Err(Refusal::not_found(format!("there is no session {name}")));
        };
        match &self.caller {
            CallerIdentity::Client(client) => {
                let session = self.runtime().client_session(row.id, client.clone()).await?;
                Ok(session.with_control(self.control))
            }
            CallerIdentity::Operator | CallerIdentity::Task { .. } => {
                self.runtime().operator_session(row.id).await
            }
        }
    }

    /// One session, or every one that is open.
    pub async fn sessions(&self, name: Option<&str>) -> Result<Vec<Session>, Refusal> {
        if let Some(name) = name {
            return match self.existing_session(name).await {
                Ok(session) => Ok(vec![session]),
                Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(Vec::new()),
                Err(refusal) => Err(refusal),
            };
        }
        let mut sessions = Vec::new();
        match &self.caller {
            CallerIdentity::Task { id, attempt } => {
                sessions.push(self.runtime().task_session(*id, *attempt).await?);
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

    /// Those that are closed and still kept. Only the operator sees them.
    pub async fn closed_sessions(&self) -> Result<Vec<Session>, Refusal> {
        let mut sessions = Vec::new();
        if self.caller == CallerIdentity::Operator {
            for row in self.runtime().sessions().await? {
                if row.state == SessionState::Closed {
                    sessions.push(self.runtime().operator_session(row.id).await?);
                }
            }
        }
        Ok(sessions)
    }

    /// The task that somebody typed.
    pub async fn find_task(&self, target: &TaskTarget) -> Result<LocatedTask, Refusal> {
        let (session, task) = self.resolve_target(target).await?;
        task_lookup::locate_task(session, task).await
    }

    /// The session of a task that somebody typed, and what it is called there.
    pub(crate) async fn resolve_target(
        &self,
        target: &TaskTarget,
    ) -> Result<(Session, TaskRef), Refusal> {
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
        Ok((session, address.task))
    }

    /// The session to wait in for tasks that were found. A task of the model waits by parking a call,
    /// which a process cannot: it looks on as the operator does.
    pub(crate) async fn session_for_wait(&self, session: Session) -> Result<Session, Refusal> {
        match self.caller {
            CallerIdentity::Task { .. } => self.runtime().operator_session(session.id()).await,
            CallerIdentity::Operator | CallerIdentity::Client(_) => Ok(session),
        }
    }

    /// Whether this client started a task, in whichever conversation, or the caller acts for all.
    pub(crate) fn is_owner_of(&self, row: &TaskRow) -> bool {
        match &self.caller {
            CallerIdentity::Client(caller) => {
                row.client.as_ref().is_some_and(|client| client.name == caller.name)
            }
            CallerIdentity::Operator | CallerIdentity::Task { .. } => true,
        }
    }

    /// Whether its waits take results.
    pub(crate) fn consumes_results(&self) -> bool {
        matches!(self.caller, CallerIdentity::Client(_))
    }

    /// The changes that this client sees.
    pub async fn subscribe(
        &self,
        session: Option<&str>,
        after: Position,
    ) -> Result<FeedSubscription, Refusal> {
        match session {
            Some(name) => Ok(self.existing_session(name).await?.subscribe(after)),
            None => {
                self.require_operator("see the events of all sessions")?;
                Ok(self.runtime().subscribe(after))
            }
        }
    }

    pub async fn session_name(&self, tree: SessionId) -> Result<String, Refusal> {
        let session = self.runtime().operator_session(tree).await?;
        Ok(session.row().name.to_string())
    }

    /// The definitions for a directory that this client could read itself.
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
        let missing = || Refusal::unavailable("this daemon keeps no trust in definitions");
        trust.map(|trust| &**trust).ok_or_else(missing)
    }

    pub fn require_operator(&self, what: &str) -> Result<(), Refusal> {
        match self.caller {
            CallerIdentity::Operator => Ok(()),
            CallerIdentity::Client(_) | CallerIdentity::Task { .. } => {
                Err(Refusal::forbidden(format!("only the operator may {what}")))
            }
        }
    }

    pub(crate) async fn status(&self) -> Result<StatusReply, Refusal> {
        let sessions = self.runtime().sessions().await?;
        let mut living = 0;
        let mut open = 0;
        for row in sessions.iter().filter(|row| row.state != SessionState::Closed) {
            open += 1;
            let session = self.runtime().operator_session(row.id).await?;
            living += session.list().iter().filter(|(_, row)| row.is_alive()).count();
        }
        Ok(StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            pid: std::process::id(),
            state_dir: self.daemon.state_dir.path().display().to_string(),
            uptime_ms: self.daemon.started_at.elapsed().as_millis() as u64,
            clients: self.daemon.client_count.load(Ordering::Relaxed),
            sessions: open,
            alive_tasks: living,
        })
    }

    pub(crate) fn shutdown(&self) {
        self.daemon.shutdown_token.cancel();
    }
}
