//! Checks of every request before its token, and headers of every response.
//!
//! A page of another site can make a browser send requests here. `Host` shows a name that was
//! rebound to this address, `Origin` and `Sec-Fetch-Site` a page of another site.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use brigade_model::refusal::Refusal;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderValue, Method, StatusCode};

use super::base_path::BasePath;
use super::problem::Problem;
use super::served_connection::HEADER_BYTES_MAX;

const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// The names under which clients reach this server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedNames {
    /// Host names beside `localhost` and addresses.
    pub(crate) hosts: Vec<String>,
    /// True if clients use TLS, here or at a proxy.
    pub(crate) is_https: bool,
    /// The path at which a proxy serves this server.
    pub(crate) base_path: BasePath,
}

/// Refuses requests of other sites and to other hosts, and sets the headers of the response.
pub(crate) async fn guard_request(
    State(names): State<Arc<ServedNames>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match names.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    set_headers(response.headers_mut());
    response
}

fn set_headers(headers: &mut HeaderMap) {
    const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let fixed = [
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

impl ServedNames {
    fn check(&self, request: &Request) -> Result<(), Problem> {
        check_size(request)?;
        let authority = self.check_host(request)?;
        let headers = request.headers();
        if let Some(origin) = headers.get(ORIGIN) {
            let scheme = if self.is_https { "https" } else { "http" };
            let own = format!("{scheme}://{authority}");
            if !origin.to_str().is_ok_and(|origin| origin.eq_ignore_ascii_case(&own)) {
                return Err(Refusal::forbidden("pages of other origins may not call this").into());
            }
        }
        match fetch_header(headers, "sec-fetch-site") {
            None | Some("same-origin" | "none") => Ok(()),
            // A link on another page may open the dashboard, which calls nothing by itself.
            Some(_) if is_navigation(request) => Ok(()),
            Some(_) => Err(Refusal::forbidden("pages of other sites may not call this").into()),
        }
    }

    /// Returns the authority that the client named. An address is what it is; a name can be rebound
    /// to any address, so only known names are served.
    fn check_host(&self, request: &Request) -> Result<Authority, Problem> {
        let misdirected = |text: &str| {
            Problem::with_status(StatusCode::MISDIRECTED_REQUEST, Refusal::forbidden(text))
        };
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        let authority: Option<Authority> = host.and_then(|host| host.parse().ok());
        let (Some(authority), None) = (authority, hosts.next()) else {
            return Err(Refusal::invalid("the request needs one Host header").into());
        };
        // A whole URL as the target names a host too, and must name the same one.
        if request.uri().authority().is_some_and(|target| *target != authority) {
            return Err(misdirected("the target of the request names another host"));
        }
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let is_known = address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        if !is_known || authority.as_str().contains('@') {
            return Err(misdirected("this server is not known by that name"));
        }
        Ok(authority)
    }
}

/// Refuses large headers. The connection refuses only those that do not fit its buffer.
fn check_size(request: &Request) -> Result<(), Problem> {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if headers.sum::<usize>() + path <= HEADER_BYTES_MAX {
        return Ok(());
    }
    let text = format!("the path and headers have more than {HEADER_BYTES_MAX} bytes");
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    Err(Problem::with_status(status, Refusal::limit(text)))
}

fn fetch_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("invalid"))
}

fn is_navigation(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && request.uri().path() == "/"
        && fetch_header(headers, "sec-fetch-mode") == Some("navigate")
        && fetch_header(headers, "sec-fetch-dest") == Some("document")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn check(headers: &[(&str, &str)]) -> Option<StatusCode> {
        let names =
            ServedNames { hosts: vec!["brigade.test".to_owned()], ..ServedNames::default() };
        let request = headers
            .iter()
            .fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
        let request = request.uri("/").body(Body::empty()).expect("a request");
        names.check(&request).err().map(|problem| problem.into_response().status())
    }

    #[test]
    fn only_known_hosts_are_served() {
        for host in ["127.0.0.1:7777", "localhost", "[::1]:7777", "Brigade.test:80"] {
            assert_eq!(check(&[("host", host)]), None, "{host}");
        }
        for host in ["evil.test", "localhost.evil.test", "127.0.0.1.nip.test", "me@localhost"] {
            assert_eq!(check(&[("host", host)]), Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        assert_eq!(check(&[]), Some(StatusCode::BAD_REQUEST));
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check(&twice), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = ("host", "localhost:7777");
        assert_eq!(check(&[host, ("origin", "http://localhost:7777")]), None);
        for origin in
            ["http://localhost:8888", "https://localhost:7777", "null", "http://evil.test"]
        {
            assert_eq!(check(&[host, ("origin", origin)]), Some(StatusCode::FORBIDDEN), "{origin}");
        }
        assert_eq!(check(&[host, ("sec-fetch-site", "same-origin")]), None);
        for site in ["cross-site", "same-site"] {
            assert_eq!(check(&[host, ("sec-fetch-site", site)]), Some(StatusCode::FORBIDDEN));
        }
        let link = [
            host,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert_eq!(check(&link), None);
    }
}
