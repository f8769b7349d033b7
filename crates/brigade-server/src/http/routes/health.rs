//! `/healthz`, `/readyz`: the state of the server for supervisors and load balancers.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use brigade_model::refusal::Refusal;

use super::HttpState;
use crate::http::problem::Problem;

pub(super) fn routes() -> Router<HttpState> {
    Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(check_readiness))
}

/// Returns `ok` if the store answers and the server does not shut down.
async fn check_readiness(State(state): State<HttpState>) -> Result<&'static str, Problem> {
    if state.daemon.shutdown.shutdown_token.is_cancelled() {
        return Err(Refusal::unavailable("the server shuts down").into());
    }
    state.daemon.runtime.sessions().await?;
    Ok("ok\n")
}
