//! Probes of a server on this machine: a connection, or one HTTP request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time for one connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for one HTTP request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes of an answer that are read, which contain its first line.
const ANSWER_BYTES_MAX: usize = 1024;

/// Returns whether one of these addresses accepts a connection. The connection is closed at once.
pub async fn accepts_connection(addresses: &[SocketAddr]) -> bool {
    connect(addresses).await.is_some()
}

/// Returns whether a GET request to one of these addresses is answered with a status from 200 to
/// 299. Follows no redirect. `authority` and `target` are of a URL and contain no line end.
pub async fn answers_request(addresses: &[SocketAddr], authority: &str, target: &str) -> bool {
    let Some(stream) = connect(addresses).await else { return false };
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: brigade\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n"
    );
    let status = timeout(REQUEST_TIMEOUT, read_status(&stream, request.as_bytes())).await;
    matches!(status, Ok(Ok(Some(200..=299))))
}

async fn connect(addresses: &[SocketAddr]) -> Option<TcpStream> {
    for address in addresses {
        if let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            return Some(stream);
        }
    }
    None
}

async fn read_status(stream: &TcpStream, mut request: &[u8]) -> io::Result<Option<u16>> {
    while !request.is_empty() {
        stream.writable().await?;
        match stream.try_write(request) {
            Ok(written) => request = &request[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let mut answer = [0; ANSWER_BYTES_MAX];
    let mut length = 0;
    loop {
        if let Some(end) = answer[..length].iter().position(|byte| *byte == b'\n') {
            return Ok(parse_status(&answer[..end]));
        }
        stream.readable().await?;
        match stream.try_read(&mut answer[length..]) {
            // The end, or too long for a first line.
            Ok(0) => return Ok(None),
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the status of the first line of an answer, such as `HTTP/1.1 200 OK`.
fn parse_status(line: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(line.get(..12)?).ok()?;
    let (version, status) = line.split_once(' ')?;
    status.parse().ok().filter(|_| matches!(version, "HTTP/1.0" | "HTTP/1.1"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_status_is_read_from_the_first_line() {
        assert_eq!(parse_status(b"HTTP/1.1 200 OK\r"), Some(200));
        assert_eq!(parse_status(b"HTTP/1.0 503"), Some(503));
        for line in ["", "HTTP/1.1", "HTTP/2 200 OK", "SSH-2.0-x 200 OK", "HTTP/1.1 2x0 OK"] {
            assert_eq!(parse_status(line.as_bytes()), None, "{line}");
        }
    }

    /// Answers one request with these bytes, and returns the request.
    fn answer(listener: TcpListener, bytes: &'static [u8]) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(bytes).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        })
    }

    #[tokio::test]
    async fn only_a_success_counts() {
        let table: [(&[u8], bool); 5] = [
            (b"HTTP/1.1 204 No Content\r\n\r\n", true),
            (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", false),
            (b"HTTP/1.1 503 Not yet\r\n\r\n", false),
            (b"", false),
            (&[b'x'; 2 * ANSWER_BYTES_MAX], false),
        ];
        for (bytes, expected) in table {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = answer(listener, bytes);
            let answered = answers_request(&[address], "localhost:1", "/health?a").await;
            assert_eq!(answered, expected, "{}", bytes.escape_ascii());
            let request = server.join().unwrap();
            assert!(request.starts_with("GET /health?a HTTP/1.1\r\nHost: localhost:1\r\n"));
            assert!(!accepts_connection(&[address]).await, "the server has ended");
        }
    }
}
