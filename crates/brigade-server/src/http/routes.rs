//! The routes, one file for each resource.

mod a2a;
mod approvals;
mod connection;
mod definitions;
mod events;
mod health;
mod inbox;
mod limits;
mod live_output;
mod login;
mod mcp;
mod messages;
mod metrics;
mod new_task;
mod nodes;
mod openapi;
mod output;
mod pages;
mod sessions;
mod steering;
mod tasks;
mod tokens;
mod transcript;
mod wait;
mod whoami;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::refusal::Refusal;
use http::{Method, StatusCode};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::a2a::published::PublishedAgents;
use super::body_budget::BodyShare;
use super::caller::authenticate;
use super::problem::Problem;
use super::request_guard::{ServedNames, guard_request};
use super::store_cursor::StoreCursor;
use crate::request_context::DaemonState;

pub use openapi::openapi_document;
pub(crate) use tasks::task_session;

/// The state that all routes share.
#[derive(Clone, Debug)]
pub(crate) struct HttpState {
    pub(crate) daemon: Arc<DaemonState>,
    /// The agents that this listener publishes.
    pub(crate) published: Arc<PublishedAgents>,
}

impl HttpState {
    pub(crate) fn new(daemon: Arc<DaemonState>, published: PublishedAgents) -> Self {
        Self { daemon, published: Arc::new(published) }
    }

    /// Returns the newest place in the feed.
    pub(crate) fn cursor(&self) -> StoreCursor {
        self.cursor_at(self.daemon.runtime.cursor())
    }

    pub(crate) fn cursor_at(&self, cursor: FeedCursor) -> StoreCursor {
        StoreCursor { store: self.daemon.store_id, cursor }
    }
}

/// Returns the routes with their part of the OpenAPI document.
fn documented_routes() -> OpenApiRouter<HttpState> {
    openapi::new_router()
        .routes(routes!(login::login))
        .routes(routes!(login::logout))
        .routes(routes!(whoami::whoami))
        .routes(routes!(tokens::list_tokens, tokens::create_token))
        .routes(routes!(tokens::revoke_token))
        .routes(routes!(sessions::list_sessions, sessions::open_session))
        .routes(routes!(sessions::show_session))
        .routes(routes!(sessions::close_session))
        .routes(routes!(sessions::move_session))
        .routes(routes!(sessions::require_labels))
        .routes(routes!(sessions::set_session_limits))
        .routes(routes!(tasks::list_tasks))
        .routes(routes!(tasks::list_session_tasks, new_task::start_task))
        .routes(routes!(tasks::show_task))
        .routes(routes!(events::follow_events))
        .routes(routes!(events::follow_session_events))
        .routes(routes!(events::follow_task_events))
        .routes(routes!(live_output::follow_output))
        .routes(routes!(live_output::follow_text))
        .routes(routes!(tasks::show_run))
        .routes(routes!(tasks::show_subtree))
        .routes(routes!(wait::wait_for_tasks))
        .routes(routes!(steering::stop_task))
        .routes(routes!(steering::resume_task))
        .routes(routes!(steering::answer_question))
        .routes(routes!(messages::send_message, messages::list_messages))
        .routes(routes!(messages::show_message))
        .routes(routes!(inbox::read_inbox))
        .routes(routes!(inbox::mark_read))
        .routes(routes!(approvals::list_pending))
        .routes(routes!(approvals::decide_approval))
        .routes(routes!(approvals::list_grants))
        .routes(routes!(approvals::revoke_grant))
        .routes(routes!(limits::show_usage))
        .routes(routes!(limits::show_limits, limits::set_limits))
        .routes(routes!(output::read_output))
        .routes(routes!(output::search_output))
        .routes(routes!(transcript::read_transcript))
        .routes(routes!(nodes::list_nodes))
        .routes(routes!(nodes::drain_node))
        .routes(routes!(definitions::list_definitions))
        .routes(routes!(metrics::show_metrics))
}

/// Returns the whole server for one listener.
pub(crate) fn build_app(state: HttpState, names: ServedNames) -> Router {
    let (router, _) = documented_routes().split_for_parts();
    let base_path = names.base_path.clone();
    let app = router
        .merge(health::routes())
        .merge(a2a::routes())
        .merge(connection::routes())
        .merge(mcp::routes())
        .merge(openapi::routes(&base_path))
        .merge(pages::routes())
        .fallback(refuse_path)
        .method_not_allowed_fallback(refuse_method)
        .layer(from_fn_with_state(state.clone(), authenticate_private))
        .layer(from_fn_with_state(Arc::new(names), guard_request))
        .with_state(state);
    base_path.serve(app)
}

/// Requires a token for every path except the public ones. A path that does not exist needs one too.
async fn authenticate_private(
    State(state): State<HttpState>,
    mut request: Request,
    next: Next,
) -> Response {
    if !is_public(request.method(), request.uri().path()) {
        return authenticate(&state, request, next).await;
    }
    // A body without a token is so small that it needs no share.
    let reservation = state.daemon.http.body_budget.reserve(BodyShare::default());
    request.extensions_mut().insert(reservation);
    next.run(request).await
}

fn is_public(method: &Method, path: &str) -> bool {
    match path {
        "/v1/login" => method == Method::POST,
        "/" | "/healthz" | "/readyz" | "/openapi.json" | "/docs" => true,
        path if path.starts_with("/assets/") => true,
        // The protocol makes the cards of agents public. They name only published definitions.
        path => method.is_safe() && a2a::is_card(path),
    }
}

async fn refuse_path(request: Request) -> Problem {
    let path = request.uri().path();
    Refusal::not_found(format!("there is no path {path:?}; /docs lists them")).into()
}

async fn refuse_method(request: Request) -> Problem {
    let text = format!("{} is not a method of this path", request.method());
    Problem::with_status(StatusCode::METHOD_NOT_ALLOWED, Refusal::invalid(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_paths_are_public() {
        let cards = ["/.well-known/agent-card.json", "/a2a/x/.well-known/agent-card.json"];
        for path in cards {
            assert!(is_public(&Method::GET, path), "{path}");
            assert!(!is_public(&Method::POST, path), "{path}");
        }
        for path in
            ["/a2a/x", "/a2a/.well-known/agent-card.json", "/a2a/x/y/.well-known/agent-card.json"]
        {
            assert!(!is_public(&Method::GET, path), "{path}");
        }
        for path in ["/", "/healthz", "/assets/main.js", "/openapi.json"] {
            assert!(is_public(&Method::GET, path), "{path}");
        }
        assert!(is_public(&Method::POST, "/v1/login"));
        for path in ["/v1/login", "/v1/tasks", "/metrics", "/mcp", "//", "/v1/assets/x", "/assets"]
        {
            assert!(!is_public(&Method::GET, path), "{path}");
        }
    }
}
