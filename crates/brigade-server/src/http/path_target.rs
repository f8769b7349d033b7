//! The task of a path, as a request of the daemon's protocol names it.

use std::future::Future;

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::ids::{ClientIdentity, RunNo, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_protocol::TaskTarget;
use brigade_protocol::http::TaskId;

use super::caller::HttpCaller;
use super::routes::HttpState;
use crate::request_context::{CallerIdentity, LocatedTask, RequestContext};
use crate::task_lookup::locate_task;

impl HttpCaller {
    /// Returns the context for requests that read in the session of a task.
    pub(crate) async fn reader_of(&self, id: TaskId) -> Result<RequestContext, Refusal> {
        self.session_of(id.session).await?;
        Ok(self.reader().in_session(id.session))
    }

    /// Returns the context for requests that change something in the session of a task.
    pub(crate) async fn writer_of(&self, id: TaskId) -> Result<RequestContext, Refusal> {
        let context = self.writer()?;
        self.session_of(id.session).await?;
        Ok(context.in_session(id.session))
    }

    /// Returns the context for a wait that collects results: for the operator, that of a client with
    /// the name of the token.
    pub(crate) fn collector(&self) -> Result<RequestContext, Refusal> {
        let context = self.writer()?;
        Ok(match context.caller {
            CallerIdentity::Operator => {
                let name = self.token.client_name().as_str().into();
                let client = ClientIdentity { name, conversation: None };
                RequestContext { caller: CallerIdentity::Client(client), ..context.clone() }
            }
            CallerIdentity::Client(_) | CallerIdentity::Task { .. } => context.clone(),
        })
    }

    /// Returns a run of a task that the caller sees.
    pub(crate) async fn run(&self, id: TaskId, run: RunNo) -> Result<LocatedTask, Refusal> {
        let session = self.session_of(id.session).await?;
        let task = TaskRef { selector: TaskSelector::Number(id.no), run: Some(run) };
        locate_task(session, task).await
    }
}

/// Returns a task of the session of the path.
pub(crate) fn target_of(no: TaskNo) -> TaskTarget {
    TaskTarget { session: String::new(), task: no.to_string() }
}

impl HttpState {
    /// Runs a wait, which a shutdown of the server ends.
    pub(crate) async fn until_shutdown<T>(
        &self,
        wait: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            biased;
            waited = wait => waited,
            () = self.daemon.shutdown.shutdown_token.cancelled() => {
                Err(Refusal::unavailable("the server shuts down; ask the next one"))
            }
        }
    }
}
