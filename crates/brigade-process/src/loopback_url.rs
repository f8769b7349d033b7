//! URLs of servers on this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An http URL whose host is this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopbackUrl {
    /// The host and port as written, for the `Host` header.
    pub authority: String,
    /// The path and query, which begin with `/`.
    pub target: String,
    /// The addresses to try, in order.
    pub addresses: Vec<SocketAddr>,
}

/// The problem of a URL that is not one of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the URL {0}; write http://localhost:PORT/PATH")]
pub struct LoopbackUrlError(&'static str);

impl LoopbackUrl {
    /// Parses a URL such as `http://localhost:8000/health`. No other machine is ever asked.
    pub fn parse(url: &str) -> Result<Self, LoopbackUrlError> {
        let invalid = LoopbackUrlError;
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid("has a space or a character that is not ASCII"));
        }
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(invalid("does not begin with http://"));
        };
        if rest.contains('#') {
            return Err(invalid("has a fragment"));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(invalid("has a user name"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| invalid("has no valid port"))?;
        let addresses = loopback_addresses(host)
            .ok_or_else(|| invalid("is not of the loopback address of this machine"))?;
        let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let addresses = addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        Ok(Self { authority: authority.to_owned(), target, addresses })
    }
}

/// Splits a port from a host. Without one, it is 80.
fn split_port(authority: &str) -> Option<(&str, u16)> {
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = authority[host_end..].find(':') else { return Some((authority, 80)) };
    let (host, port) = authority.split_at(host_end + colon);
    let digits = &port[1..];
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|port| is_number && *port != 0)?;
    Some((host, port))
}

fn loopback_addresses(host: &str) -> Option<Vec<IpAddr>> {
    if host.eq_ignore_ascii_case("localhost") {
        return Some(LOOPBACK.to_vec());
    }
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let ip: IpAddr = match bracketed {
        Some(ip) => IpAddr::V6(ip.parse().ok()?),
        None => IpAddr::V4(host.parse().ok()?),
    };
    ip.is_loopback().then(|| vec![ip])
}

/// The loopback addresses of a machine.
pub const LOOPBACK: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Option<Vec<String>> {
        let url = LoopbackUrl::parse(url).ok()?;
        let mut shown: Vec<_> = url.addresses.iter().map(ToString::to_string).collect();
        shown.push(url.target);
        Some(shown)
    }

    #[test]
    fn a_url_names_the_loopback_address_only() {
        let table: [(&str, &[&str]); 6] = [
            ("http://localhost:8000/health?a=b", &["127.0.0.1:8000", "[::1]:8000", "/health?a=b"]),
            ("http://LocalHost", &["127.0.0.1:80", "[::1]:80", "/"]),
            ("http://127.0.0.1:1", &["127.0.0.1:1", "/"]),
            ("http://127.8.9.1:65535/", &["127.8.9.1:65535", "/"]),
            ("http://[::1]:8000?x", &["[::1]:8000", "/?x"]),
            ("http://[::1]/a:b@c", &["[::1]:80", "/a:b@c"]),
        ];
        for (url, expected) in table {
            let found = addresses(url).unwrap_or_default();
            assert_eq!(found, expected, "{url}");
        }
        let refused = [
            "https://localhost/",
            "localhost:8000",
            "http://",
            "http://example.com/",
            "http://10.0.0.1/",
            "http://0.0.0.0:80/",
            "http://localhost.example.com/",
            "http://localhost:0/",
            "http://localhost:65536/",
            "http://localhost:+80/",
            "http://localhost:/",
            "http://user@localhost/",
            "http://localhost/#part",
            "http://localhost/a b",
            "http://localhost/\r\nX: y",
            "http://[::2]/",
            "http://[::1/",
            "http://[127.0.0.1]/",
        ];
        for url in refused {
            assert!(LoopbackUrl::parse(url).is_err(), "{url}");
        }
    }
}
