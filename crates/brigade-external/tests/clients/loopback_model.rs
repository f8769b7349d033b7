//! A model on loopback, in the wire formats of the clients. Words of the prompt choose its reply.

use std::sync::atomic::{AtomicU32, Ordering};

use brigade_llm::conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ToolArguments, ToolCall, ToolResult,
};
use brigade_llm::model::{ModelReply, StopReason, TokenUsage, ToolSpec};
use brigade_llm::wire_server::{WireReply, WireRequest, WireServer, WireStatus};
use serde_json::{Map, Value, json};

/// The names that the clients have for their shell.
const SHELL_TOOLS: [&str; 6] =
    ["Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command"];

/// The name of Brigade's tool where clients hide the tools of servers.
const SERVER_TOOL: &str = "mcp__brigade__list_tasks";

const INPUT_TOKENS: u64 = 100;
const OUTPUT_TOKENS: u64 = 10;
pub(crate) const TOKENS_OF_A_CALL: u64 = INPUT_TOKENS + OUTPUT_TOKENS;

/// The part of a prompt that chooses the replies of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    Begin,
    GoOn,
    Touch,
    Gate,
    Hang,
    Refuse,
    ListTasks,
}

const SCENES: [(&str, Scene); 7] = [
    ("begin the soup", Scene::Begin),
    ("go on with the soup", Scene::GoOn),
    ("touch the proof", Scene::Touch),
    ("wait for the gate", Scene::Gate),
    ("hang for ever", Scene::Hang),
    ("be refused", Scene::Refuse),
    ("list the tasks", Scene::ListTasks),
];

/// Starts the model. It ends when dropped.
pub(crate) async fn start_model() -> WireServer {
    let calls = AtomicU32::new(0);
    WireServer::start(move |request| reply(&request, &calls)).await.unwrap()
}

fn reply(request: &WireRequest, calls: &AtomicU32) -> WireReply {
    // Without tools, a client wants a title or a summary.
    if request.tools.is_empty() {
        return say("Soup");
    }
    let Some((at, scene)) = find_scene(&request.messages) else { return say("No scene.") };
    let after = &request.messages[at + 1..];
    let has_result = after.iter().any(|message| matches!(message, ChatMessage::Results(_)));
    let command = match scene {
        Scene::Begin => return say("The soup is begun."),
        Scene::GoOn => {
            let is_told = has_words(&request.messages[at], "begin the soup");
            return match find_scene(&request.messages[..at]) {
                Some(_) => say("I remember the soup."),
                None if is_told => say("I was told of the soup."),
                None => say("Which soup?"),
            };
        }
        Scene::Refuse => {
            let body = json!({
                "type": "error",
                "error": {
                    "code": 400, "type": "invalid_request_error", "status": "INVALID_ARGUMENT",
                    "message": "the soup is refused",
                },
            });
            return WireReply::Status(WireStatus::new(400, body.to_string()));
        }
        Scene::ListTasks => return list_tasks(request, after, calls),
        _ if has_result => return say("The call is over."),
        Scene::Touch => "touch proof && echo touched",
        Scene::Gate => "touch waiting; while [ ! -e gate ]; do sleep 0.1; done; echo opened",
        Scene::Hang => "touch waiting; sleep 1000",
    };
    let shell =
        SHELL_TOOLS.iter().find_map(|name| request.tools.iter().find(|tool| *tool.name == **name));
    let Some(shell) = shell else { return say("There is no shell.") };
    call_tool(&shell.name, shell_arguments(shell, command), calls)
}

fn call_tool(name: &str, arguments: Value, calls: &AtomicU32) -> WireReply {
    finish(ContentBlock::Call(ToolCall {
        id: next_id(calls).into(),
        name: name.into(),
        arguments: ToolArguments::Json(arguments),
        opaque: Value::Null,
    }))
}

fn next_id(calls: &AtomicU32) -> String {
    format!("call_{}", calls.fetch_add(1, Ordering::Relaxed))
}

/// Calls Brigade's tool `list_tasks`, under the name that the client has for it.
fn list_tasks(request: &WireRequest, after: &[ChatMessage], calls: &AtomicU32) -> WireReply {
    let results = after.iter().filter_map(|message| match message {
        ChatMessage::Results(results) => Some(results),
        _ => None,
    });
    let results: Vec<&ToolResult> = results.flatten().collect();
    let is_call = |name: &str| name.ends_with("list_tasks") || name == "tool_call";
    if let Some(result) = results.iter().find(|result| is_call(&result.name)) {
        return match result.text.contains("There are no tasks yet.") {
            true => say("The tasks are listed."),
            false => say(&format!("The call failed: {}", result.text)),
        };
    }
    let find = |suffix: &str| request.tools.iter().find(|tool| tool.name.ends_with(suffix));
    if let Some(tool) = find("list_tasks") {
        return call_tool(&tool.name, json!({}), calls);
    }
    let in_namespace = request.body["tools"].as_array().into_iter().flatten();
    let mut namespaces = in_namespace.filter(|tool| tool["type"] == "namespace");
    if let Some(namespace) = namespaces.find(|tool| tool.to_string().contains("list_tasks")) {
        return call_in_namespace(&namespace["name"], calls);
    }
    // These clients show the tools of servers only after a search.
    let search = find("ToolSearch").or_else(|| find("tool_search"));
    match (search, find("tool_call")) {
        (Some(search), _) if results.is_empty() => {
            let query = format!("select:{SERVER_TOOL}");
            call_tool(&search.name, json!({ "query": query, "max_results": 5 }), calls)
        }
        (_, Some(tool)) if !results.is_empty() => {
            call_tool(&tool.name, json!({ "name": SERVER_TOOL, "arguments": {} }), calls)
        }
        _ => say("There is no such tool."),
    }
}

/// Returns a call in the form that Codex has for the tools of a server.
fn call_in_namespace(namespace: &Value, calls: &AtomicU32) -> WireReply {
    let item = json!({
        "type": "function_call", "id": "fc_1", "call_id": next_id(calls), "status": "completed",
        "namespace": namespace, "name": "list_tasks", "arguments": "{}",
    });
    let usage = json!({
        "input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS,
        "total_tokens": TOKENS_OF_A_CALL,
    });
    let response = json!({ "id": "resp_1", "object": "response", "status": "completed",
        "output": [item], "usage": usage });
    let events = [
        json!({ "type": "response.created", "response": { "id": "resp_1" } }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": response }),
    ];
    let lines = events.map(|event| {
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
    });
    WireReply::Bytes(lines.concat().into_bytes())
}

/// Returns the last scene of the conversation and the position of its message.
fn find_scene(messages: &[ChatMessage]) -> Option<(usize, Scene)> {
    messages.iter().enumerate().rev().find_map(|(at, message)| {
        let ChatMessage::User(user) = message else { return None };
        let found = SCENES.iter().filter(|(words, _)| user.text.contains(words));
        let (_, scene) = found.max_by_key(|(words, _)| user.text.rfind(words))?;
        Some((at, *scene))
    })
}

fn has_words(message: &ChatMessage, words: &str) -> bool {
    matches!(message, ChatMessage::User(user) if user.text.contains(words))
}

fn say(text: &str) -> WireReply {
    finish(ContentBlock::Text(text.into()))
}

fn finish(content: ContentBlock) -> WireReply {
    let message = AssistantMessage { content: vec![content], opaque: Value::Null };
    let usage = TokenUsage { input: INPUT_TOKENS, output: OUTPUT_TOKENS, ..TokenUsage::default() };
    WireReply::Reply(ModelReply { message, usage, stop: StopReason::EndOfTurn })
}

/// Returns the command, and a value for everything else that the schema requires.
fn shell_arguments(tool: &ToolSpec, command: &str) -> Value {
    let properties = &tool.parameters["properties"];
    let name = if properties.get("cmd").is_some() { "cmd" } else { "command" };
    let command = match properties[name]["type"].as_str() {
        Some("array") => json!(["sh", "-c", command]),
        _ => json!(command),
    };
    let mut arguments = Map::from_iter([(name.to_owned(), command)]);
    let required = tool.parameters["required"].as_array().into_iter().flatten();
    for field in required.filter_map(Value::as_str).filter(|field| *field != name) {
        let value = match properties[field]["type"].as_str() {
            Some("boolean") => json!(false),
            Some("number" | "integer") => json!(600_000),
            _ => json!("Cook"),
        };
        arguments.insert(field.to_owned(), value);
    }
    // Without it, these shells end a command after two minutes or less.
    for field in ["timeout", "timeout_ms"] {
        if properties.get(field).is_some() {
            arguments.insert(field.to_owned(), json!(600_000));
        }
    }
    arguments.into()
}
