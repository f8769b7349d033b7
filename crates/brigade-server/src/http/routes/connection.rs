//! `/v1/connection`: the protocol of the daemon's socket, for a command line on another machine.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::get;
use brigade_model::refusal::Refusal;
use http::header::{CONNECTION, HeaderMap, HeaderName, UPGRADE};
use http::{HeaderValue, Method, StatusCode, Version};

use super::HttpState;
use crate::http::caller::HttpCaller;
use crate::http::problem::Problem;
use crate::http::upgraded_connection::{ConnectionTicket, UPGRADE_PROTOCOL};

/// The route is in no document of the API: its frames are not requests of HTTP.
pub(super) fn routes() -> Router<HttpState> {
    Router::new().route("/v1/connection", get(upgrade_connection))
}

/// Accepts the upgrade. The connection continues with the ticket when the response was sent.
async fn upgrade_connection(caller: HttpCaller, request: Request) -> Result<Response, Problem> {
    let ticket = ConnectionTicket::new(caller)?;
    if !asks_for_upgrade(&request) {
        return Err(refuse_plain_request());
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(UPGRADE_PROTOCOL));
    response.extensions_mut().insert(ticket);
    Ok(response)
}

fn asks_for_upgrade(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && has_token(headers, &CONNECTION, "upgrade")
        && has_token(headers, &UPGRADE, UPGRADE_PROTOCOL)
}

/// Returns true if a header with a list has this element.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut elements = values.flat_map(|value| value.split(','));
    elements.any(|element| element.trim().eq_ignore_ascii_case(token))
}

fn refuse_plain_request() -> Problem {
    let text = "this path is for `brigade --server`, which asks for `Upgrade: brigade`; a proxy in \
                between has to pass that header and `Connection: upgrade` on";
    Refusal::invalid(text).into()
}
