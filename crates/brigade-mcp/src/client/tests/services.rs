//! Tests with HTTP services. Each replies as its test requires, in plain JSON. Other tests use
//! official servers with streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{McpServerConfig, ValueSource};
use super::TestSetup;

/// A reply of a service: a status, a header, and a body that is produced while it is sent.
struct HttpReply {
    status: &'static str,
    header: String,
    body: Box<dyn Read + Send>,
}

impl HttpReply {
    fn json(message: &Value) -> Self {
        Self::body("200 OK", "content-type: application/json", message.to_string())
    }

    fn body(status: &'static str, header: &str, body: String) -> Self {
        let body = Box::new(std::io::Cursor::new(body));
        Self { status, header: header.to_owned(), body }
    }
}

/// Serves until the test process ends. Messages without a scripted reply get the usual one.
fn service(script: impl Fn(&str, &Value) -> Option<HttpReply> + Send + 'static) -> McpServerConfig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client may disconnect in mid-reply.
            let _ = serve(stream.unwrap(), &script);
        }
    });
    McpServerConfig::http(format!("http://127.0.0.1:{port}/hidden-path/mcp"))
}

fn serve(
    mut stream: TcpStream,
    script: &impl Fn(&str, &Value) -> Option<HttpReply>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut reply = script(&head, &message).unwrap_or_else(|| usual(&message));
    write!(stream, "HTTP/1.1 {}\r\n{}\r\nconnection: close\r\n\r\n", reply.status, reply.header)?;
    std::io::copy(&mut reply.body, &mut stream)?;
    Ok(())
}

fn usual(message: &Value) -> HttpReply {
    let id = &message["id"];
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => HttpReply::json(&json!({"jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "service", "version": "1"},
        }})),
        "tools/list" => HttpReply::json(&tool_list(id, vec![])),
        "tools/call" => HttpReply::json(&json!({"jsonrpc": "2.0", "id": id, "result": {
            "content": [{"type": "text", "text": "done"}]}})),
        "" => HttpReply::body("405 Method Not Allowed", "content-length: 0", String::new()),
        _ if id.is_null() => HttpReply::body("202 Accepted", "content-length: 0", String::new()),
        _ => HttpReply::body("404 Not Found", "content-type: text/plain", "not found".to_owned()),
    }
}

fn tool_list(id: &Value, more: Vec<Value>) -> Value {
    let mut tools = vec![json!({"name": "act", "inputSchema": {"type": "object"}})];
    tools.extend(more);
    json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}})
}

#[tokio::test]
async fn an_invalid_tool_does_not_void_the_others() {
    let setup = TestSetup::with(service(|_, message| {
        let lie = json!({"name": "lie", "inputSchema": "string"});
        (message["method"] == "tools/list")
            .then(|| HttpReply::json(&tool_list(&message["id"], vec![json!(7), lie])))
    }))
    .await;
    assert_eq!(setup.names(), ["srv__act", "srv__lie"]);
    assert_eq!(setup.call("srv__act", json!({})).await.unwrap(), "done");
}

#[tokio::test]
async fn an_endless_reply_is_not_read_to_its_end() {
    let setup = TestSetup::with(service(|_, message| {
        let body = Box::new(std::io::repeat(b' '));
        let header = "content-type: application/json".to_owned();
        (message["method"] == "tools/call").then_some(HttpReply { status: "200 OK", header, body })
    }))
    .await;
    let error = setup.call("srv__act", json!({})).await.unwrap_err();
    assert!(error.contains("more than 16 MB"), "{error}");
}

#[tokio::test]
async fn an_endless_refusal_is_reported_by_its_beginning() {
    let setup = TestSetup::with(service(|_, message| {
        let body = Box::new(std::io::repeat(b'n'));
        let header = "content-type: text/plain".to_owned();
        (message["method"] == "initialize").then_some(HttpReply { status: "400 No", header, body })
    }))
    .await;
    let specs = setup.tools.specs();
    assert!(specs[0].description.contains("400") && specs[0].description.contains("nnn"));
    assert!(specs[0].description.len() < 4_000, "{}", specs[0].description.len());
}

/// Many services refuse a message before they read its id.
#[tokio::test]
async fn a_refusal_without_an_id_belongs_to_its_request() {
    let setup = TestSetup::with(service(|_, message| {
        let error = json!({"code": -32_000, "message": "no such session"});
        let body = json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string();
        let header = "content-type: application/json";
        (message["method"] == "tools/call")
            .then(|| HttpReply::body("400 Bad Request", header, body))
    }))
    .await;
    let call = setup.call("srv__act", json!({}));
    let error = tokio::time::timeout(Duration::from_secs(30), call).await.expect("at once");
    assert!(error.unwrap_err().contains("no such session"));
}

#[tokio::test]
async fn a_redirect_is_reported_and_not_followed() {
    let setup = TestSetup::with(service(|_, _| {
        Some(HttpReply::body("308 Moved", "location: https://elsewhere.example/mcp", String::new()))
    }))
    .await;
    let specs = setup.tools.specs();
    assert!(specs[0].description.contains("https://elsewhere.example/mcp"), "{specs:?}");
    assert!(specs[0].description.contains("`url`"), "{specs:?}");
}

#[tokio::test]
async fn tokens_and_urls_are_redacted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cr3t-t0k3n").unwrap();
    let script = |head: &str, message: &Value| {
        let token = head.lines().find(|line| line.to_lowercase().starts_with("authorization"));
        let text = format!("{}{}", "x".repeat(1_975), token.unwrap_or_default());
        let error = json!({"code": -32_000, "message": text});
        let reply = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
        (message["method"] == "tools/call").then(|| HttpReply::json(&reply))
    };
    for token in [ValueSource::file(&file), ValueSource::from("s3cr3t-t0k3n")] {
        let setup = TestSetup::with(service(script).bearer(token)).await;
        let error = setup.call("srv__act", json!({})).await.unwrap_err();
        assert!(error.contains("xxx") && !error.contains("s3c"), "{error}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let setup =
        TestSetup::with(McpServerConfig::http(format!("http://{nobody}/hidden-path"))).await;
    let specs = setup.tools.specs();
    assert!(specs[0].description.contains("cannot be reached"), "{specs:?}");
    assert!(!specs[0].description.contains("hidden-path"), "{specs:?}");
}
