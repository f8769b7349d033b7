//! The root task of a session: finds it, starts it, sends it prompts and stops it.

use std::time::Duration;

use agent_client_protocol::Error;
use brigade_model::json::Json;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_protocol::call::Call;
use brigade_protocol::daemon_connection::ReplyStreamPart;
use brigade_protocol::requests::{
    AnswerRequest, ListTaskPagesRequest, ListTasksRequest, RunRequest, SendRequest,
    ShowTaskRequest, StopRequest,
};
use brigade_protocol::{ClientError, RequestClient, TaskInfo};
use tokio::time::Instant;

use crate::acp_session::AcpSession;
use crate::error_codes::{is_outage, refusal_error, unknown_session};
use crate::prompt_turn::SessionLink;

/// The time for which requests of a turn are repeated while no daemon replies.
const OUTAGE_MAX: Duration = Duration::from_secs(120);
/// The pause between two of them.
pub(crate) const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// The note after an outage: the first delivery of an answer may have been the one that counted.
const UNSURE_ANSWER: &str = "The daemon was lost while your answer was sent. The question is answered, \
                             by this answer or by another one.";

impl SessionLink {
    /// Finds the root task of a session that is opened again.
    pub(crate) async fn find_root(&self) -> Result<TaskInfo, Error> {
        let found = match self.session.root() {
            Ok(target) => self.call(ShowTaskRequest { target }).await,
            Err(_) => self.find_by_name().await,
        };
        found.map_err(|refusal| match refusal.kind {
            RefusalKind::NotFound => unknown_session(self.session.name()),
            _ => refusal_error(&refusal),
        })
    }

    /// Finds the root task by its name: the oldest agent that has it. The name is random, so no
    /// task had it before the root.
    async fn find_by_name(&self) -> Result<TaskInfo, Refusal> {
        let session = Some(self.session.workspace().to_owned());
        let first = ListTasksRequest { session, include_ended: true, limit: Some(1) };
        loop {
            // This call connects to the next daemon after a loss.
            self.call(first.clone()).await?;
            match self.read_tasks().await {
                Ok(Some(task)) => {
                    self.session.set_root(&task.address);
                    let target = self.session.root()?;
                    return self.call(ShowTaskRequest { target }).await;
                }
                Ok(None) => return Err(Refusal::not_found("there is no such session")),
                Err(ClientError::Refused(refusal)) => return Err(refusal),
                Err(error) if error.is_lost_daemon() => {}
                Err(error) => return Err(Refusal::unavailable(error.to_string())),
            }
        }
    }

    /// Reads the tasks of the workspace, the oldest first, up to the root task.
    async fn read_tasks(&self) -> Result<Option<TaskInfo>, ClientError> {
        let session = Some(self.session.workspace().to_owned());
        let list = ListTasksRequest { session, include_ended: true, limit: None };
        let connection = self.client.connect().await?;
        let mut pages = connection.call_streaming(ListTaskPagesRequest { list })?;
        let name = Some(self.session.name());
        while let ReplyStreamPart::Item(tasks) = pages.next_part().await? {
            let root =
                tasks.into_iter().find(|task| task.is_agent() && task.name.as_deref() == name);
            if root.is_some() {
                return Ok(root);
            }
        }
        Ok(None)
    }

    /// Delivers a prompt: starts the root task, answers its question, or sends it a message.
    /// Returns the root task after that.
    pub(crate) async fn deliver(&self, text: String) -> Result<TaskInfo, Refusal> {
        let target = match self.session.root() {
            Ok(target) => target,
            Err(_) => match self.call(self.run_request(text.clone())?).await {
                Ok(reply) => {
                    self.session.set_root(&reply.task.address);
                    return Ok(reply.task);
                }
                // An earlier prompt started it, and its reply was lost.
                Err(refusal) if refusal.kind == RefusalKind::Conflict => {
                    self.find_by_name().await.map_err(|_| refusal)?;
                    self.session.root()?
                }
                Err(refusal) => return Err(refusal),
            },
        };
        let task = self.call(ShowTaskRequest { target: target.clone() }).await?;
        let message = Json::of(&text)?;
        match task.questions.first().filter(|_| task.alive) {
            Some(question) => {
                let question = Some(question.call);
                let target = target.clone();
                self.answer(AnswerRequest { target, answer: message, question }).await?;
            }
            None => {
                let mut request = SendRequest::new(target.clone(), message);
                request.key = Some(AcpSession::new_key()?);
                self.call_in_turn(request).await?;
            }
        }
        self.call_in_turn(ShowTaskRequest { target }).await
    }

    /// Sends an answer. It names its question, so a repeated one has no further effect.
    pub(crate) async fn answer(&self, request: AnswerRequest) -> Result<(), Refusal> {
        match self.client.call_once(|| request.clone()).await {
            Err(refusal) if is_outage(&refusal) => match self.call_in_turn(request).await {
                Err(refusal) if is_outdated(&refusal) => {
                    // An editor that is gone ends the turn elsewhere.
                    let _sent = self.send_text(format!("\n\n{UNSURE_ANSWER}\n\n"));
                    Ok(())
                }
                answered => answered,
            },
            answered => answered,
        }
    }

    fn run_request(&self, prompt: String) -> Result<RunRequest, Refusal> {
        let directory = self.session.directory.to_str();
        let directory =
            directory.ok_or_else(|| Refusal::invalid("the path of the directory is not UTF-8"))?;
        Ok(RunRequest {
            name: Some(self.session.name().to_owned()),
            key: Some(self.session.name().to_owned()),
            agent: self.options.agent.clone(),
            model: self.options.model.clone(),
            cwd: Some(directory.to_owned()),
            permissions: self.options.permissions.clone(),
            ..RunRequest::new(self.session.workspace(), prompt)
        })
    }

    /// Stops the root task, if it is alive.
    pub(crate) async fn stop_root(&self) -> Result<(), Refusal> {
        let target = match self.session.root() {
            Ok(target) => target,
            // A prompt whose reply was lost may have started it.
            Err(_) => match self.find_by_name().await {
                Ok(_) => self.session.root()?,
                Err(refusal) if refusal.kind == RefusalKind::NotFound => return Ok(()),
                Err(refusal) => return Err(refusal),
            },
        };
        let reason = Some("the editor cancelled the prompt".to_owned());
        match self.call_in_turn(StopRequest { target, reason, grace_ms: None }).await {
            Err(refusal) if refusal.kind != RefusalKind::NotFound => Err(refusal),
            _ => Ok(()),
        }
    }

    pub(crate) async fn call<C>(&self, request: C) -> Result<C::Reply, Refusal>
    where
        C: Call + Clone + Sync,
    {
        RequestClient::call(&self.client, || request.clone()).await
    }

    /// Sends a request that may be repeated, and repeats it while no daemon replies: the agent
    /// continues with the next daemon.
    pub(crate) async fn call_in_turn<C>(&self, request: C) -> Result<C::Reply, Refusal>
    where
        C: Call + Clone + Sync,
    {
        let mut failing_since = None;
        loop {
            let refusal = match self.call(request.clone()).await {
                Err(refusal) if is_outage(&refusal) => refusal,
                result => return result,
            };
            let since = *failing_since.get_or_insert_with(Instant::now);
            if since.elapsed() > OUTAGE_MAX {
                let text = format!(
                    "{}; the agent continues with the next daemon: load the session again",
                    refusal.message
                );
                return Err(Refusal { message: text, ..refusal });
            }
            tokio::time::sleep(OUTAGE_PAUSE).await;
        }
    }
}

/// Returns true if a question or an approval was decided, or if its task has ended.
pub(crate) fn is_outdated(refusal: &Refusal) -> bool {
    matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Conflict | RefusalKind::Ended)
}
