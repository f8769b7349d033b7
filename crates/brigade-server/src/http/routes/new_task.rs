//! `POST /v1/sessions/{session}/tasks`: starts processes, agents and jobs.

use std::path::Path;

use axum::response::{IntoResponse, Response};
use brigade_model::address::TaskRef;
use brigade_model::ids::Owner;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_model::work::{EnvValue, ProcessWork};
use brigade_protocol::http::{
    LimitsBody, NewAgentBody, NewJobBody, NewProcessBody, NewTaskBody, SandboxBody, TaskBody,
    TaskId,
};
use brigade_protocol::requests::{ExecRequest, RunRequest, StartReply};
use brigade_runtime::{NewTask, Session};
use brigade_store::{TaskOrder, TaskQuery};
use http::header::LOCATION;
use http::{HeaderName, HeaderValue, StatusCode};

use super::task_session;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, JsonBody};
use crate::http::problem::Problem;
use crate::http::request_headers::IdempotencyHeader;
use crate::http::workspace_scope::WorkspaceScope;
use crate::request_context::RequestContext;

/// The number of newest tasks among which the task of a key is searched.
const KEY_TASKS_READ: usize = 1_000;
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Start a process, an agent or a job
///
/// `Idempotency-Key` is the key of the task: the same request gets the same task, with the header
/// `Idempotent-Replayed: true`, and another request is a conflict. Each client's token has keys of its
/// own. A client's token starts processes and agents only in a sandbox.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/tasks", tag = "tasks", request_body = NewTaskBody,
    params(
        ("session" = String, Path),
        ("idempotency-key" = Option<String>, Header, min_length = 1)
    ),
    responses(
        (status = 200, description = "The task was started before", body = TaskBody),
        (status = 201, description = "The new task", body = TaskBody),
        Problem
    )
)]
pub(super) async fn start_task(
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    IdempotencyHeader(key): IdempotencyHeader,
    JsonBody(request): JsonBody<NewTaskBody>,
) -> Result<Response, Problem> {
    let context = caller.writer()?;
    let session = caller.session(&id).await?;
    let context = context.in_session(session.id());
    let start = TaskStart { caller: &caller, context: &context, session: &session, key };
    let started = match request {
        NewTaskBody::Process(process) => start.start_process(*process).await?.try_into()?,
        NewTaskBody::Agent(agent) => start.start_agent(*agent).await?.try_into()?,
        NewTaskBody::Job(job) => start.start_job(*job).await?,
    };
    start.respond(started).await
}

/// A request to start a task in the session of the path.
struct TaskStart<'a> {
    caller: &'a HttpCaller,
    context: &'a RequestContext,
    session: &'a Session,
    key: Option<String>,
}

struct StartedTask {
    task: TaskRef,
    /// An earlier request with the same key started the task.
    existed: bool,
}

impl TryFrom<StartReply> for StartedTask {
    type Error = Refusal;

    fn try_from(reply: StartReply) -> Result<Self, Refusal> {
        Ok(Self { task: reply.task.address.parse()?, existed: reply.existed })
    }
}

/// The directories of a task, without links if a client requested them.
struct TaskPlace {
    cwd: String,
    sandbox: Option<SandboxBody>,
}

impl TaskStart<'_> {
    async fn start_process(&self, request: NewProcessBody) -> Result<StartReply, Refusal> {
        let mut work = request.work()?;
        if !self.caller.is_operator() {
            check_env(&work)?;
        }
        let TaskPlace { cwd, sandbox } = self.check_place(request.cwd, request.sandbox).await?;
        work.cwd = Some(cwd.into());
        let limits = parse_limits(request.limits.as_ref())?;
        let request = ExecRequest {
            name: request.name,
            key: self.key.clone(),
            deadline_ms: request.deadline_ms,
            grace_ms: request.grace_ms,
            keep: request.keep,
            worktree: request.worktree,
            terminal: request.terminal.map(Into::into),
            resources: request.resources.unwrap_or_default().into(),
            sandbox: sandbox.map(Into::into),
            limits: limits.map(Box::new),
            ..ExecRequest::new("", work)
        };
        self.context.call(request).await
    }

    async fn start_agent(&self, request: NewAgentBody) -> Result<StartReply, Refusal> {
        let TaskPlace { cwd, sandbox } = self.check_place(request.cwd, request.sandbox).await?;
        let permissions = match &request.permissions {
            Some(permissions) => permissions.parse()?,
            None => RunRequest::default_permissions([]),
        };
        let request = RunRequest {
            name: request.name,
            key: self.key.clone(),
            agent: request.definition,
            model: request.model,
            config: request.config,
            result_schema: request.result_schema,
            cwd: Some(cwd),
            limits: Box::new(parse_limits(request.limits.as_ref())?.unwrap_or_default()),
            permissions,
            mcp_servers: request.mcp_servers,
            keep: request.keep,
            worktree: request.worktree,
            unattended: request.unattended,
            sandbox: sandbox.map(Into::into),
            resources: request.resources.unwrap_or_default().into(),
            ..RunRequest::new("", request.prompt)
        };
        self.context.call(request).await
    }

    async fn start_job(&self, request: NewJobBody) -> Result<StartedTask, Refusal> {
        let mut task = NewTask::job(&request.job, request.arguments);
        if let Some(name) = &request.name {
            task = task.name(name);
        }
        if let Some(key) = self.context.stored_key(self.key.as_deref())? {
            task = task.key(&key);
        }
        if let Some(limits) = parse_limits(request.limits.as_ref())? {
            task = task.limits(limits);
        }
        let task = self.session.spawn(task).await?;
        Ok(StartedTask { task: task.no().into(), existed: task.existed() })
    }

    /// Returns the directories of a task, or refuses those that the caller may not use. A client acts
    /// in a sandbox, and in the workspace of its session.
    async fn check_place(
        &self,
        cwd: String,
        sandbox: Option<SandboxBody>,
    ) -> Result<TaskPlace, Refusal> {
        if !Path::new(&cwd).is_absolute() {
            return Err(Refusal::invalid("`cwd` is not an absolute path"));
        }
        if self.caller.is_operator() {
            self.check_directory(&cwd).await?;
            return Ok(TaskPlace { cwd, sandbox });
        }
        let Some(sandbox) = sandbox else {
            return Err(Refusal::forbidden(
                "a client's token starts processes and agents only in a sandbox: pass `sandbox`, \
                 such as {}",
            ));
        };
        let scope = WorkspaceScope::of(self.session);
        // A path that cannot be resolved is refused, also for a repeated request: only a resolved one
        // is known to be in the workspace.
        let cwd = scope.restrict(cwd).await?;
        self.check_directory(&cwd).await?;
        Ok(TaskPlace {
            cwd,
            sandbox: Some(SandboxBody {
                read: scope.restrict_all(sandbox.read).await?,
                write: scope.restrict_all(sandbox.write).await?,
                ..sandbox
            }),
        })
    }

    /// Refuses a working directory that is none. An operator's request that is repeated with its key
    /// gets its task, also after the directory was removed.
    async fn check_directory(&self, cwd: &str) -> Result<(), Refusal> {
        let problem = match tokio::fs::metadata(cwd).await {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => "not a directory".to_owned(),
            Err(error) => error.to_string(),
        };
        if self.has_task_of_key().await? {
            return Ok(());
        }
        Err(Refusal::invalid(format!("`cwd` is not a directory: {cwd}: {problem}")))
    }

    /// Returns true if one of the newest tasks has the key of this request.
    async fn has_task_of_key(&self) -> Result<bool, Refusal> {
        let Some(key) = self.context.stored_key(self.key.as_deref())? else { return Ok(false) };
        let newest = TaskQuery {
            owner: Some(Owner::Session),
            order: TaskOrder::NewestFirst,
            limit: KEY_TASKS_READ,
            ..TaskQuery::default()
        };
        let tasks = self.session.history(&newest).await?;
        let has_key = |task: &StoredTask| {
            task.row.spec.key.as_ref().is_some_and(|other| other.as_str() == key)
        };
        Ok(tasks.iter().any(has_key))
    }

    async fn respond(&self, started: StartedTask) -> Result<Response, Problem> {
        let StartedTask { task, existed } = started;
        let StoredTask { no, row } = self.session.get(task).await?;
        let body = TaskBody::whole(&task_session(self.session), no, &row);
        let status = if existed { StatusCode::OK } else { StatusCode::CREATED };
        let mut response = (status, JsonBody(body)).into_response();
        let headers = response.headers_mut();
        let id = TaskId { session: self.session.id(), no };
        if let Ok(location) = HeaderValue::from_str(&format!("/v1/tasks/{id}")) {
            headers.insert(LOCATION, location);
        }
        if existed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        Ok(response)
    }
}

/// Refuses variables of the server, which may have secrets that a client must not read.
fn check_env(work: &ProcessWork) -> Result<(), Refusal> {
    match work.env.iter().find(|(_, value)| !matches!(value, EnvValue::Text(_))) {
        Some((name, _)) => Err(Refusal::forbidden(format!(
            "{name} refers to a variable of the server, which only an operator's token passes on"
        ))),
        None => Ok(()),
    }
}

fn parse_limits(limits: Option<&LimitsBody>) -> Result<Option<Limits>, Refusal> {
    limits.map(LimitsBody::parse).transpose()
}
