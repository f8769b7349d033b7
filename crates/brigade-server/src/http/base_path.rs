//! The path under which a proxy serves this server.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use brigade_model::refusal::Refusal;
use http::header::{HeaderMap, HeaderName, LINK, LOCATION};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Method};
use serde::{Deserialize, Serialize};

/// The first parts of this server's own paths. A base path that starts with one would be ambiguous.
const OWN_PATHS: [&str; 10] = [
    ".well-known",
    "a2a",
    "assets",
    "docs",
    "healthz",
    "mcp",
    "metrics",
    "openapi.json",
    "readyz",
    "v1",
];
const BASE_PATH_BYTES_MAX: usize = 200;

/// The prefix of all paths as clients see them, such as `/brigade`; empty without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BasePath(String);

impl BasePath {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Serves the app under this path. A proxy may pass the path on or remove it: requests are served
    /// in both forms, and the links of responses always have it.
    pub(crate) fn serve(self, app: Router) -> Router {
        if self.is_empty() {
            return app;
        }
        let state = Arc::new(self);
        Router::new().fallback_service(app).layer(from_fn_with_state(state, serve_request))
    }

    /// Returns the path and query without the prefix, if they have it.
    fn strip(&self, uri: &Uri) -> Option<PathAndQuery> {
        let path = uri.path_and_query()?.as_str().strip_prefix(self.as_str())?;
        path.starts_with('/').then(|| path.parse().ok()).flatten()
    }

    /// Puts the prefix before the path of a header.
    fn extend_header(&self, headers: &mut HeaderMap, name: &HeaderName, before: &str) {
        let extended = headers.get(name).and_then(|value| {
            let path = value.to_str().ok()?.strip_prefix(before)?;
            let value = path.starts_with('/').then(|| format!("{before}{self}{path}"))?;
            HeaderValue::from_str(&value).ok()
        });
        if let Some(extended) = extended {
            headers.insert(name, extended);
        }
    }
}

async fn serve_request(
    State(base): State<Arc<BasePath>>,
    mut request: Request,
    next: Next,
) -> Response {
    // The URLs of the page are relative to a path with a slash at its end.
    if request.uri().path() == base.as_str() && request.method() == Method::GET {
        return Redirect::permanent(&format!("{base}/")).into_response();
    }
    if let Some(path) = base.strip(request.uri()) {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path);
        match Uri::from_parts(parts) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => {
                let refusal = Refusal::invalid(format!("the path is wrong: {error}"));
                return super::problem::Problem::from(refusal).into_response();
            }
        }
    }
    let mut response = next.run(request).await;
    base.extend_header(response.headers_mut(), &LOCATION, "");
    base.extend_header(response.headers_mut(), &LINK, "<");
    response
}

impl FromStr for BasePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
            !part.bytes().all(|byte| byte == b'.') && part.bytes().all(is_plain)
        };
        let mut parts = text.split('/');
        if text.is_empty() || parts.next() != Some("") || text.len() > BASE_PATH_BYTES_MAX {
            return Err("a base path starts with a slash, such as /brigade".to_owned());
        }
        let parts: Vec<&str> = parts.collect();
        if !parts.iter().all(|part| is_part(part)) {
            return Err("a base path has letters, digits, `-`, `_`, `.` and `~` between its \
                        slashes"
                .to_owned());
        }
        if parts.first().is_some_and(|first| OWN_PATHS.contains(first)) {
            return Err(format!("/{} is a path of this server itself", parts[0]));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for BasePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<BasePath> for String {
    fn from(base: BasePath) -> Self {
        base.0
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_has_plain_parts() {
        for (text, expect) in [("/brigade", "/brigade"), ("/a/b-2/", "/a/b-2")] {
            let base: BasePath = text.parse().expect(text);
            assert_eq!(base.as_str(), expect);
        }
        for wrong in ["", "/", "//", "brigade", "/a//b", "/..", "/a/./b", "/a b", "/a?b", "/v1/x"] {
            assert!(wrong.parse::<BasePath>().is_err(), "{wrong}");
        }
        assert!(format!("/{}", "a".repeat(BASE_PATH_BYTES_MAX)).parse::<BasePath>().is_err());
    }
}
