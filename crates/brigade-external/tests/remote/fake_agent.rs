//! A remote agent that is controlled by its test, over a real socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The remote agent. It ends when the value is dropped.
pub(crate) struct FakeAgent {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<Mutex<FakeState>>,
    accept_task: JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(crate) struct FakeState {
    /// The ids and texts of messages, in the order of their arrival.
    pub(crate) messages: Vec<(String, String)>,
    tasks: BTreeMap<String, Value>,
    pub(crate) tokens: Vec<String>,
    /// The number of answers to messages that are lost on their way.
    pub(crate) lost_answers: u32,
    /// True if every connection is closed without an answer.
    pub(crate) is_down: bool,
    /// The state in which a task refuses to be canceled.
    pub(crate) refused_cancel: Option<&'static str>,
    /// The URL of the card's interface, instead of the own one.
    pub(crate) interface: Option<String>,
}

impl FakeAgent {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(FakeState::default()));
        let shared = state.clone();
        #[expect(clippy::disallowed_methods, reason = "the task ends with this value")]
        let accept_task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // One request at a time is enough, and a lost one ends its connection.
                let _ = serve(stream, address, &shared).await;
            }
        });
        Self { address, state, accept_task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/agent", self.address)
    }

    /// Sets the status of a task: `TASK_STATE_` is added to the state.
    pub(crate) fn set_status(&self, task: &str, state: &str, text: &str) {
        let mut fake = self.state.lock().unwrap();
        let task = fake.tasks.get_mut(task).unwrap();
        task["status"] = new_status(state, text);
    }

    pub(crate) fn complete(&self, task: &str, text: &str) {
        self.set_status(task, "COMPLETED", "");
        let mut fake = self.state.lock().unwrap();
        let parts = json!([{ "text": text }]);
        let artifact = json!({ "artifactId": "a", "parts": parts });
        fake.tasks.get_mut(task).unwrap()["artifacts"] = json!([artifact]);
    }

    pub(crate) fn state_of(&self, task: &str) -> String {
        let fake = self.state.lock().unwrap();
        let task = fake.tasks.get(task);
        task.map(|task| task["status"]["state"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        let fake = self.state.lock().unwrap();
        fake.messages.iter().map(|(_, text)| text.clone()).collect()
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

fn new_status(state: &str, text: &str) -> Value {
    let message = json!({ "messageId": "s", "role": "ROLE_AGENT", "parts": [{ "text": text }] });
    json!({ "state": format!("TASK_STATE_{state}"), "message": message })
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    state: &Mutex<FakeState>,
) -> std::io::Result<()> {
    if state.lock().unwrap().is_down {
        return Ok(());
    }
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).await?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if let Some(token) = line.strip_prefix("authorization: bearer ") {
            state.lock().unwrap().tokens.push(token.to_owned());
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let answer = match first.starts_with("GET /agent/.well-known/agent-card.json ") {
        true => Some(new_card(address, state)),
        false => answer_call(&serde_json::from_slice(&body)?, state),
    };
    // A lost answer is the end of the connection.
    let Some(answer) = answer else { return Ok(()) };
    let answer = answer.to_string();
    let length = answer.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    reader.write_all(head.as_bytes()).await?;
    reader.write_all(answer.as_bytes()).await?;
    reader.shutdown().await
}

fn new_card(address: SocketAddr, state: &Mutex<FakeState>) -> Value {
    let url = state.lock().unwrap().interface.clone();
    let url = url.unwrap_or_else(|| format!("http://{address}/rpc"));
    let interface = json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    json!({
        "name": "fake", "version": "1", "capabilities": {}, "supportedInterfaces": [interface],
    })
}

fn answer_call(request: &Value, state: &Mutex<FakeState>) -> Option<Value> {
    let params = &request["params"];
    let mut fake = state.lock().unwrap();
    let result = match request["method"].as_str().unwrap() {
        "SendMessage" => {
            let message = &params["message"];
            let id = message["messageId"].as_str().unwrap().to_owned();
            let text = message["parts"][0]["text"].as_str().unwrap().to_owned();
            let known = fake.messages.iter().any(|(other, _)| *other == id);
            fake.messages.push((id, text));
            let task = match message["taskId"].as_str() {
                Some(task) => task.to_owned(),
                None if known => format!("t-{}", fake.tasks.len()),
                None => format!("t-{}", fake.tasks.len() + 1),
            };
            let new =
                json!({ "id": task, "contextId": "c-1", "status": new_status("WORKING", "") });
            let stored = fake.tasks.entry(task).or_insert(new);
            stored["status"] = new_status("WORKING", "");
            let result = json!({ "task": stored });
            if fake.lost_answers > 0 {
                fake.lost_answers -= 1;
                return None;
            }
            result
        }
        method => {
            let id = params["id"].as_str().unwrap();
            let refused_cancel = fake.refused_cancel;
            let Some(task) = fake.tasks.get_mut(id) else {
                let error = json!({ "code": -32001, "message": "not found" });
                return Some(json!({ "jsonrpc": "2.0", "id": 1, "error": error }));
            };
            if method == "CancelTask" {
                if let Some(state) = refused_cancel {
                    task["status"] = new_status(state, "");
                    let error = json!({ "code": -32002, "message": "not cancelable" });
                    return Some(json!({ "jsonrpc": "2.0", "id": 1, "error": error }));
                }
                task["status"] = new_status("CANCELED", "");
            }
            task.clone()
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}
