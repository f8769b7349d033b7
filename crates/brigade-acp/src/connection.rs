//! The connection to one editor, and the served methods.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, CloseSessionRequest, CloseSessionResponse,
    Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest,
    ListSessionsResponse, LoadSessionRequest, LoadSessionResponse, McpServer, NewSessionRequest,
    NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse, ResumeSessionRequest,
    ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities, SessionId, SessionInfo,
    SessionListCapabilities, SessionResumeCapabilities,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    Agent, Client, Error, Lines, on_receive_notification, on_receive_request,
};
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::ListTasksRequest;
use brigade_protocol::workspace::session_name_of;
use brigade_protocol::{RequestClient, TaskInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::AcpOptions;
use crate::acp_session::{AcpSession, PromptGuard};
use crate::error_codes::{invalid_request, refusal_error, unknown_session};
use crate::line_transport::{incoming_lines, outgoing_lines};
use crate::prompt_text::render_prompt;
use crate::prompt_turn::{SessionHistory, SessionLink};

/// The maximum number of open sessions.
const SESSIONS_MAX: usize = 1_000;
/// The maximum number of tasks among which sessions are listed.
const LISTED_TASKS_MAX: usize = 10_000;

/// Serves the methods until the input ends.
pub(crate) async fn run_connection<R, W>(
    client: DaemonClient,
    options: AcpOptions,
    input: R,
    output: W,
) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let disconnected = CancellationToken::new();
    let transport = Lines::new(outgoing_lines(output), incoming_lines(input, disconnected.clone()));
    let server = Arc::new(EditorServer {
        client,
        options: Arc::new(options),
        sessions: Mutex::default(),
        has_forms: AtomicBool::new(false),
        disconnected,
    });
    let [initialize, new, load, resume, list, close, prompt, cancel] =
        [(); 8].map(|()| server.clone());
    let served = Agent
        .v1()
        .name("brigade")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _editor| {
                responder.respond(initialize.initialize(&request))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _editor| {
                responder.respond_with_result(new.new_session(&request))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, editor| {
                load.load_session(request, responder, editor)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, editor| {
                resume.resume_session(request, responder, editor)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ListSessionsRequest, responder, editor| {
                list.list_sessions(request, responder, &editor)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, editor| {
                close.close_session(request, responder, editor)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, editor| {
                prompt.prompt(request, responder, editor)
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, editor| {
                cancel.cancel(notification, editor)
            },
            on_receive_notification!(),
        )
        .connect_to(transport)
        .await;
    served.map_err(|error| io::Error::other(error.to_string()))
}

/// The state of one connection.
#[derive(Debug)]
struct EditorServer {
    client: DaemonClient,
    options: Arc<AcpOptions>,
    /// The open sessions, by their ids.
    sessions: Mutex<HashMap<String, Arc<AcpSession>>>,
    has_forms: AtomicBool,
    /// Cancelled when the input has ended.
    disconnected: CancellationToken,
}

/// A prompt that was accepted.
struct PromptTurn {
    link: SessionLink,
    text: String,
    guard: PromptGuard,
}

/// A session that was opened again.
struct ContinuedSession {
    link: SessionLink,
    /// The root task has not ended.
    is_alive: bool,
}

impl EditorServer {
    fn initialize(&self, request: &InitializeRequest) -> InitializeResponse {
        let elicitation = request.client_capabilities.elicitation.as_ref();
        let has_forms = elicitation.is_some_and(|elicitation| elicitation.form.is_some());
        self.has_forms.store(has_forms, Ordering::Relaxed);
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().embedded_context(true))
            .session_capabilities(sessions);
        let version = env!("CARGO_PKG_VERSION");
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .agent_info(Implementation::new("brigade", version).title("Brigade".to_owned()))
    }

    fn new_session(&self, request: &NewSessionRequest) -> Result<NewSessionResponse, Error> {
        let id = AcpSession::new_id()?;
        self.open_session(id.clone(), &request.cwd, &request.mcp_servers)?;
        Ok(NewSessionResponse::new(id))
    }

    fn load_session(
        self: &Arc<Self>,
        request: LoadSessionRequest,
        responder: Responder<LoadSessionResponse>,
        editor: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let LoadSessionRequest { session_id, cwd, mcp_servers, .. } = request;
        let link = self.open_again(&session_id, &cwd, &mcp_servers, &editor);
        let server = self.clone();
        self.run_beside(&editor, async move {
            let opened = server.continue_session(link, SessionHistory::Sent).await;
            let response = opened.as_ref().map(|_| LoadSessionResponse::new());
            responder.respond_with_result(response.map_err(Clone::clone))?;
            follow_alive(opened).await
        })
    }

    fn resume_session(
        self: &Arc<Self>,
        request: ResumeSessionRequest,
        responder: Responder<ResumeSessionResponse>,
        editor: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let ResumeSessionRequest { session_id, cwd, mcp_servers, .. } = request;
        let link = self.open_again(&session_id, &cwd, &mcp_servers, &editor);
        let server = self.clone();
        self.run_beside(&editor, async move {
            let opened = server.continue_session(link, SessionHistory::Known).await;
            let response = opened.as_ref().map(|_| ResumeSessionResponse::new());
            responder.respond_with_result(response.map_err(Clone::clone))?;
            follow_alive(opened).await
        })
    }

    /// Finds the root task of a session that is opened again, and reads its past.
    async fn continue_session(
        &self,
        link: Result<SessionLink, Error>,
        history: SessionHistory,
    ) -> Result<ContinuedSession, Error> {
        let link = link?;
        match link.read_history(history).await {
            Ok(root) => Ok(ContinuedSession { link, is_alive: root.alive }),
            Err(error) => {
                self.sessions().remove(link.session.name());
                Err(error)
            }
        }
    }

    fn list_sessions(
        self: &Arc<Self>,
        request: ListSessionsRequest,
        responder: Responder<ListSessionsResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let server = self.clone();
        self.run_beside(editor, async move {
            responder.respond_with_result(server.find_sessions(request.cwd.as_deref()).await)
        })
    }

    async fn find_sessions(&self, cwd: Option<&Path>) -> Result<ListSessionsResponse, Error> {
        let workspace = match (&self.options.workspace, cwd) {
            (Some(workspace), _) => Some(workspace.clone()),
            (None, Some(cwd)) => {
                Some(session_name_of(cwd).map_err(|refusal| refusal_error(&refusal))?)
            }
            (None, None) => None,
        };
        let request = ListTasksRequest {
            session: workspace,
            include_ended: true,
            limit: Some(LISTED_TASKS_MAX),
        };
        let tasks = RequestClient::call(&self.client, || request.clone()).await;
        let tasks = tasks.map_err(|refusal| refusal_error(&refusal))?;
        let mut sessions: Vec<SessionInfo> =
            tasks.iter().filter_map(|task| session_info(task, cwd)).collect();
        sessions.sort_by(|left, right| right.updated_at.cmp(&left.updated_at));
        Ok(ListSessionsResponse::new(sessions))
    }

    fn close_session(
        self: &Arc<Self>,
        request: CloseSessionRequest,
        responder: Responder<CloseSessionResponse>,
        editor: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let Some(session) = self.sessions().remove(&*request.session_id.0) else {
            return responder.respond_with_error(unknown_session(&request.session_id.0));
        };
        let link = self.link(session, editor.clone());
        self.run_beside(&editor, async move {
            if link.session.cancel_prompt() {
                return responder.respond(CloseSessionResponse::new());
            }
            let stopped = link.stop_root().await;
            let closed = stopped.map(|()| CloseSessionResponse::new());
            responder.respond_with_result(closed.map_err(|refusal| refusal_error(&refusal)))
        })
    }

    fn prompt(
        self: &Arc<Self>,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
        editor: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        match self.begin_turn(&request, &editor) {
            Ok(PromptTurn { link, text, guard }) => self.run_beside(&editor, async move {
                responder.respond_with_result(link.run_prompt(text, guard).await)
            }),
            Err(error) => responder.respond_with_error(error),
        }
    }

    fn begin_turn(
        &self,
        request: &PromptRequest,
        editor: &ConnectionTo<Client>,
    ) -> Result<PromptTurn, Error> {
        let session = self.find_session(&request.session_id)?;
        let text = render_prompt(&request.prompt)?;
        let guard = session.begin_prompt()?;
        Ok(PromptTurn { link: self.link(session, editor.clone()), text, guard })
    }

    /// Stops the run of a session. A session that is not open has none here.
    fn cancel(
        self: &Arc<Self>,
        notification: CancelNotification,
        editor: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let Ok(session) = self.find_session(&notification.session_id) else { return Ok(()) };
        // What a later prompt starts is not meant.
        if session.cancel_prompt() || session.has_no_agent() {
            return Ok(());
        }
        let link = self.link(session, editor.clone());
        self.run_beside(&editor, async move {
            // Nobody waits for an answer, and a stop that failed shows as a task that is alive.
            let _stopped = link.stop_root().await;
            Ok(())
        })
    }

    /// Opens a session that an earlier connection may have created.
    fn open_again(
        &self,
        id: &SessionId,
        cwd: &Path,
        servers: &[McpServer],
        editor: &ConnectionTo<Client>,
    ) -> Result<SessionLink, Error> {
        if !AcpSession::is_id(&id.0) {
            return Err(unknown_session(&id.0));
        }
        if let Some(open) = self.sessions().get(&*id.0) {
            open.end_following()?;
        }
        let session = self.open_session(id.clone(), cwd, servers)?;
        Ok(self.link(session, editor.clone()))
    }

    fn open_session(
        &self,
        id: SessionId,
        cwd: &Path,
        servers: &[McpServer],
    ) -> Result<Arc<AcpSession>, Error> {
        let session = AcpSession::new(id, cwd, self.options.workspace.as_deref())?;
        if !servers.is_empty() {
            session.add_note(
                "Brigade does not use the MCP servers of the editor. Name them in its own \
                 configuration."
                    .to_owned(),
            );
        }
        let mut sessions = self.sessions();
        if sessions.len() >= SESSIONS_MAX {
            let problem = format!("{SESSIONS_MAX} sessions are open; close one");
            return Err(invalid_request(problem));
        }
        sessions.insert(session.name().to_owned(), session.clone());
        Ok(session)
    }

    fn find_session(&self, id: &SessionId) -> Result<Arc<AcpSession>, Error> {
        self.sessions().get(&*id.0).cloned().ok_or_else(|| unknown_session(&id.0))
    }

    fn link(&self, session: Arc<AcpSession>, editor: ConnectionTo<Client>) -> SessionLink {
        SessionLink {
            client: self.client.clone(),
            editor,
            session,
            options: self.options.clone(),
            has_forms: self.has_forms.load(Ordering::Relaxed),
        }
    }

    /// Runs a future beside the connection until the input ends.
    fn run_beside(
        &self,
        editor: &ConnectionTo<Client>,
        future: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<(), Error> {
        let disconnected = self.disconnected.clone();
        editor.spawn(async move {
            // An error here would end the connection. Each request has its own response.
            let _result = disconnected.run_until_cancelled(future).await;
            Ok(())
        })
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<AcpSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a run that went on without an editor.
async fn follow_alive(opened: Result<ContinuedSession, Error>) -> Result<(), Error> {
    match opened {
        Ok(ContinuedSession { link, is_alive: true }) => link.follow_without_prompt().await,
        _ => Ok(()),
    }
}

/// Returns the session of a root task; `None` for any other task.
fn session_info(task: &TaskInfo, cwd: Option<&Path>) -> Option<SessionInfo> {
    let name = task.name.as_deref().filter(|name| AcpSession::is_id(name))?;
    if task.parent.is_some() || !task.is_agent() {
        return None;
    }
    // The session of a directory is the path of its repository.
    let workspace = PathBuf::from(&task.session);
    let directory = match cwd {
        Some(cwd) => cwd.to_owned(),
        None if workspace.is_absolute() => workspace,
        None => std::env::current_dir().ok()?,
    };
    let updated = i64::try_from(task.last_activity_at).ok();
    let updated = updated.and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    let info = SessionInfo::new(SessionId::new(name), directory)
        .title(task.description.clone())
        .updated_at(updated.map(|at| at.to_string()));
    Some(info)
}
