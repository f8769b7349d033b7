//! The keys of messages to agents, which let a message be repeated to the next daemon.

use std::sync::{Arc, Mutex};

use brigade_mcp::server::{McpOptions, serve};
use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::Call;
use brigade_protocol::frames::{ClientIntroduction, PROTOCOL_VERSION};
use brigade_protocol::requests::{AnyRequest, SendRequest};
use brigade_protocol::{RequestClient, RequestClientFactory};
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ClientConfig, Implementation};
use serde_json::{Value, json};

use crate::support::SESSION;

/// A message as the handlers got it.
#[derive(Clone, Debug)]
struct RecordedSend {
    request: SendRequest,
    may_be_repeated: bool,
}

/// Handlers of one protocol, with an agent (1), a process (2) and an agent that asks (3).
#[derive(Clone, Debug)]
struct RecordingHandlers {
    protocol: u32,
    sends: Arc<Mutex<Vec<RecordedSend>>>,
}

impl RequestClientFactory for RecordingHandlers {
    type Client = RecordingClient;

    fn new_client(&self, introduction: ClientIntroduction) -> RecordingClient {
        RecordingClient { introduction, handlers: self.clone() }
    }

    fn hold_presence(&self, _: ConversationId) -> impl Future<Output = ()> + Send + 'static {
        std::future::ready(())
    }
}

#[derive(Debug)]
struct RecordingClient {
    introduction: ClientIntroduction,
    handlers: RecordingHandlers,
}

impl RecordingClient {
    fn handle<C: Call>(&self, request: C, may_be_repeated: bool) -> Result<C::Reply, Refusal> {
        let reply = match request.into() {
            AnyRequest::ShowTask(show) => show_task(&show.target.task),
            AnyRequest::Send(request) => {
                let mut sends = self.handlers.sends.lock().unwrap();
                sends.push(RecordedSend { request, may_be_repeated });
                json!([1])
            }
            AnyRequest::Inbox(_) => json!([]),
            _ => return Err(Refusal::not_found("nothing else is served")),
        };
        serde_json::from_value(reply).map_err(|error| Refusal::internal(error.to_string()))
    }
}

impl RequestClient for RecordingClient {
    fn introduction(&self) -> &ClientIntroduction {
        &self.introduction
    }

    async fn protocol(&self) -> Result<u32, Refusal> {
        Ok(self.handlers.protocol)
    }

    async fn call<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        self.handle(new_request(), true)
    }

    async fn call_once<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        self.handle(new_request(), false)
    }
}

fn show_task(task: &str) -> Value {
    let kind = if task == "2" { "process" } else { "agent" };
    let questions = match task {
        "3" => json!([{ "call": 5, "text": "Salt?" }]),
        _ => json!([]),
    };
    json!({
        "questions": questions,
        "address": format!("{kind}:{task}"),
        "kind": kind,
        "session": SESSION,
        "description": "soup",
        "state": "running",
        "alive": true,
        "run": 1,
        "attempt": 1,
        "spawned_at": 1,
        "last_activity_at": 1,
    })
}

/// Calls `send_message` with each of these arguments. Returns the messages that the handlers got, and
/// the texts of refused calls.
async fn call_send_message(protocol: u32, calls: &[Value]) -> (Vec<RecordedSend>, Vec<String>) {
    let handlers = RecordingHandlers { protocol, sends: Arc::default() };
    let directory = tempfile::tempdir().unwrap();
    let options = McpOptions::new(SESSION, directory.path());
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(theirs);
    let config = ClientConfig::new(Default::default(), Implementation::new("cook", "1"));
    let used = async {
        let client = config.serve(ours).await.unwrap();
        let mut refusals = Vec::new();
        for arguments in calls {
            let arguments = arguments.as_object().unwrap().clone();
            let send = CallToolRequestParams::new("send_message").with_arguments(arguments);
            let reply = client.call_tool(send).await.unwrap();
            if reply.is_error == Some(true) {
                refusals.push(reply.content[0].as_text().unwrap().text.clone());
            }
        }
        client.cancel().await.unwrap();
        refusals
    };
    let (served, refusals) = tokio::join!(serve(handlers.clone(), options, input, output), used);
    served.unwrap();
    let sends = handlers.sends.lock().unwrap().clone();
    (sends, refusals)
}

/// Sends two messages to the agent and a line to the process.
async fn send_messages(protocol: u32) -> Vec<RecordedSend> {
    let calls = ["1", "1", "2"].map(|to| json!({"to": to, "message": "salt"}));
    let (sends, refusals) = call_send_message(protocol, &calls).await;
    assert!(refusals.is_empty(), "{refusals:?}");
    sends
}

#[tokio::test]
async fn a_message_to_an_agent_has_a_name() {
    let named = |to: &str, name: &str| json!({"to": to, "message": "yes", "name": name});
    let wrong = [
        (named("1", ""), "is empty"),
        (named("1", " approval"), "starts or ends with a space"),
        (named("1", &"n".repeat(65)), "65 characters long; the maximum is 64"),
        (json!({"to": "1", "message": "yes", "name": 3}), "name"),
        (json!({"to": "1", "message": "yes", "key": "k"}), "unknown argument `key`"),
        (named("2", "approval"), "a line of its standard input has no name"),
        (named("3", "approval"), "waits for an answer, which has no name"),
    ];
    let mut calls: Vec<Value> = wrong.iter().map(|(arguments, _)| arguments.clone()).collect();
    calls.push(named("1", "approval"));
    let (sends, refusals) = call_send_message(PROTOCOL_VERSION, &calls).await;
    assert_eq!(refusals.len(), wrong.len(), "{refusals:?}");
    for ((arguments, problem), refusal) in wrong.iter().zip(&refusals) {
        assert!(refusal.contains(problem), "{arguments}: {refusal}");
    }
    let [send] = &sends[..] else { panic!("only the last one was sent: {sends:?}") };
    assert_eq!(send.request.name.as_deref(), Some("approval"));
}

#[tokio::test]
async fn each_message_to_an_agent_has_a_key_of_its_own_and_may_be_repeated() {
    let sends = send_messages(PROTOCOL_VERSION).await;
    let keys: Vec<Option<&str>> = sends.iter().map(|send| send.request.key.as_deref()).collect();
    assert!(keys[0].is_some() && keys[1].is_some(), "{keys:?}");
    assert_ne!(keys[0], keys[1], "a second call sends a second message");
    assert_eq!(keys[2], None, "a line may have been written by a daemon that died");
    let repeated: Vec<bool> = sends.iter().map(|send| send.may_be_repeated).collect();
    assert_eq!(repeated, [true, true, false]);
}

#[tokio::test]
async fn a_daemon_without_keys_gets_each_message_once() {
    let sends = send_messages(SendRequest::KEY_AND_NAME_PROTOCOL - 1).await;
    assert_eq!(sends.len(), 3);
    assert!(sends.iter().all(|send| send.request.key.is_none() && !send.may_be_repeated));
}
