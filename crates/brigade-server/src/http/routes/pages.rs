//! `/`, `/docs`, `/assets/NAME`: the dashboard and the reference of the API, embedded as they are in
//! `web/`.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use brigade_model::refusal::Refusal;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH};
use http::{HeaderValue, StatusCode};
use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use super::HttpState;
use crate::http::extract::ApiPath;
use crate::http::problem::Problem;

static WEB: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/web");

pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/", get(async |headers: HeaderMap| show_file("index.html", &headers)))
        .route("/docs", get(async |headers: HeaderMap| show_file("docs.html", &headers)))
        .route("/assets/{name}", get(show_asset))
}

async fn show_asset(
    ApiPath(name): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    show_file(&name, &headers)
}

/// Returns a file. A browser keeps it, and asks each time whether it has changed.
fn show_file(name: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let missing = || Refusal::not_found("there is no such file");
    let kind = content_type(name).ok_or_else(missing)?;
    let content = WEB.get_file(name).ok_or_else(missing)?.contents();
    let digest = Sha256::digest(content);
    let tag: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let is_known =
        headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => content.into_response(),
    };
    let sent = response.headers_mut();
    sent.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    sent.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        sent.insert(ETAG, tag);
    }
    Ok(response)
}

/// Returns the type of a file of the page; `None` for files that only its tests use.
fn content_type(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use brigade_protocol::http::ProblemCode;

    use super::*;

    #[test]
    fn the_reference_has_each_code_with_its_statuses() {
        let page = WEB.get_file("docs.html").and_then(|file| file.contents_utf8()).expect("text");
        let rows: Vec<&str> =
            page.lines().map(str::trim).filter(|line| line.starts_with("<tr id=")).collect();
        assert_eq!(rows.len(), ProblemCode::ALL.len());
        for (row, code) in rows.iter().zip(ProblemCode::ALL) {
            let statuses: Vec<String> = code.statuses().iter().map(ToString::to_string).collect();
            let statuses = statuses.join(", ");
            let start =
                format!("<tr id=\"{code}\"><td><code>{code}</code></td><td>{statuses}</td>");
            assert!(row.starts_with(&start), "{row}");
        }
    }
}
