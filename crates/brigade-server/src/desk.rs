//! Where a question finds what it needs: the runtime, and who asks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use brigade_agent::definition::Definitions;
use brigade_model::address::{Address, TaskRef, Who as Named};
use brigade_model::command::ClientControl;
use brigade_model::ids::{Attempt, ClientIdentity, Position, RunNo, TaskNo, TreeId};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_model::tree::SessionState;
use brigade_runtime::{Runtime, Session, Subscription, TaskId};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::addresses;
use crate::admission::Admission;
use crate::conversations::Conversations;
use crate::operator_key::OperatorKey;
use crate::places::Places;
use crate::requests::DaemonStatus;
use crate::trust::TrustStore;
use crate::wire::PROTOCOL;

/// A task as it was typed, and the session in which it is looked for unless it names another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub session: String,
    pub task: String,
}

/// A task that was found.
#[derive(Clone, Debug)]
pub struct Located {
    pub session: Session,
    pub no: TaskNo,
    pub run: Option<RunNo>,
    pub row: Arc<TaskRow>,
}

impl Located {
    pub fn task_ref(&self) -> TaskRef {
        TaskRef { who: Named::No(self.no), run: self.run }
    }
}

/// As whom a connection acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
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
pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) places: Places,
    pub(crate) operator_key: OperatorKey,
    pub(crate) admission: Arc<Admission>,
    pub(crate) began: Instant,
    /// Connections that ask or have asked something.
    pub(crate) clients: AtomicUsize,
    /// Connections that only say that a conversation is there.
    pub(crate) attending: AtomicUsize,
    pub(crate) conversations: Arc<Conversations>,
    /// The definitions that the operator trusts.
    pub(crate) trust: OnceLock<Arc<TrustStore>>,
    /// What is counted, in Prometheus' words.
    pub(crate) counts: OnceLock<Counts>,
    /// Cancelled when the daemon is to leave.
    pub(crate) leaving: CancellationToken,
}

/// Writes down what is counted.
pub(crate) struct Counts(pub(crate) Box<dyn Fn() -> String + Send + Sync>);

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counts")
    }
}

#[derive(Clone, Debug)]
pub struct Desk {
    pub(crate) shared: Arc<Shared>,
    pub(crate) who: Who,
    /// Of a client: whose work it may steer.
    pub(crate) control: ClientControl,
}

impl Desk {
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// The open session of this name, made if there is none.
    pub async fn open(&self, name: &str) -> Result<Session, Refusal> {
        match &self.who {
            Who::Operator => {
                let session = self.runtime().session(name).await?;
                self.runtime().operate(session.id()).await
            }
            Who::Client(client) => {
                let session = self.runtime().session_as(name, client.clone()).await?;
                Ok(session.with_control(self.control))
            }
            Who::Task { id, attempt } => self.runtime().act_as(*id, *attempt).await,
        }
    }

    /// The session of this name, if there is one.
    pub async fn existing(&self, name: &str) -> Result<Session, Refusal> {
        if let Who::Task { id, attempt } = &self.who {
            let session = self.runtime().act_as(*id, *attempt).await?;
            return if session.row().name.to_string() == name {
                Ok(session)
            } else {
                Err(Refusal::forbidden(format!("the session {name} is not yours")))
            };
        }
        let Some(row) = self.runtime().find_session(name).await? else {
            return Err(Refusal::not_found(format!("there is no session {name}")));
        };
        match &self.who {
            Who::Client(client) => {
                let session = self.runtime().visit(row.id, client.clone()).await?;
                Ok(session.with_control(self.control))
            }
            Who::Operator | Who::Task { .. } => self.runtime().operate(row.id).await,
        }
    }

    /// One session, or every one that is open.
    pub async fn sessions(&self, name: Option<&str>) -> Result<Vec<Session>, Refusal> {
        if let Some(name) = name {
            return match self.existing(name).await {
                Ok(session) => Ok(vec![session]),
                Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(Vec::new()),
                Err(refusal) => Err(refusal),
            };
        }
        let mut sessions = Vec::new();
        match &self.who {
            Who::Task { id, attempt } => {
                sessions.push(self.runtime().act_as(*id, *attempt).await?);
            }
            Who::Operator | Who::Client(_) => {
                for row in self.runtime().sessions().await? {
                    if row.state != SessionState::Closed {
                        sessions.push(self.existing(row.name.as_str()).await?);
                    }
                }
            }
        }
        Ok(sessions)
    }

    /// Those that are closed and still kept. Only the operator sees them.
    pub async fn closed_sessions(&self) -> Result<Vec<Session>, Refusal> {
        let mut sessions = Vec::new();
        if self.who == Who::Operator {
            for row in self.runtime().sessions().await? {
                if row.state == SessionState::Closed {
                    sessions.push(self.runtime().operate(row.id).await?);
                }
            }
        }
        Ok(sessions)
    }

    /// The task that somebody typed.
    pub async fn find(&self, target: &Target) -> Result<Located, Refusal> {
        let (session, task) = self.addressed(target).await?;
        addresses::locate(session, task).await
    }

    /// The session of a task that somebody typed, and what it is called there.
    pub(crate) async fn addressed(&self, target: &Target) -> Result<(Session, TaskRef), Refusal> {
        let address: Address = target.task.parse()?;
        let name = address.session.as_ref().map_or(&*target.session, |name| name.as_str());
        let session = match self.existing(name).await {
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
    pub(crate) async fn waiting_in(&self, session: Session) -> Result<Session, Refusal> {
        match self.who {
            Who::Task { .. } => self.runtime().operate(session.id()).await,
            Who::Operator | Who::Client(_) => Ok(session),
        }
    }

    /// Whether this client started a task, in whichever conversation, or the caller acts for all.
    pub(crate) fn has_started(&self, row: &TaskRow) -> bool {
        match &self.who {
            Who::Client(caller) => {
                row.client.as_ref().is_some_and(|client| client.name == caller.name)
            }
            Who::Operator | Who::Task { .. } => true,
        }
    }

    /// Whether its waits take results.
    pub(crate) fn consumes(&self) -> bool {
        matches!(self.who, Who::Client(_))
    }

    /// The changes that this client sees.
    pub async fn feed(
        &self,
        session: Option<&str>,
        after: Position,
    ) -> Result<Subscription, Refusal> {
        match session {
            Some(name) => Ok(self.existing(name).await?.subscribe(after)),
            None => {
                self.operator_only("see the events of all sessions")?;
                Ok(self.runtime().subscribe(after))
            }
        }
    }

    pub async fn session_name(&self, tree: TreeId) -> Result<String, Refusal> {
        let session = self.runtime().operate(tree).await?;
        Ok(session.row().name.to_string())
    }

    /// The definitions for a directory that this client could read itself.
    pub(crate) async fn definitions(&self, directory: &str) -> Result<Definitions, Refusal> {
        match &self.who {
            Who::Operator | Who::Client(_) => self.runtime().definitions(Some(directory)),
            Who::Task { id, attempt } => {
                self.runtime().act_as(*id, *attempt).await?.definitions(directory)
            }
        }
    }

    pub(crate) fn trust(&self) -> Result<&TrustStore, Refusal> {
        let trust = self.shared.trust.get();
        let missing = || Refusal::unavailable("this daemon keeps no trust in definitions");
        trust.map(|trust| &**trust).ok_or_else(missing)
    }

    pub fn operator_only(&self, what: &str) -> Result<(), Refusal> {
        match self.who {
            Who::Operator => Ok(()),
            Who::Client(_) | Who::Task { .. } => {
                Err(Refusal::forbidden(format!("only the operator may {what}")))
            }
        }
    }

    pub(crate) async fn status(&self) -> Result<DaemonStatus, Refusal> {
        let sessions = self.runtime().sessions().await?;
        let mut living = 0;
        let mut open = 0;
        for row in sessions.iter().filter(|row| row.state != SessionState::Closed) {
            open += 1;
            let session = self.runtime().operate(row.id).await?;
            living += session.list().iter().filter(|(_, row)| row.is_living()).count();
        }
        Ok(DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            pid: std::process::id(),
            folder: self.shared.places.folder().display().to_string(),
            up_ms: self.shared.began.elapsed().as_millis() as u64,
            clients: self.shared.clients.load(Ordering::Relaxed),
            sessions: open,
            living,
        })
    }

    pub(crate) fn leave(&self) {
        self.shared.leaving.cancel();
    }
}
