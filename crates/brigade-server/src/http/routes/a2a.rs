//! `/a2a/{agent}`: published agents over A2A 1.0, as JSON-RPC and as HTTP+JSON.

use a2a::{
    A2AError, CancelTaskRequest, GetTaskRequest, ListTasksRequest, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, VERSION, error_code, methods,
};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use brigade_model::refusal::Refusal;
use bytes::Bytes;
use http::header::HeaderMap;
use http::{HeaderName, Method};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::HttpState;
use crate::http::a2a::agent_call::{AgentCall, SentMessage, TaskForm, no_push_notifications};
use crate::http::a2a::protocol_error::{CallFailure, ReplyForm, error_of};
use crate::http::a2a::task_watch::TaskWatch;
use crate::http::a2a::update_stream::{StreamEnd, ended_error, follow_task, send_once, to_value};
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, BODY_BYTES_MAX, JsonBody, read_body, take_reservation};
use crate::http::problem::Problem;

const CARD_PATH: &str = "/.well-known/agent-card.json";
const VERSION_HEADER: HeaderName = HeaderName::from_static("a2a-version");

pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route(CARD_PATH, get(show_server_card))
        .route("/a2a/{agent}/.well-known/agent-card.json", get(show_card))
        .route("/a2a/{agent}", post(call_json_rpc))
        .route("/a2a/{agent}/v1/message:send", post(send_message))
        .route("/a2a/{agent}/v1/message:stream", post(stream_message))
        .route("/a2a/{agent}/v1/tasks", get(list_tasks))
        .route("/a2a/{agent}/v1/tasks/{task}", get(get_task).post(act_on_task))
        .route("/a2a/{agent}/v1/tasks/{task}/{*rest}", any(refuse_push))
        .route("/a2a/{agent}/v1/extendedAgentCard", get(refuse_extended_card))
}

/// Returns true for the paths of cards, which are public.
pub(super) fn is_card(path: &str) -> bool {
    let agent = path.strip_suffix(CARD_PATH);
    agent.is_some_and(|agent| match agent.strip_prefix("/a2a/") {
        Some(name) => !name.is_empty() && !name.contains('/'),
        None => agent.is_empty(),
    })
}

async fn show_server_card(
    State(state): State<HttpState>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let card = state.published.server_card(&state.published.base_url(&headers));
    let card = card.ok_or_else(|| Refusal::not_found("this server publishes no agents"))?;
    Ok(JsonBody(card).into_response())
}

async fn show_card(
    State(state): State<HttpState>,
    ApiPath(agent): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found = state.published.find(&agent);
    let found = found.ok_or_else(|| Refusal::not_found("there is no such agent here"))?;
    Ok(JsonBody(found.card(&state.published.base_url(&headers))).into_response())
}

/// An operation of the protocol with its parameters.
enum Operation {
    Send(Box<SendMessageRequest>),
    Stream(Box<SendMessageRequest>),
    Get(GetTaskRequest),
    List(ListTasksRequest),
    Cancel(CancelTaskRequest),
    Subscribe(SubscribeToTaskRequest),
}

impl Operation {
    fn parse(method: &str, params: Value) -> Result<Self, A2AError> {
        match method {
            methods::SEND_MESSAGE => Ok(Self::Send(Box::new(parse_params(params)?))),
            methods::SEND_STREAMING_MESSAGE => Ok(Self::Stream(Box::new(parse_params(params)?))),
            methods::GET_TASK => Ok(Self::Get(parse_params(params)?)),
            methods::LIST_TASKS => Ok(Self::List(parse_params(params)?)),
            methods::CANCEL_TASK => Ok(Self::Cancel(parse_params(params)?)),
            methods::SUBSCRIBE_TO_TASK => Ok(Self::Subscribe(parse_params(params)?)),
            methods::CREATE_PUSH_CONFIG
            | methods::GET_PUSH_CONFIG
            | methods::LIST_PUSH_CONFIGS
            | methods::DELETE_PUSH_CONFIG => Err(no_push_notifications()),
            methods::GET_EXTENDED_AGENT_CARD => Err(A2AError::extended_card_not_configured()),
            _ => Err(A2AError::method_not_found(method)),
        }
    }

    /// Executes the operation, and returns its response.
    async fn execute(self, call: AgentCall, form: ReplyForm) -> Response {
        let result = match self {
            Self::Send(request) => call
                .send_and_wait(*request)
                .await
                .map(|task| to_value(&SendMessageResponse::Task(task))),
            Self::Get(request) => get_one(&call, &request).await,
            Self::List(request) => call.list(request).await.map(|page| to_value(&page)),
            Self::Cancel(request) => call.cancel(&request.id).await.map(|task| to_value(&task)),
            Self::Stream(request) => match stream(&call, *request, &form).await {
                Ok(response) => return response,
                Err(error) => Err(error),
            },
            Self::Subscribe(request) => match subscribe(&call, &request.id, &form).await {
                Ok(response) => return response,
                Err(error) => Err(error),
            },
        };
        form.respond(result)
    }
}

async fn get_one(call: &AgentCall, request: &GetTaskRequest) -> Result<Value, A2AError> {
    let form = TaskForm::whole(request.history_length)?;
    let found = call.find(&request.id).await?;
    let task = call.describe(&found, form).await.map_err(|refusal| error_of(&refusal))?;
    Ok(to_value(&task))
}

async fn stream(
    call: &AgentCall,
    request: SendMessageRequest,
    form: &ReplyForm,
) -> Result<Response, A2AError> {
    let length = request.configuration.as_ref().and_then(|it| it.history_length);
    let task_form = TaskForm::whole(length)?;
    let id = match call.send(request).await? {
        SentMessage::Accepted(id) => id,
        SentMessage::Rejected(task) => return Ok(send_once(form, &StreamResponse::Task(*task))),
    };
    let watch = TaskWatch::open(call.clone(), id, task_form).await;
    let watch = watch.map_err(|refusal| error_of(&refusal))?;
    Ok(follow_task(&call.state.daemon, watch, form.clone(), StreamEnd::TaskEndOrInput))
}

async fn subscribe(call: &AgentCall, id: &str, form: &ReplyForm) -> Result<Response, A2AError> {
    let found = call.find(id).await?;
    if !found.row.is_alive() {
        return Err(ended_error(id));
    }
    let task = call.facts(&found).id;
    let watch = TaskWatch::open(call.clone(), task, TaskForm::whole(None)?).await;
    let watch = watch.map_err(|refusal| error_of(&refusal))?;
    Ok(follow_task(&call.state.daemon, watch, form.clone(), StreamEnd::TaskEnd))
}

/// Executes a request of JSON-RPC.
async fn call_json_rpc(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(agent): ApiPath<String>,
    request: Request,
) -> Response {
    let version = check_version(request.headers());
    let called = async {
        let call = AgentCall::new(state, caller, agent).await?;
        let body = read_whole(&call.caller, request).await.map_err(CallFailure::Http)?;
        Ok::<_, CallFailure>((call, body))
    };
    let (call, body) = match called.await {
        Ok(called) => called,
        Err(failure) => return respond_failure(failure, &ReplyForm::JsonRpc(Value::Null)),
    };
    let request = match RpcRequest::parse(&body) {
        Ok(request) => request,
        Err(failed) => return ReplyForm::JsonRpc(failed.id).respond(Err(*failed.error)),
    };
    let form = ReplyForm::JsonRpc(request.id);
    let operation = version.and_then(|()| Operation::parse(&request.method, request.params));
    match operation {
        Ok(operation) => operation.execute(call, form).await,
        Err(error) => form.respond(Err(error)),
    }
}

/// A request of JSON-RPC whose frame was checked.
struct RpcRequest {
    id: Value,
    method: String,
    params: Value,
}

/// A request that is none of JSON-RPC, with its id if that is known.
struct WrongRequest {
    id: Value,
    error: Box<A2AError>,
}

impl RpcRequest {
    fn parse(body: &[u8]) -> Result<Self, WrongRequest> {
        let wrong = |id: Value, error: A2AError| WrongRequest { id, error: Box::new(error) };
        let parsed: Value = serde_json::from_slice(body).map_err(|error| {
            wrong(Value::Null, A2AError::parse_error(format!("the body is not JSON: {error}")))
        })?;
        let id = parsed.get("id").cloned().unwrap_or_default();
        if !(id.is_string() || id.is_i64() || id.is_u64() || id.is_null()) {
            let text = "`id` is a string, an integer or null";
            return Err(wrong(Value::Null, A2AError::invalid_request(text)));
        }
        if !parsed.is_object() || parsed.get("jsonrpc") != Some(&json!("2.0")) {
            let text = "this is not one request of JSON-RPC 2.0";
            return Err(wrong(id, A2AError::invalid_request(text)));
        }
        let Some(method) = parsed.get("method").and_then(Value::as_str) else {
            return Err(wrong(id, A2AError::invalid_request("`method` is missing")));
        };
        let method = method.to_owned();
        let params = parsed.get("params").cloned().unwrap_or_else(|| json!({}));
        Ok(Self { id, method, params })
    }
}

async fn send_message(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(agent): ApiPath<String>,
    request: Request,
) -> Response {
    let parse = |body| Ok(Operation::Send(Box::new(parse_body(body)?)));
    call_http(state, caller, agent, request, parse).await
}

async fn stream_message(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(agent): ApiPath<String>,
    request: Request,
) -> Response {
    let parse = |body| Ok(Operation::Stream(Box::new(parse_body(body)?)));
    call_http(state, caller, agent, request, parse).await
}

/// The parameters of a list. Numbers are texts in a query.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskQueryParams {
    context_id: Option<String>,
    status: Option<String>,
    page_size: Option<String>,
    page_token: Option<String>,
    history_length: Option<String>,
    status_timestamp_after: Option<String>,
    include_artifacts: Option<String>,
}

impl TaskQueryParams {
    fn of(request: &Request) -> Result<Self, A2AError> {
        let query = request.uri().query().unwrap_or_default();
        serde_urlencoded::from_str(query)
            .map_err(|error| A2AError::invalid_params(format!("the query is wrong: {error}")))
    }

    fn history_length(&self) -> Result<Option<i32>, A2AError> {
        parse_text("historyLength", self.history_length.as_deref())
    }

    fn to_list(&self) -> Result<ListTasksRequest, A2AError> {
        let page_size: Option<i32> = parse_text("pageSize", self.page_size.as_deref())?;
        let include: Option<bool> =
            parse_text("includeArtifacts", self.include_artifacts.as_deref())?;
        parse_params(json!({
            "contextId": self.context_id,
            "status": self.status,
            "pageSize": page_size,
            "pageToken": self.page_token,
            "historyLength": self.history_length()?,
            "statusTimestampAfter": self.status_timestamp_after,
            "includeArtifacts": include,
        }))
    }
}

async fn list_tasks(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(agent): ApiPath<String>,
    request: Request,
) -> Response {
    let params = TaskQueryParams::of(&request).and_then(|params| params.to_list());
    call_http(state, caller, agent, request, |_| params.map(Operation::List)).await
}

#[derive(Debug, Deserialize)]
struct TaskPath {
    agent: String,
    task: String,
}

/// Gets a task, or subscribes to it: `tasks/ID`, `tasks/ID:subscribe`.
async fn get_task(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(path): ApiPath<TaskPath>,
    request: Request,
) -> Response {
    let TaskPath { agent, task } = path;
    let length = TaskQueryParams::of(&request).and_then(|params| params.history_length());
    let parse = |_| match task.strip_suffix(":subscribe") {
        Some(id) => {
            Ok(Operation::Subscribe(SubscribeToTaskRequest { id: id.to_owned(), tenant: None }))
        }
        None => Ok(Operation::Get(GetTaskRequest {
            id: task.clone(),
            history_length: length?,
            tenant: None,
        })),
    };
    call_http(state, caller, agent, request, parse).await
}

/// Cancels a task, or subscribes to it: `tasks/ID:cancel`, `tasks/ID:subscribe`.
async fn act_on_task(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(path): ApiPath<TaskPath>,
    request: Request,
) -> Response {
    let TaskPath { agent, task } = path;
    let parse = |_| match task.rsplit_once(':') {
        Some((id, "cancel")) => {
            let id = id.to_owned();
            Ok(Operation::Cancel(CancelTaskRequest { id, metadata: None, tenant: None }))
        }
        Some((id, "subscribe")) => {
            Ok(Operation::Subscribe(SubscribeToTaskRequest { id: id.to_owned(), tenant: None }))
        }
        _ => Err(A2AError::method_not_found(&task)),
    };
    call_http(state, caller, agent, request, parse).await
}

#[derive(Debug, Deserialize)]
struct PushPath {
    agent: String,
}

async fn refuse_push(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(path): ApiPath<PushPath>,
    request: Request,
) -> Response {
    call_http(state, caller, path.agent, request, |_| Err(no_push_notifications())).await
}

async fn refuse_extended_card(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(agent): ApiPath<String>,
    request: Request,
) -> Response {
    let parse = |_| Err(A2AError::extended_card_not_configured());
    call_http(state, caller, agent, request, parse).await
}

/// Executes a request of HTTP+JSON.
async fn call_http(
    state: HttpState,
    caller: HttpCaller,
    agent: String,
    request: Request,
    parse: impl FnOnce(Bytes) -> Result<Operation, A2AError>,
) -> Response {
    let form = ReplyForm::HttpJson;
    let called = async {
        let version = check_version(request.headers());
        let call = AgentCall::new(state, caller, agent).await?;
        let body = read_whole(&call.caller, request).await.map_err(CallFailure::Http)?;
        version?;
        let operation = parse(body)?;
        Ok::<_, CallFailure>((call, operation))
    };
    match called.await {
        Ok((call, operation)) => operation.execute(call, form).await,
        Err(failure) => respond_failure(failure, &form),
    }
}

fn respond_failure(failure: CallFailure, form: &ReplyForm) -> Response {
    match failure {
        CallFailure::Http(problem) => problem.into_response(),
        CallFailure::Protocol(error) => form.respond(Err(error)),
    }
}

/// Refuses other versions of the protocol. A request without a version is one of 0.3.
fn check_version(headers: &HeaderMap) -> Result<(), A2AError> {
    let version = headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok());
    let version = version.map(str::trim).filter(|version| !version.is_empty()).unwrap_or("0.3");
    let is_same = version.strip_prefix(VERSION).is_some_and(|patch| {
        patch.is_empty() || patch.strip_prefix('.').is_some_and(|it| it.parse::<u32>().is_ok())
    });
    match is_same {
        true => Ok(()),
        false => Err(A2AError::new(
            error_code::VERSION_NOT_SUPPORTED,
            format!("this server speaks A2A {VERSION}, not {version}: send A2A-Version: {VERSION}"),
        )),
    }
}

async fn read_whole(caller: &HttpCaller, request: Request) -> Result<Bytes, Problem> {
    let (mut parts, body) = request.into_parts();
    let reservation = take_reservation(&mut parts)?;
    match parts.method {
        Method::POST => caller.while_valid(read_body(body, BODY_BYTES_MAX, &reservation)).await,
        _ => Ok(Bytes::new()),
    }
}

fn parse_body<T: DeserializeOwned>(body: Bytes) -> Result<T, A2AError> {
    let parsed: Value = serde_json::from_slice(&body)
        .map_err(|error| A2AError::invalid_request(format!("the body is not JSON: {error}")))?;
    parse_params(parsed)
}

fn parse_params<T: DeserializeOwned>(params: Value) -> Result<T, A2AError> {
    if !params.is_object() {
        return Err(A2AError::invalid_params("the parameters are no object"));
    }
    serde_json::from_value(params)
        .map_err(|error| A2AError::invalid_params(format!("the parameters are wrong: {error}")))
}

fn parse_text<T: std::str::FromStr>(name: &str, text: Option<&str>) -> Result<Option<T>, A2AError> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|_| A2AError::invalid_params(format!("`{name}` has another form")))
}
