//! Checks that the text and the structured content of a reply are each enough by themselves. Some
//! clients show their model only one of them.

use serde_json::{Value, json};

use crate::support::{TestWorkspace, ToolReply};

/// Fields that are of no use to a model.
const NOISE: [&str; 4] = ["session", "quiet_ms", "alive", "elapsed_ms"];
/// Fields that hold lists of tasks.
const TASK_LISTS: [&str; 5] = ["tasks", "still_running", "ready", "ended", "others"];
/// Lines of the text that only introduce other lines.
const LABELS: [&str; 6] = [
    "Output so far:",
    "Still running:",
    "Ready:",
    "Started by others:",
    "(no output)",
    "(no output here)",
];

/// Checks one reply: the message is the first field and is in the text, and every line of the text
/// is in the structured content.
#[track_caller]
pub(crate) fn check(reply: &ToolReply) {
    let ToolReply { text, structured, .. } = reply;
    let fields = structured.as_object().unwrap_or_else(|| panic!("no structured content: {text}"));
    let (first, message) = fields.iter().next().unwrap();
    assert_eq!(first, "message", "{structured}");
    let message = message.as_str().unwrap();
    assert!(!message.trim().is_empty(), "{structured}");
    for line in message.lines() {
        assert!(text.contains(line), "{line:?} is not in the text: {text}");
    }
    let mut strings = Vec::new();
    collect(structured, &mut strings);
    for line in text.lines().filter(|line| !LABELS.contains(line) && !line.trim().is_empty()) {
        assert!(
            is_covered(line, structured, &strings),
            "{line:?} is not in the structured content: {structured:#}"
        );
    }
    check_noise(structured);
}

/// Checks that a string contains the line, or that the fields of its task have the same facts.
fn is_covered(line: &str, structured: &Value, strings: &[&str]) -> bool {
    let line = line.trim().trim_start_matches("says: ");
    if strings.iter().any(|string| string.contains(line)) {
        return true;
    }
    let words = line.split_once(" says: ").map(|(_, words)| words);
    if words.is_some_and(|words| strings.iter().any(|string| string.contains(words))) {
        return true;
    }
    let address = line.split(' ').next().unwrap_or_default();
    let lists = TASK_LISTS.iter().filter_map(|name| structured[name].as_array());
    let mut tasks = lists.flatten();
    tasks.any(|task| task["address"] == address && line.contains(task["state"].as_str().unwrap()))
        // A result that is JSON is a value in the structured content.
        || serde_json::from_str::<Value>(line).is_ok()
}

fn collect<'a>(value: &'a Value, strings: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => strings.push(text),
        Value::Array(values) => values.iter().for_each(|value| collect(value, strings)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, strings)),
        _ => {}
    }
}

#[track_caller]
fn check_noise(value: &Value) {
    let tasks = TASK_LISTS.iter().filter_map(|name| value[name].as_array());
    for task in tasks.flatten().chain([value]) {
        let fields = task.as_object().unwrap();
        for name in NOISE {
            assert!(!fields.contains_key(name), "{name} is noise: {task}");
        }
        assert_ne!(task["existed"], false, "{task}");
        let empty = fields.iter().find(|(name, value)| *name != "result" && value.is_null());
        assert_eq!(empty, None, "{task}");
        let output = &task["output"];
        assert!(output.is_null() || output.is_array(), "output must be a list of lines: {output}");
    }
}

const ASKS: &str = r#"
agent *
turn
  call ask_parent {"question": "Red or green?"}
turn
  when green
  say Green it is.
"#;

/// Checks the structured content of each tool without its text.
#[tokio::test]
async fn the_structured_content_alone_guides_a_model() {
    let workspace = TestWorkspace::with_script(ASKS);
    let client = workspace.client("claude-code").await;
    let message = |reply: &ToolReply| reply.structured["message"].as_str().unwrap().to_owned();
    let has = |reply: &ToolReply, parts: &[&str]| {
        let message = message(reply);
        for part in parts {
            assert!(message.contains(part), "no {part:?} in: {message}");
        }
    };
    let run = json!({"command": "seq 1 3000; exit 3", "name": "Count"});
    let ended = client.call("run_process", run).await;
    has(&ended, &["process:1 \"Count\" failed (exit code 3)", "read_output with task", "from 0"]);
    let lines = ended.structured["output"].as_array().unwrap();
    assert_eq!(lines.last().unwrap(), "3000");
    let cat = json!({"command": "cat", "name": "Cat", "stdin": true, "background": true});
    let started = client.call("run_process", cat).await;
    has(&started, &["process:2", "running", "Call wait_tasks", "stop_task", "woken when it ends"]);
    let slow = json!({"command": "sleep 60", "name": "Slow", "wait_secs": 1});
    has(&client.call("run_process", slow).await, &["did not end within 1 second", "background"]);
    let waited = client.call("wait_tasks", json!({"wait_secs": 0})).await;
    has(&waited, &["No result was taken", "2 tasks are still running"]);
    let sent = client.call("send_message", json!({"to": "Cat", "message": "meow"})).await;
    has(&sent, &["The line was sent to process:2"]);
    client.call("send_message", json!({"to": "Cat", "close": true})).await;
    let waited = client.call("wait_tasks", json!({})).await;
    has(&waited, &["1 task has ended", "1 task is still running"]);
    assert_eq!(waited.structured["ended"][0]["output"], json!(["meow"]));
    let read = client.call("read_output", json!({"task": "1", "from": 0, "max_bytes": 8})).await;
    has(&read, &["bytes 0 to 8 of", "To read on, call read_output with from 8"]);
    let found = client.call("read_output", json!({"task": "1", "pattern": "^2999$"})).await;
    has(&found, &["1 line matches"]);
    let stopped = client.call("stop_task", json!({"task": "Slow"})).await;
    has(&stopped, &["process:3 \"Slow\" cancelled"]);
    let again = client.call("stop_task", json!({"task": "Slow"})).await;
    has(&again, &["nothing was stopped"]);
    let asks = client.call("spawn_agent", json!({"task": "Paint.", "wait": true})).await;
    has(&asks, &["agent:4 asks", "Red or green?", "Answer with send_message, to \"agent:4\""]);
    let listed = client.call("list_tasks", json!({})).await;
    has(&listed, &["2 tasks.", "agent:4 asks", "Answer with send_message"]);
    let wrong = client.call("stop_task", json!({"task": "Nobody"})).await;
    has(&wrong, &["Nobody", "Call list_tasks"]);
    let answered = client.call("send_message", json!({"to": "agent:4", "message": "green"})).await;
    has(&answered, &["The question of agent:4 is answered"]);
    let done = client.call("wait_tasks", json!({"tasks": ["agent:4"]})).await;
    assert_eq!(done.structured["ended"][0]["result"], "Green it is.");
    assert_eq!(done.structured["ended"][0]["usage"], Value::Null, "no price is not 0 dollars");
}
