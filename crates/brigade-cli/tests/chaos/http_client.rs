//! Requests to a node, whose failures tell whether the node may have got them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);

/// A request to the HTTP API.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    method: &'static str,
    path: String,
    body: Option<Value>,
    headers: String,
    timeout: Duration,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Answered {
        status: u16,
        body: Value,
    },
    /// The node was not reached.
    NotSent,
    /// The request was sent, and no answer came.
    NoAnswer,
}

impl HttpRequest {
    fn new(method: &'static str, path: &str, body: Option<Value>) -> Self {
        let headers = String::new();
        Self { method, path: path.to_owned(), body, headers, timeout: DEFAULT_TIMEOUT }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, None)
    }

    pub(crate) fn post(path: &str, body: Value) -> Self {
        Self::new("POST", path, Some(body))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends the request on a connection of its own.
    pub(crate) fn send(&self, address: SocketAddr, token: &str) -> Asked {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) else {
            return Asked::NotSent;
        };
        match self.exchange(&mut stream, address, token) {
            Ok((status, body)) => Asked::Answered { status, body },
            Err(_) => Asked::NoAnswer,
        }
    }

    fn exchange(
        &self,
        stream: &mut TcpStream,
        address: SocketAddr,
        token: &str,
    ) -> io::Result<(u16, Value)> {
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{} {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.method,
            self.path,
            self.headers,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        parse_response(&text).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Returns the status and the body of a whole response.
fn parse_response(text: &str) -> Option<(u16, Value)> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Some(0), |length| length.trim().parse().ok())?;
    if body.len() < length {
        return None;
    }
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).ok()? };
    Some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_response_is_no_answer() {
        let whole = "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"a\": 1}";
        let (status, body) = parse_response(whole).expect("a response");
        assert_eq!((status, &body["a"]), (201, &serde_json::json!(1)));
        for length in 0..whole.len() {
            assert_eq!(parse_response(&whole[..length]), None, "{length}");
        }
        assert_eq!(parse_response("HTTP/1.1 204 No Content\r\n\r\n"), Some((204, Value::Null)));
    }
}
