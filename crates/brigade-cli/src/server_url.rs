//! The URL of a server. A token may be sent to it.

use std::net::IpAddr;
use std::str::FromStr;

use reqwest::Url;

/// The path of the route that carries frames.
const CONNECTION_PATH: &str = "/v1/connection";

/// The URL of a server, without a slash at its end. It may have the path of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    text: String,
    connection: Url,
}

impl ServerUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the URL of the route that carries frames.
    pub(crate) fn connection_url(&self) -> &Url {
        &self.connection
    }

    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.connection)
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.connection.scheme() == "https"
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Err(format!("{text:?} is no URL; write https://HOST, or `local` alone"));
        }
        let base = Url::parse(text).map_err(|error| format!("{text:?} is no URL: {error}"))?;
        // The text is not repeated: it may be a password.
        if !base.username().is_empty() || base.password().is_some() {
            return Err(
                "the URL of a server has no user: put a token into BRIGADE_TOKEN".to_owned()
            );
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(format!("{text:?}: the URL of a server ends with its path"));
        }
        match base.scheme() {
            "https" => {}
            "http" if is_loopback(&base) => {}
            "http" => {
                return Err(format!(
                    "{text}: a token is not sent to another machine without TLS; write https://, or \
                     forward a port of this machine with `ssh -L`"
                ));
            }
            scheme => return Err(format!("{scheme}:// is not served; write https://HOST")),
        }
        let text = base.as_str().trim_end_matches('/').to_owned();
        let connection = Url::parse(&format!("{text}{CONNECTION_PATH}"))
            .map_err(|error| format!("{text:?} is no URL: {error}"))?;
        Ok(Self { text, connection })
    }
}

/// Returns true for addresses and names of this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_with_tls_or_to_this_machine() {
        for (text, connection) in [
            ("https://node.example", "https://node.example/v1/connection"),
            ("https://node.example:7790/", "https://node.example:7790/v1/connection"),
            ("https://example.com/brigade", "https://example.com/brigade/v1/connection"),
            ("http://127.0.0.1:7777", "http://127.0.0.1:7777/v1/connection"),
            ("http://[::1]:7777", "http://[::1]:7777/v1/connection"),
            ("http://localhost:7777/", "http://localhost:7777/v1/connection"),
        ] {
            let url: ServerUrl = text.parse().expect(text);
            assert_eq!(url.connection_url().as_str(), connection);
            assert_eq!(url.as_str(), text.trim_end_matches('/'));
        }
        for (text, problem) in [
            ("node.example", "write https://HOST"),
            ("http://node.example", "without TLS"),
            ("http://127.0.0.1.example.com", "without TLS"),
            ("http://localhost@node.example", "has no user"),
            ("https://eve:secret@node.example", "has no user"),
            ("https://node.example?x=1", "ends with its path"),
            ("ftp://node.example", "write https://HOST"),
            ("https://", "is no URL"),
            ("", "is no URL"),
        ] {
            let error = text.parse::<ServerUrl>().expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
