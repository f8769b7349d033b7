//! `brigade acp` with an editor: a client that speaks the protocol line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::story_env::{StoryEnv, TOO_LONG, poll};

/// Delegates, runs a process, and continues in a second run.
const BOSS: &str = r#"
agent acp-*
usage input=1000 output=10
turn
  when Another bowl
  say More soup.
turn
  think One helper is enough.
  say I send a helper.
  call spawn_agent {"name": "North", "task": "Look in the north."}
turn
  when has started
  call wait_tasks {"mode": "all"}
turn
  say Soup is ready.

agent North
turn
  say Mushrooms in the north.
"#;

/// Runs one process.
pub(crate) const RUNNER: &str = r#"
agent acp-*
turn
  when Carry on
  say Nothing left.
turn
  call run_process {"command": "echo done >> made; true"}
turn
  when denied
  say Not allowed.
turn
  when "not offered"
  say Not allowed.
turn
  say It ran.
"#;

/// An editor with one connection.
pub(crate) struct Editor {
    server: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    last_id: u64,
    /// The updates of all sessions.
    pub(crate) updates: Vec<Value>,
    /// Requests of the agent that were not awaited yet.
    requests: Vec<Value>,
    /// Responses that were not awaited yet.
    responses: Vec<Value>,
}

impl Editor {
    pub(crate) fn open(story: &StoryEnv) -> Self {
        let mut editor = Self::start(story, &["acp"]);
        let reply = editor.call("initialize", json!({"protocolVersion": 1}));
        assert_eq!(reply["result"]["protocolVersion"], 1, "{reply}");
        editor
    }

    pub(crate) fn start(story: &StoryEnv, args: &[&str]) -> Self {
        let mut command = story.command(args);
        let pipe = std::process::Stdio::piped;
        let mut server = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
        let input = server.stdin.take();
        let output = BufReader::new(server.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({"raw": line}));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let updates = Vec::new();
        let requests = Vec::new();
        let responses = Vec::new();
        Self { server, input, messages, last_id: 0, updates, requests, responses }
    }

    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends a request, and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(&line.to_string());
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a request, and returns its response.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.response(id)
    }

    /// Reads one message.
    #[track_caller]
    pub(crate) fn read(&mut self) {
        let message = self.messages.recv_timeout(TOO_LONG).expect("a message");
        if message["method"] == "session/update" {
            self.updates.push(message["params"]["update"].clone());
        } else if message["method"].is_string() && !message["id"].is_null() {
            self.requests.push(message);
        } else if message["method"].is_null() {
            self.responses.push(message);
        }
    }

    #[track_caller]
    pub(crate) fn response(&mut self, id: u64) -> Value {
        loop {
            let found = self.responses.iter().position(|response| response["id"] == id);
            if let Some(found) = found {
                return self.responses.remove(found);
            }
            self.read();
        }
    }

    /// Waits for a request of the agent.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str) -> Value {
        loop {
            let found = self.requests.iter().position(|request| request["method"] == method);
            if let Some(found) = found {
                return self.requests.remove(found);
            }
            self.read();
        }
    }

    pub(crate) fn reply(&mut self, request: &Value, result: Value) {
        let line = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.write(&line.to_string());
    }

    /// Opens a session in the project.
    #[track_caller]
    pub(crate) fn new_session(&mut self, story: &StoryEnv) -> String {
        let reply = self.call("session/new", json!({"cwd": story.project(), "mcpServers": []}));
        reply["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    pub(crate) fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        self.send("session/prompt", prompt(session, text))
    }

    /// Sends a prompt, and returns its stop reason.
    #[track_caller]
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.send_prompt(session, text);
        let response = self.response(id);
        assert!(response["error"].is_null(), "{response}");
        response["result"]["stopReason"].clone()
    }

    /// Returns the text of all updates of a kind.
    pub(crate) fn text(&self, kind: &str) -> String {
        let updates = self.updates.iter().filter(|update| update["sessionUpdate"] == kind);
        updates.map(|update| update["content"]["text"].as_str().unwrap()).collect()
    }

    /// Returns the statuses of the tool call with this title, in their order.
    pub(crate) fn statuses(&self, id: &str) -> Vec<String> {
        let updates = self.updates.iter().filter(|update| update["toolCallId"] == id);
        updates.filter_map(|update| update["status"].as_str().map(str::to_owned)).collect()
    }

    /// Returns the number of requests of the agent that were not awaited.
    pub(crate) fn requests_of(&self, method: &str) -> usize {
        self.requests.iter().filter(|request| request["method"] == method).count()
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

pub(crate) fn select(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

#[test]
fn a_prompt_shows_text_calls_and_sub_tasks_and_the_next_one_continues() {
    let story = StoryEnv::new();
    story.script(BOSS);
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    assert_eq!(editor.prompt(&session, "Make soup"), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "I send a helper.Soup is ready.");
    assert_eq!(editor.text("agent_thought_chunk"), "One helper is enough.");
    let spawn = editor.statuses("call-1.1.1");
    assert_eq!(spawn, ["in_progress", "completed"]);
    let helper = editor.statuses("task-agent:2");
    assert_eq!(helper.last().unwrap(), "completed", "{helper:?}");
    let plan = editor.updates.iter().rfind(|update| update["sessionUpdate"] == "plan").unwrap();
    let entry = json!({
        "content": "North: Look in the north.", "priority": "medium", "status": "completed",
    });
    assert_eq!(plan["entries"], json!([entry]));
    assert!(editor.updates.iter().any(|update| update["sessionUpdate"] == "usage_update"));
    editor.updates.clear();
    assert_eq!(editor.prompt(&session, "Another bowl"), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "More soup.");
    let shown = story.json(["show", "agent:1"]);
    assert_eq!((&shown["run"], &shown["name"]), (&2.into(), &session.as_str().into()));
}

#[test]
fn an_approval_is_a_permission_request_with_the_whole_command() {
    let story = StoryEnv::new();
    story.script(RUNNER);
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    let prompt = editor.send_prompt(&session, "Go");
    let request = editor.request("session/request_permission");
    let params = &request["params"];
    assert_eq!(params["sessionId"], session.as_str());
    assert_eq!(params["toolCall"]["rawInput"]["command"], "echo done >> made; true");
    let shown = params["toolCall"]["content"][0]["content"]["text"].as_str().unwrap();
    assert!(shown.contains("command │ echo done >> made; true"), "{shown}");
    let kinds: Vec<&Value> =
        params["options"].as_array().unwrap().iter().map(|option| &option["kind"]).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    editor.reply(&request, select("allow_once"));
    let response = editor.response(prompt);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert_eq!(editor.text("agent_message_chunk"), "It ran.");
    assert_eq!(story.file("made"), "done\n");
}

#[test]
fn a_long_call_of_a_sub_agent_is_shown_whole() {
    let story = StoryEnv::new();
    let command = format!("echo {} > made", "x".repeat(20_000));
    let arguments = json!({"command": command});
    story.script(&format!(
        "agent acp-*\nturn\n  call spawn_agent {{\"name\": \"North\", \"task\": \"Look.\"}}\n\
         turn\n  when has started\n  call wait_tasks {{\"mode\": \"all\"}}\nturn\n  say Done.\n\
         agent North\nturn\n  call run_process {arguments}\nturn\n  say Made.\n"
    ));
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    let prompt = editor.send_prompt(&session, "Go");
    let request = editor.request("session/request_permission");
    let call = &request["params"]["toolCall"];
    assert_eq!(call["rawInput"]["command"], command.as_str());
    let title = call["title"].as_str().unwrap();
    assert!(title.starts_with("North asks: run_process: echo"), "{title}");
    editor.reply(&request, select("allow_always"));
    let response = editor.response(prompt);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert_eq!(story.file("made").len(), 20_001);
}

#[test]
fn only_an_offered_option_allows_a_call() {
    let story = StoryEnv::new();
    story.script(RUNNER);
    for outcome in
        [select("reject_once"), select("yes"), json!({"outcome": {"outcome": "cancelled"}})]
    {
        let mut editor = Editor::open(&story);
        let session = editor.new_session(&story);
        let prompt = editor.send_prompt(&session, "Go");
        let request = editor.request("session/request_permission");
        editor.reply(&request, outcome.clone());
        let response = editor.response(prompt);
        assert_eq!(response["result"]["stopReason"], "end_turn", "{outcome}: {response}");
        assert!(!story.project().join("made").exists(), "{outcome}");
    }
}

#[test]
fn a_cancelled_prompt_answers_after_the_stop() {
    let story = StoryEnv::new();
    story.script(
        "agent acp-*\nturn\n  when Come back\n  say Here I am.\nturn\n  delay 600s\n  say No.\n",
    );
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    // A cancel without a prompt changes nothing.
    editor.notify("session/cancel", json!({"sessionId": session}));
    let prompt = editor.send_prompt(&session, "Take your time");
    poll("it runs", || {
        let tasks = story.json(["ps"]);
        (tasks[0]["state"] == "running").then_some(())
    });
    let busy = editor.prompt_error(&session);
    assert!(busy["message"].as_str().unwrap().contains("still running"), "{busy}");
    editor.notify("session/cancel", json!({"sessionId": session}));
    let response = editor.response(prompt);
    assert_eq!(response["result"]["stopReason"], "cancelled", "{response}");
    assert_eq!(story.state_of("agent:1"), "cancelled");
    assert_eq!(editor.prompt(&session, "Come back"), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Here I am.");
}

impl Editor {
    /// Sends a prompt that is refused, and returns the error.
    #[track_caller]
    fn prompt_error(&mut self, session: &str) -> Value {
        let response = self.call("session/prompt", prompt(session, "Go"));
        assert!(response["error"].is_object(), "{response}");
        response["error"].clone()
    }
}

#[test]
fn a_session_survives_the_daemon_the_server_and_both() {
    let story = StoryEnv::new();
    story.script(RUNNER);
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    let prompt = editor.send_prompt(&session, "Go");
    let first = editor.request("session/request_permission");
    // The daemon: the same turn continues.
    story.kill_daemon();
    editor.reply(&first, select("unheard"));
    let response = editor.response(prompt);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert_eq!(editor.text("agent_message_chunk"), "Not allowed.");
    // Both, in mid-turn.
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    editor.send_prompt(&session, "Go");
    editor.request("session/request_permission");
    editor.kill();
    story.kill_daemon();
    let mut editor = Editor::open(&story);
    let place = json!({"sessionId": session, "cwd": story.project(), "mcpServers": []});
    let loaded = editor.call("session/load", place.clone());
    assert!(loaded["error"].is_null(), "{loaded}");
    assert_eq!(editor.text("user_message_chunk"), "Go");
    // The run is followed without a prompt, and its approval is asked for again.
    let request = editor.request("session/request_permission");
    editor.reply(&request, select("allow_once"));
    story.until_state(&session, "succeeded");
    assert_eq!(story.file("made"), "done\n", "it ran once");
    // A later editor that resumes gets nothing of the past.
    editor.kill();
    let mut editor = Editor::open(&story);
    let resumed = editor.call("session/resume", place);
    assert!(resumed["error"].is_null(), "{resumed}");
    assert_eq!(editor.updates, Vec::<Value>::new());
    assert_eq!(editor.prompt(&session, "Carry on"), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Nothing left.");
    let listed = editor.call("session/list", json!({"cwd": story.project()}));
    let sessions = listed["result"]["sessions"].as_array().unwrap();
    assert!(sessions.iter().any(|listed| listed["sessionId"] == session.as_str()), "{listed}");
}

#[test]
fn text_is_sent_once_although_the_daemon_is_killed_in_the_middle() {
    let story = StoryEnv::new();
    let words: Vec<String> = (1..=40).map(|number| format!("word{number}")).collect();
    let text = words.join(" ");
    story.script(&format!("agent acp-*\nturn\n  pace 30ms\n  say {text}\n"));
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    let prompt = editor.send_prompt(&session, "Count");
    while !editor.text("agent_message_chunk").contains("word3") {
        editor.read();
    }
    story.kill_daemon();
    let response = editor.response(prompt);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert_eq!(editor.text("agent_message_chunk"), text);
}

#[test]
fn the_agent_keeps_running_after_the_end_of_the_input() {
    let story = StoryEnv::new();
    story.script(RUNNER);
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    editor.send_prompt(&session, "Go");
    editor.request("session/request_permission");
    drop(editor.input.take());
    let status = editor.server.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(story.state_of(&session), "waiting");
}

#[test]
fn a_question_is_text_or_a_form() {
    let script = "agent acp-*\nturn\n\
        \x20 call send_message {\"to\": \"parent\", \"message\": \"Half done.\"}\n\
        turn\n  call ask_parent {\"question\": \"Red or blue?\"}\n\
        turn\n  when The answer: red\n  say Red it is.\n";
    let story = StoryEnv::new();
    story.script(script);
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    assert_eq!(editor.prompt(&session, "Paint"), "end_turn");
    let text = editor.text("agent_message_chunk");
    assert!(text.contains("Half done.") && text.contains("Red or blue?"), "{text}");
    assert_eq!(editor.prompt(&session, "red"), "end_turn");
    assert!(editor.text("agent_message_chunk").ends_with("Red it is."));
    let mut editor = Editor::start(&story, &["acp"]);
    let forms = json!({"elicitation": {"form": {}}});
    editor.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": forms}));
    let session = editor.new_session(&story);
    let prompt = editor.send_prompt(&session, "Paint");
    let form = editor.request("elicitation/create");
    assert_eq!(form["params"]["message"], "Red or blue?");
    editor.reply(&form, json!({"action": "accept", "content": {"answer": "red"}}));
    let response = editor.response(prompt);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    let text = editor.text("agent_message_chunk");
    assert_eq!(text.matches("Half done.").count(), 1, "{text}");
    assert!(text.ends_with("Red it is."), "{text}");
    assert_eq!(story.ok(["inbox"]), "", "the messages were read");
}

#[test]
fn the_first_answer_says_that_servers_of_the_editor_are_not_used() {
    let story = StoryEnv::new();
    story.script("agent acp-*\nturn\n  say Soup.\nturn\n  say Bread.\n");
    let mut editor = Editor::open(&story);
    let server = json!({"name": "files", "command": "/bin/false", "args": [], "env": []});
    let new = json!({"cwd": story.project(), "mcpServers": [server]});
    let opened = editor.call("session/new", new);
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(editor.prompt(&session, "Go"), "end_turn");
    let text = editor.text("agent_message_chunk");
    assert!(text.contains("MCP servers of the editor") && text.ends_with("Soup."), "{text}");
    editor.updates.clear();
    assert_eq!(editor.prompt(&session, "Go on"), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Bread.");
}

#[test]
fn a_failed_run_is_an_error_with_its_text() {
    let story = StoryEnv::new();
    story.script("agent acp-*\nturn\n  fault 400 always\n  say x\n");
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    let error = editor.prompt_error(&session);
    assert!(error["message"].as_str().unwrap().contains("400"), "{error}");
    assert_eq!(story.state_of(&session), "failed");
}

#[test]
fn bad_input_is_answered_and_the_connection_continues() {
    let story = StoryEnv::new();
    story.script("agent acp-*\nturn\n  say Soup.\n");
    let mut editor = Editor::open(&story);
    for line in ["nonsense", "[]", "{}", "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"}"] {
        editor.write(line);
    }
    let huge = "x".repeat(17 * 1024 * 1024);
    editor.write(&huge);
    let session = editor.new_session(&story);
    let unknown = editor.prompt_error("acp-0000000000000000");
    assert_eq!(unknown["code"], -32002, "{unknown}");
    let wrong = [
        ("session/new", json!({"cwd": "relative", "mcpServers": []})),
        ("session/new", json!({"cwd": "/dev/null", "mcpServers": []})),
        ("session/load", json!({"sessionId": "agent:1", "cwd": "/", "mcpServers": []})),
        (
            "session/load",
            json!({"sessionId": "acp-0000000000000000", "cwd": "/", "mcpServers": []}),
        ),
        ("session/close", json!({"sessionId": "acp-0000000000000000"})),
        ("session/prompt", json!({"sessionId": session, "prompt": []})),
        (
            "session/prompt",
            json!({"sessionId": session, "prompt": [
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            ]}),
        ),
        ("session/set_mode", json!({"sessionId": session, "modeId": "x"})),
    ];
    for (method, params) in wrong {
        let response = editor.call(method, params.clone());
        assert!(response["error"]["code"].is_i64(), "{method} {params}: {response}");
    }
    let discarded = editor.responses.iter().map(ToString::to_string);
    assert!(discarded.filter(|response| response.contains("was discarded")).count() == 1);
    assert_eq!(editor.prompt(&session, "Go"), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Soup.");
    let closed = editor.call("session/close", json!({"sessionId": session}));
    assert!(closed["error"].is_null(), "{closed}");
    editor.prompt_error(&session);
}
