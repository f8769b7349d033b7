//! Requests on connections that were idle, so that the server holds only their sockets.

use std::sync::Arc;
use std::time::Duration;

use brigade_server::http::{ListenOptions, TlsFiles};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::support::{TEST_TIMEOUT, TestServer};

/// A time after which a connection is held, and before which it is closed.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// A client with one connection.
struct IdleClient<S> {
    stream: S,
    token: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> IdleClient<S> {
    async fn get(&mut self, path: &str) -> Value {
        let head = self.head("GET", path);
        self.send(&format!("{head}\r\n")).await;
        self.read_answer().await
    }

    fn head(&self, method: &str, path: &str) -> String {
        let token = &self.token;
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n")
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Reads an answer with a length, after which the connection stays open.
    async fn read_answer(&mut self) -> Value {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let byte = timeout(TEST_TIMEOUT, self.stream.read_u8()).await.unwrap().unwrap();
            head.push(byte.into());
        }
        assert!(head.starts_with("HTTP/1.1 20"), "{head}");
        assert!(!head.contains("connection: close"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        timeout(TEST_TIMEOUT, self.stream.read_exact(&mut body)).await.unwrap().unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Asks again and again on the same connection after it was idle.
    async fn ask_after_idle_times(&mut self) {
        assert_eq!(self.get("/v1/whoami").await["token"]["name"], "boss");
        for number in 0..3 {
            pass_time(IDLE_TIME).await;
            assert_eq!(self.get("/v1/whoami").await["token"]["name"], "boss");
            pass_time(IDLE_TIME).await;
            let body = json!({ "name": format!("pot-{number}") }).to_string();
            let head = self.head("POST", "/v1/sessions");
            let length = body.len();
            let head = format!("{head}Content-Type: application/json\r\nContent-Length: {length}");
            self.send(&head).await;
            self.send("\r\n\r\n").await;
            let cut = body.len() / 2;
            self.send(&body[..cut]).await;
            self.send(&body[cut..]).await;
            assert_eq!(self.read_answer().await["name"], format!("pot-{number}"));
        }
        pass_time(IDLE_TIME).await;
        let request = format!("{}\r\n", self.head("GET", "/v1/whoami"));
        self.send(&request.repeat(3)).await;
        for _ in 0..3 {
            assert_eq!(self.read_answer().await["token"]["name"], "boss");
        }
    }
}

async fn pass_time(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_connection_answers_after_it_was_idle() {
    let server = TestServer::start(|builder| builder).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut client = IdleClient { stream, token: server.operator.clone() };
    client.ask_after_idle_times().await;
    // The time for the next request counts from the last response.
    pass_time(IDLE_TIME).await;
    pass_time(Duration::from_secs(16)).await;
    let end = timeout(TEST_TIMEOUT, client.stream.read(&mut [0])).await.unwrap();
    assert_eq!(end.unwrap(), 0);
}

#[tokio::test]
async fn a_connection_with_tls_answers_after_it_was_idle() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files =
        TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let mut options = ListenOptions::serve("127.0.0.1:0".parse().unwrap());
    options.tls = Some(files);
    let server = TestServer::start_with(options, |builder| builder).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let mut client = IdleClient { stream, token: server.operator.clone() };
    client.ask_after_idle_times().await;
}
