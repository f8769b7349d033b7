//! `/mcp`: the Model Context Protocol over streamable HTTP.
//!
//! A client's token acts as its client in the session of the token, at `/mcp`. An operator's token
//! acts as a client with the name of the token, in the session that the path names:
//! `/mcp/{session}`. The configuration of a coding agent has one URL, so the path is the place that
//! all of them keep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use brigade_mcp::server::streamable_http::{
    McpHttpRequest, McpHttpResponse, OpenedMcpSession, session_not_found,
};
use brigade_mcp::server::{McpCaller, McpOptions};
use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;
use brigade_runtime::Session;
use bytes::Bytes;
use http::Method;
use http::header::AUTHORIZATION;

use super::HttpState;
use crate::http::access_token::TokenAccess;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, BODY_BYTES_MAX, read_body, take_reservation};
use crate::http::guarded_body::GuardedBody;
use crate::http::local_requests::{LocalRequests, ProcessPolicy};
use crate::http::mcp_sessions::McpSessions;
use crate::http::problem::Problem;
use crate::request_context::DaemonState;

pub(super) fn routes() -> Router<HttpState> {
    // The protocol has its own answers to other methods.
    Router::new().route("/mcp", any(serve_at_root)).route("/mcp/{session}", any(serve_at_session))
}

async fn serve_at_root(
    State(state): State<HttpState>,
    caller: HttpCaller,
    request: Request,
) -> Result<Response, Problem> {
    caller.writer()?;
    let session = match caller.token.access {
        TokenAccess::Client { session } => caller.session_of(session).await?,
        TokenAccess::Operator | TokenAccess::ReadOnly => {
            let text = "this token is of no session: use /mcp/SESSION; /v1/sessions lists them";
            return Err(Refusal::invalid(text).into());
        }
    };
    serve(&state, &caller, &session, request).await
}

async fn serve_at_session(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(session): ApiPath<String>,
    request: Request,
) -> Result<Response, Problem> {
    caller.writer()?;
    let session = caller.session(&session).await?;
    serve(&state, &caller, &session, request).await
}

async fn serve(
    state: &HttpState,
    caller: &HttpCaller,
    session: &Session,
    request: Request,
) -> Result<Response, Problem> {
    let daemon = &state.daemon;
    let request = match McpHttpRequest::parse(caller.while_valid(read_request(request)).await?) {
        Ok(request) => request,
        Err(response) => return Ok(to_response(*response)),
    };
    if request.opens_session() {
        return open_session(state, caller, session, request).await;
    }
    let sessions = sessions_of(daemon, caller, session);
    let named = match request.session_id() {
        Some(id) => match find_session(sessions, id).await? {
            Some(named) => Some(named),
            None => return Ok(to_response(session_not_found())),
        },
        None => None,
    };
    let conversation = named.as_ref().map(|named| named.id.clone());
    if let Some(id) = conversation.as_ref().filter(|_| request.ends_session()) {
        sessions.remove(id.as_str()).await?;
    }
    // The conversation is present until the client has the whole response.
    let presence = conversation.clone().map(|id| daemon.conversations.connect(id));
    let mcp_caller = new_mcp_caller(caller, session, conversation)?;
    let reply =
        daemon.mcp_service.handle(request, mcp_caller, named.map(|named| named.params)).await;
    let response = check_served(daemon, reply.response)?;
    Ok(response.map(|body| Body::new(GuardedBody::new(body, presence))))
}

fn sessions_of<'a>(
    daemon: &'a DaemonState,
    caller: &'a HttpCaller,
    session: &Session,
) -> McpSessions<'a> {
    McpSessions {
        runtime: &daemon.runtime,
        token: &caller.token.id,
        session: session.id(),
        expires_at: caller.token.expires_at,
    }
}

/// Opens a session, also if the client disconnects meanwhile: a session in memory that is not stored
/// would not count among those of its token.
async fn open_session(
    state: &HttpState,
    caller: &HttpCaller,
    session: &Session,
    request: McpHttpRequest,
) -> Result<Response, Problem> {
    let daemon = state.daemon.clone();
    // The caller holds the request's slot.
    let caller = caller.clone();
    let session = session.clone();
    let opening = async move { open_and_store(&daemon, &caller, &session, request).await };
    let opened = state.daemon.http.session_openings.spawn(opening).await;
    opened.map_err(|error| Refusal::internal(format!("a session was not opened: {error}")))?
}

async fn open_and_store(
    daemon: &DaemonState,
    caller: &HttpCaller,
    session: &Session,
    request: McpHttpRequest,
) -> Result<Response, Problem> {
    let mcp_caller = new_mcp_caller(caller, session, None)?;
    let reply = daemon.mcp_service.handle(request, mcp_caller, None).await;
    if let Some(opened) = &reply.opened_session
        && let Err(refusal) = store_session(daemon, caller, session, opened).await
    {
        daemon.mcp_service.close_session(&opened.id).await;
        return Err(refusal.into());
    }
    check_served(daemon, reply.response)
}

/// Stores a session that was opened, unless the token has ended meanwhile. Ends those over the limit.
async fn store_session(
    daemon: &DaemonState,
    caller: &HttpCaller,
    session: &Session,
    opened: &OpenedMcpSession,
) -> Result<(), Refusal> {
    let sessions = sessions_of(daemon, caller, session);
    for id in sessions.add(opened).await? {
        daemon.mcp_service.close_session(&id).await;
    }
    if caller.has_ended() {
        // The revocation may have listed the sessions before this one was stored.
        sessions.remove(&opened.id).await?;
        return Err(Refusal::forbidden("the token has expired or was revoked"));
    }
    Ok(())
}

/// Returns the response of the protocol, or a problem if the server shuts down.
fn check_served(daemon: &DaemonState, response: McpHttpResponse) -> Result<Response, Problem> {
    if response.status().is_server_error() && daemon.shutdown.shutdown_token.is_cancelled() {
        return Err(Refusal::unavailable("the server shuts down").into());
    }
    Ok(to_response(response))
}

/// Reads the body of a POST. The secret of the token goes no further, nor does the slot of the
/// request, which a session would hold.
async fn read_request(request: Request) -> Result<http::Request<Bytes>, Problem> {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(AUTHORIZATION);
    parts.extensions.remove::<HttpCaller>();
    let reservation = take_reservation(&mut parts)?;
    let body = match parts.method {
        Method::POST => read_body(body, BODY_BYTES_MAX, &reservation).await?,
        _ => Bytes::new(),
    };
    Ok(http::Request::from_parts(parts, body))
}

/// A stored session that a request names. It is a conversation of its client.
struct NamedSession {
    id: ConversationId,
    params: serde_json::Value,
}

async fn find_session(
    sessions: McpSessions<'_>,
    id: &str,
) -> Result<Option<NamedSession>, Refusal> {
    let Ok(id) = id.parse::<ConversationId>() else { return Ok(None) };
    let params = sessions.find(&id).await?;
    Ok(params.map(|params| NamedSession { id, params }))
}

fn new_mcp_caller(
    caller: &HttpCaller,
    session: &Session,
    conversation: Option<ConversationId>,
) -> Result<McpCaller<LocalRequests>, Refusal> {
    let name = session.row().name.to_string();
    // The session of a directory has its path as a name.
    let directory = Some(PathBuf::from(&name)).filter(|path| path.is_absolute());
    let processes = match caller.is_operator() {
        true => ProcessPolicy::Any,
        false => ProcessPolicy::Sandboxed { directory: directory.clone() },
    };
    let mut options = McpOptions::new(name, Path::new(""));
    options.client_name = Some(caller.token.client_name());
    options.directory = directory;
    // The client may be on another machine.
    options.wait_command = Vec::new();
    let context = caller.writer()?.clone();
    Ok(McpCaller {
        request_clients: LocalRequests { context, processes },
        options: Arc::new(options),
        conversation,
    })
}

fn to_response(response: McpHttpResponse) -> Response {
    response.map(Body::new)
}
