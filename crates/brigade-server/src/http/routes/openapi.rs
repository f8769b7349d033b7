//! `/openapi.json`: the description of the API.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as OpenApiDocument, Ref, RefOr, ResponseBuilder, Server};
use utoipa::{IntoResponses, Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use super::HttpState;
use crate::http::base_path::BasePath;
use crate::http::problem::Problem;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Brigade",
        description = "Tasks that agents delegate: list, await, steer and stop them.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
        contact()
    ),
    components(schemas(brigade_protocol::http::ProblemBody)),
    modifiers(&TokenScheme),
    security(("token" = []))
)]
struct ApiDescription;

/// Adds the scheme of tokens.
struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut OpenApiDocument) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Documents that any route may answer with a problem.
impl IntoResponses for Problem {
    fn responses() -> std::collections::BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let content = Content::new(Some(Ref::from_schema_name("Problem")));
        let response = ResponseBuilder::new().description("A problem");
        let response = response.content("application/problem+json", content).build();
        [("default".to_owned(), response.into())].into()
    }
}

pub(super) fn new_router() -> OpenApiRouter<HttpState> {
    OpenApiRouter::with_openapi(ApiDescription::openapi())
}

/// Returns the OpenAPI document as JSON text.
pub fn openapi_document() -> String {
    render_document(&BasePath::default())
}

/// Returns the document of a server at this path.
fn render_document(base_path: &BasePath) -> String {
    let mut document = super::documented_routes().into_openapi();
    if !base_path.is_empty() {
        document.servers = Some(vec![Server::new(base_path.as_str())]);
    }
    let text = document.to_pretty_json().unwrap_or_default();
    // The library misspells the registered formats of unsigned integers.
    text.replace(r#""format": "u-int"#, r#""format": "uint"#)
}

pub(super) fn routes(base_path: &BasePath) -> Router<HttpState> {
    let base_path = base_path.clone();
    let document = Arc::new(LazyLock::new(move || render_document(&base_path)));
    let show = async move || {
        let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (kind, document.as_str().to_owned()).into_response()
    };
    Router::new().route("/openapi.json", get(show))
}
