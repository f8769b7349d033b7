//! The caller of a request, by its token.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use brigade_model::command::ClientControl;
use brigade_model::ids::{ClientIdentity, SessionId};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::TaskId;
use brigade_runtime::Session;
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap};
use http::request::Parts;
use http_body::Body as _;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::access_token::{AccessSecret, AccessToken, TokenAccess, find_token};
use super::connection_slots::{ConnectionSlot, SlotEvicted, SlotUse};
use super::guarded_body::{GuardedBody, RevocableBody};
use super::open_requests::{AdmittedRequest, FinishedHandler, RequestAdmission, TokenValidity};
use super::problem::Problem;
use super::routes::HttpState;
use crate::request_context::{CallerIdentity, LocatedTask, RequestContext};

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct HttpCaller {
    pub(crate) token: Arc<AccessToken>,
    /// Held while the request is open, or work that it has left.
    _slot: Arc<OwnedSemaphorePermit>,
    /// The context of the daemon's handlers. A token that only reads has the operator's view.
    context: RequestContext,
}

impl HttpCaller {
    fn new(state: &HttpState, token: AccessToken, admitted: AdmittedRequest) -> Self {
        let AdmittedRequest { permit, validity } = admitted;
        let caller = match token.access {
            TokenAccess::Operator | TokenAccess::ReadOnly => CallerIdentity::Operator,
            TokenAccess::Client { .. } => {
                let name = token.client_name().as_str().into();
                CallerIdentity::Client(ClientIdentity { name, conversation: None })
            }
        };
        let context = RequestContext {
            daemon: state.daemon.clone(),
            caller,
            origin: Some(token.origin()),
            control: match token.access {
                TokenAccess::Client { .. } => ClientControl::Confined,
                TokenAccess::Operator | TokenAccess::ReadOnly => ClientControl::Own,
            },
            path_session: None,
            session_scope: match token.access {
                TokenAccess::Client { session } => Some(session),
                TokenAccess::Operator | TokenAccess::ReadOnly => None,
            },
            validity: Some(validity),
        };
        Self { token: Arc::new(token), _slot: Arc::new(permit), context }
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.token.access == TokenAccess::Operator
    }

    /// Returns the context for a request that changes nothing.
    pub(crate) fn reader(&self) -> &RequestContext {
        &self.context
    }

    /// Returns the context for a request that changes something, or refuses a token that only reads.
    pub(crate) fn writer(&self) -> Result<&RequestContext, Refusal> {
        match self.token.access {
            TokenAccess::ReadOnly => Err(read_only_refusal()),
            TokenAccess::Operator | TokenAccess::Client { .. } => Ok(&self.context),
        }
    }

    /// Returns false for a request that a token that only reads may not send, whatever the route does
    /// with it. A wait changes nothing unless it collects, and MCP also reads with `POST`.
    fn may_send(&self, method: &Method, path: &str) -> bool {
        let is_reading = matches!(path, "/v1/logout" | "/mcp")
            || path.starts_with("/v1/sessions/") && path.ends_with("/wait");
        self.token.access != TokenAccess::ReadOnly || method.is_safe() || is_reading
    }

    /// Runs a step before the change of a request. The end of the token ends it.
    pub(crate) async fn while_valid<T>(
        &self,
        step: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        tokio::select! {
            biased;
            () = self.context.token_ended() => Err(invalid_token()),
            done = step => done,
        }
    }

    /// Returns true if the token was revoked or has expired since the begin of the request.
    pub(crate) fn has_ended(&self) -> bool {
        self.context.token_has_ended()
    }

    /// Refuses tokens other than the operator's.
    pub(crate) fn require_operator(&self, action: &str) -> Result<(), Refusal> {
        match self.is_operator() {
            true => Ok(()),
            false => Err(Refusal::forbidden(format!("only an operator's token may {action}"))),
        }
    }

    /// Returns the session of this id as the caller sees it.
    pub(crate) async fn session(&self, id: &str) -> Result<Session, Refusal> {
        let uuid = Uuid::try_parse(id)
            .map_err(|_| Refusal::not_found("this is not the id of a session"))?;
        self.session_of(SessionId::from_uuid(uuid)).await
    }

    pub(crate) async fn session_of(&self, id: SessionId) -> Result<Session, Refusal> {
        self.context.session_by_id(id).await
    }

    /// Returns a task that the caller sees.
    pub(crate) async fn task(&self, id: TaskId) -> Result<LocatedTask, Refusal> {
        let session = self.session_of(id.session).await?;
        crate::task_lookup::locate_task(session, id.no.into()).await
    }

    /// Returns the closed sessions that the caller sees. A client sees none.
    pub(crate) async fn closed_sessions(&self) -> Result<Vec<Session>, Refusal> {
        self.context.closed_sessions().await
    }

    /// Returns the sessions that the caller sees: all open ones, or that of its token.
    pub(crate) async fn sessions(&self) -> Result<Vec<Session>, Refusal> {
        match self.token.access {
            TokenAccess::Client { session } => Ok(vec![self.session_of(session).await?]),
            TokenAccess::Operator | TokenAccess::ReadOnly => self.context.sessions(None).await,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for HttpCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Refusal::internal("the route does not check its token").into())
    }
}

fn read_only_refusal() -> Refusal {
    Refusal::forbidden("this token may only read")
}

/// A mark of a response whose body ends by itself when the token is no longer valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndsWithToken;

/// Refuses requests without a valid token, and bounds the requests of each token. The end of the
/// token ends the request, except for a change that has begun.
pub(crate) async fn authenticate(state: &HttpState, mut request: Request, next: Next) -> Response {
    let AdmittedCaller { caller, validity } = match identify(state, request.headers()).await {
        Ok(admitted) => admitted,
        Err(problem) => return problem.into_response(),
    };
    // The connection makes way for no other until the response was sent.
    let slot = request.extensions_mut().remove::<Arc<ConnectionSlot>>();
    let slot_use = match slot.map(|slot| slot.begin_use()).transpose() {
        Ok(slot_use) => slot_use,
        Err(SlotEvicted) => return evicted_connection().into_response(),
    };
    let guards = RequestGuards { _caller: caller.clone(), _slot_use: slot_use };
    if !caller.may_send(request.method(), request.uri().path()) {
        return Problem::from(read_only_refusal()).into_response();
    }
    // The body of the request is in memory at most until the response begins.
    let reservation = state.daemon.http.body_budget.reserve(validity.body_share().clone());
    request.extensions_mut().insert(reservation.clone());
    request.extensions_mut().insert(caller);
    let response = match request.method().is_safe() {
        true => read_while_valid(&validity, next.run(request)).await,
        false => finish_change(&validity, next.run(request)).await,
    };
    drop(reservation);
    // A body of known length is in memory already.
    let is_open = response.body().size_hint().exact().is_none()
        && response.extensions().get::<EndsWithToken>().is_none();
    let response = match is_open {
        true => response.map(|body| Body::new(RevocableBody::new(body, validity))),
        false => response,
    };
    response.map(|body| Body::new(GuardedBody::new(body, guards)))
}

/// Runs the handler of a request that only reads. The end of the token ends it.
async fn read_while_valid(
    validity: &TokenValidity,
    handler: impl Future<Output = Response>,
) -> Response {
    tokio::select! {
        biased;
        () = validity.ended() => invalid_token().into_response(),
        response = handler => response,
    }
}

/// Runs the handler of a request that changes something. One whose change has begun when the token
/// ends is not dropped: only the answer tells the caller what has happened.
async fn finish_change(
    validity: &TokenValidity,
    handler: impl Future<Output = Response>,
) -> Response {
    match validity.finish(handler).await {
        FinishedHandler::InTime(response) => response,
        // The handler was refused or cancelled, and has changed nothing.
        FinishedHandler::Late(response) if response.status().is_client_error() => {
            invalid_token().into_response()
        }
        FinishedHandler::Late(response) => response,
        FinishedHandler::Unfinished => Problem::from(unfinished_refusal()).into_response(),
    }
}

/// Returns the refusal of a request whose token ended before it was done.
pub(crate) fn unfinished_refusal() -> Refusal {
    Refusal::unknown("the token has ended; the request may have been executed")
}

fn invalid_token() -> Problem {
    Problem::unauthenticated("the token is unknown, expired or revoked")
}

/// Returns the answer on a connection that makes way. The client most likely sees only its end.
fn evicted_connection() -> Problem {
    Refusal::unavailable("too many connections are open; try again").into()
}

/// The values that live until the response was sent.
#[derive(Debug)]
struct RequestGuards {
    /// Holds the slot of the request among those of its token.
    _caller: HttpCaller,
    _slot_use: Option<SlotUse>,
}

struct AdmittedCaller {
    caller: HttpCaller,
    validity: TokenValidity,
}

async fn identify(state: &HttpState, headers: &HeaderMap) -> Result<AdmittedCaller, Problem> {
    let header = headers.get(AUTHORIZATION);
    let Some(header) = header else {
        let text = "send a token: Authorization: Bearer TOKEN; `brigade token add` makes one";
        return Err(Problem::unauthenticated(text));
    };
    let bearer = header.to_str().ok().and_then(|text| text.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let secret = bearer.and_then(|(_, secret)| AccessSecret::parse(secret.trim()));
    let secret = secret.ok_or_else(invalid_token)?;
    let requests = &state.daemon.http.open_requests;
    loop {
        let counted = requests.revocation_count();
        let token = find_token(&state.daemon.runtime, &secret).await?.ok_or_else(invalid_token)?;
        let clock = state.daemon.runtime.clock();
        match requests.admit(&token, counted, clock)? {
            RequestAdmission::Admitted(admitted) => {
                let validity = admitted.validity.clone();
                let caller = HttpCaller::new(state, token, admitted);
                return Ok(AdmittedCaller { caller, validity });
            }
            RequestAdmission::LookUpAgain => {}
        }
    }
}
