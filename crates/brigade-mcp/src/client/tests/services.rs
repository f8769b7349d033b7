//! Services over HTTP as they are. Each answers as a test wants it to, and in plain JSON: official
//! servers that speak in streams are tried elsewhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{McpServerConfig, ValueSource};
use super::Kitchen;

/// What a service says to a message: a status, headers, and a body that is made as it is sent.
struct Said {
    status: &'static str,
    header: String,
    body: Box<dyn Read + Send>,
}

impl Said {
    fn json(message: &Value) -> Self {
        Self::body("200 OK", "content-type: application/json", message.to_string())
    }

    fn body(status: &'static str, header: &str, body: String) -> Self {
        let body = Box::new(std::io::Cursor::new(body));
        Self { status, header: header.to_owned(), body }
    }
}

/// Serves until the test program ends. What it does not know, it answers as every server does.
fn service(says: impl Fn(&str, &Value) -> Option<Said> + Send + 'static) -> McpServerConfig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Who has heard enough goes away in the middle of it.
            let _ = serve(stream.unwrap(), &says);
        }
    });
    McpServerConfig::http(format!("http://127.0.0.1:{port}/hidden-path/mcp"))
}

fn serve(
    mut stream: TcpStream,
    says: &impl Fn(&str, &Value) -> Option<Said>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
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
    let mut said = says(&head, &message).unwrap_or_else(|| usual(&message));
    write!(stream, "HTTP/1.1 {}\r\n{}\r\nconnection: close\r\n\r\n", said.status, said.header)?;
    std::io::copy(&mut said.body, &mut stream)?;
    Ok(())
}

fn usual(message: &Value) -> Said {
    let id = &message["id"];
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => Said::json(&json!({"jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "service", "version": "1"},
        }})),
        "tools/list" => Said::json(&listing(id, vec![])),
        "tools/call" => Said::json(&json!({"jsonrpc": "2.0", "id": id, "result": {
            "content": [{"type": "text", "text": "done"}]}})),
        "" => Said::body("405 Method Not Allowed", "content-length: 0", String::new()),
        _ if id.is_null() => Said::body("202 Accepted", "content-length: 0", String::new()),
        _ => Said::body("404 Not Found", "content-type: text/plain", "not found".to_owned()),
    }
}

fn listing(id: &Value, more: Vec<Value>) -> Value {
    let mut tools = vec![json!({"name": "act", "inputSchema": {"type": "object"}})];
    tools.extend(more);
    json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}})
}

#[tokio::test]
async fn one_tool_that_is_none_does_not_take_the_others_along() {
    let kitchen = Kitchen::with(service(|_, message| {
        let lie = json!({"name": "lie", "inputSchema": "string"});
        (message["method"] == "tools/list")
            .then(|| Said::json(&listing(&message["id"], vec![json!(7), lie])))
    }))
    .await;
    assert_eq!(kitchen.names(), ["srv__act", "srv__lie"]);
    assert_eq!(kitchen.call("srv__act", json!({})).await.unwrap(), "done");
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let kitchen = Kitchen::with(service(|_, message| {
        let body = Box::new(std::io::repeat(b' '));
        let header = "content-type: application/json".to_owned();
        (message["method"] == "tools/call").then_some(Said { status: "200 OK", header, body })
    }))
    .await;
    let told = kitchen.call("srv__act", json!({})).await.unwrap_err();
    assert!(told.contains("more than 16 MB"), "{told}");
}

#[tokio::test]
async fn a_refusal_without_end_is_told_by_its_beginning() {
    let kitchen = Kitchen::with(service(|_, message| {
        let body = Box::new(std::io::repeat(b'n'));
        let header = "content-type: text/plain".to_owned();
        (message["method"] == "initialize").then_some(Said { status: "400 No", header, body })
    }))
    .await;
    let specs = kitchen.tools.specs();
    assert!(specs[0].description.contains("400") && specs[0].description.contains("nnn"));
    assert!(specs[0].description.len() < 4_000, "{}", specs[0].description.len());
}

/// Many services say no before they know which call it is about.
#[tokio::test]
async fn a_refusal_that_names_no_call_is_of_the_call_that_it_answers() {
    let kitchen = Kitchen::with(service(|_, message| {
        let error = json!({"code": -32_000, "message": "no such session"});
        let said = json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string();
        let header = "content-type: application/json";
        (message["method"] == "tools/call").then(|| Said::body("400 Bad Request", header, said))
    }))
    .await;
    let call = kitchen.call("srv__act", json!({}));
    let told = tokio::time::timeout(Duration::from_secs(30), call).await.expect("at once");
    assert!(told.unwrap_err().contains("no such session"));
}

#[tokio::test]
async fn where_a_redirect_leads_is_told_and_not_followed() {
    let kitchen = Kitchen::with(service(|_, _| {
        Some(Said::body("308 Moved", "location: https://elsewhere.example/mcp", String::new()))
    }))
    .await;
    let specs = kitchen.tools.specs();
    assert!(specs[0].description.contains("https://elsewhere.example/mcp"), "{specs:?}");
    assert!(specs[0].description.contains("`url`"), "{specs:?}");
}

#[tokio::test]
async fn neither_a_token_nor_an_address_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cr3t-t0k3n").unwrap();
    let says = |head: &str, message: &Value| {
        let token = head.lines().find(|line| line.to_lowercase().starts_with("authorization"));
        let text = format!("{}{}", "x".repeat(1_975), token.unwrap_or_default());
        let error = json!({"code": -32_000, "message": text});
        let said = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
        (message["method"] == "tools/call").then(|| Said::json(&said))
    };
    for token in [ValueSource::file(&file), ValueSource::from("s3cr3t-t0k3n")] {
        let kitchen = Kitchen::with(service(says).bearer(token)).await;
        let told = kitchen.call("srv__act", json!({})).await.unwrap_err();
        assert!(told.contains("xxx") && !told.contains("s3c"), "{told}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kitchen =
        Kitchen::with(McpServerConfig::http(format!("http://{nobody}/hidden-path"))).await;
    let specs = kitchen.tools.specs();
    assert!(specs[0].description.contains("cannot be reached"), "{specs:?}");
    assert!(!specs[0].description.contains("hidden-path"), "{specs:?}");
}
