//! The command line of another machine: `--server`, over TLS, with a server that is killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::ForegroundServer;
use crate::story_env::{BRIGADE, Ran, StoryEnv, is_there, kill, poll};

const SCRIPT: &str = "agent *
turn
  call run_process {\"command\": \"until [ -e go ]; do sleep 0.02; done\", \"name\": \"Oven\"}
turn
  say Soup is ready.
";

/// A server with TLS, and a machine that has its certificate, its URL and a token, and nothing else.
pub(crate) struct RemoteStory {
    pub(crate) story: StoryEnv,
    server: Option<ForegroundServer>,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl RemoteStory {
    pub(crate) fn start() -> Self {
        let story = StoryEnv::new();
        story.script(SCRIPT);
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let files = story.directory("tls");
        fs::write(files.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(files.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let (url, token) = (String::new(), String::new());
        let mut remote = Self { story, server: None, url, token };
        remote.serve_at("127.0.0.1:0");
        remote.url = remote.server().url.clone();
        remote.token = remote.story.ok(["token", "add", "laptop"]).trim().to_owned();
        fs::write(remote.home().join("token"), format!("{}\n", remote.token)).unwrap();
        remote
    }

    fn server(&self) -> &ForegroundServer {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.story.directory("tls").join("cert.pem")
    }

    /// The home of the other machine.
    pub(crate) fn home(&self) -> PathBuf {
        self.story.directory("elsewhere")
    }

    fn serve_at(&mut self, address: &str) {
        let (cert, key) = (self.certificate(), self.certificate().with_file_name("key.pem"));
        let mut command = self.story.command(["serve", "--listen", address, "--tls-cert"]);
        command.arg(cert).arg("--tls-key").arg(key);
        self.server = Some(ForegroundServer::start_by(command));
    }

    /// Kills the server.
    fn kill(&mut self) {
        let server = self.server.take().unwrap();
        kill(server.pid(), Signal::KILL);
        poll("it is dead", || (!is_there(server.pid())).then_some(()));
    }

    /// Kills the server, and starts it again at the same address.
    fn kill_and_restart(&mut self) {
        self.kill();
        let address = self.url.trim_start_matches("https://").to_owned();
        self.serve_at(&address);
    }

    /// Returns a command line of the other machine, in the directory of the project.
    pub(crate) fn command<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new(BRIGADE);
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home())
            .env("BRIGADE_SERVER", &self.url)
            .env("BRIGADE_TOKEN_FILE", self.home().join("token"))
            .env("SSL_CERT_FILE", self.certificate())
            .current_dir(self.story.project())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run<const N: usize>(&self, args: [&str; N]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    #[track_caller]
    pub(crate) fn ok<const N: usize>(&self, args: [&str; N]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    fn spawn<const N: usize>(&self, args: [&str; N]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Lets everything end that waits for it.
    fn go(&self) {
        fs::write(self.story.project().join("go"), "").unwrap();
    }

    /// Stops the server. The other machine has the token's file and nothing else.
    pub(crate) fn end(mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        let files = fs::read_dir(self.home()).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["token"], "no local file was touched");
    }
}

/// Prints a line, and another one when the file `go` exists. Ends with 5.
const UNTIL_GO: &str = "echo up; until [ -e go ]; do sleep 0.02; done; echo done; exit 5";

#[test]
fn subcommands_work_on_a_server_as_on_the_socket() {
    let remote = RemoteStory::start();
    let ran = remote.run(["exec", "--shell", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.code, &*ran.out), (3, "out\n"), "{}", ran.err);
    assert!(ran.err.contains("err\n"), "{}", ran.err);
    assert_eq!(remote.ok(["exec", "-d", "--stdin", "--name", "Cat", "--", "cat"]), "process:2\n");
    assert!(remote.ok(["ps"]).contains("Cat"));
    let mut send = remote.command(["send", "Cat", "-"]);
    let mut send = send.stdin(Stdio::piped()).spawn().unwrap();
    send.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    assert!(send.wait().unwrap().success());
    let logs = remote.spawn(["logs", "-f", "Cat"]);
    remote.ok(["send", "Cat", "--close"]);
    assert_eq!(remote.run(["wait", "Cat"]).code, 0);
    let ran: Ran = logs.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "one\ntwo\n"), "{}", ran.err);
    let mut typed = remote.command(["exec", "--stdin", "--", "wc", "-c"]);
    let mut typed = typed.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = typed.stdin.take().unwrap();
    input.write_all(&vec![b'x'; 3_000_000]).unwrap();
    drop(input);
    let ran: Ran = typed.wait_with_output().unwrap().into();
    assert_eq!((ran.code, ran.out.trim()), (0, "3000000"));
    remote.go();
    let run = ["run", "--allow", "run_process", "--name", "Cook", "Make soup"];
    assert_eq!(remote.ok(run).trim(), "Soup is ready.");
    let shown = remote.ok(["show", "Cook"]);
    assert!(shown.contains("token laptop ("), "{shown}");
    remote.ok(["exec", "-d", "--name", "Long", "--", "sleep", "1000"]);
    remote.ok(["stop", "Long"]);
    assert!(remote.ok(["token", "list"]).contains("laptop"));
    assert!(remote.ok(["daemon", "status"]).contains("running: version"));
    let doctor = remote.ok(["doctor"]);
    assert!(doctor.contains(&format!("{}: version", remote.url)), "{doctor}");
    let url = remote.ok(["dashboard", "--no-open"]);
    assert!(url.starts_with(&format!("{}/#code=", remote.url)), "{url}");
    // The task has the variables of the server: a path of the client's machine means nothing there.
    let env =
        remote.command(["exec", "--", "env"]).env("TMPDIR", "/mine").env("TZ", "UTC").output();
    let env = Ran::from(env.unwrap());
    assert!(env.out.contains("TZ=UTC") && !env.out.contains("/mine"), "{}", env.out);
    assert!(!env.out.contains("BRIGADE_TOKEN") && !env.out.contains(&remote.token));
    remote.end();
}

#[test]
fn everything_continues_while_servers_are_killed() {
    let mut remote = RemoteStory::start();
    let mut exec = remote.spawn(["exec", "--name", "Slow", "--shell", UNTIL_GO]);
    let mut output = BufReader::new(exec.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert_eq!(first, "up\n");
    let run = remote.spawn(["run", "--allow", "run_process", "--name", "Cook", "Make soup"]);
    poll("the agent works", || remote.story.ok(["tree"]).contains("Oven").then_some(()));
    remote.ok(["exec", "-d", "--stdin", "--name", "Cat", "--", "cat", "-n"]);
    let logs = remote.spawn(["logs", "-f", "Slow"]);
    let cat = remote.spawn(["logs", "-f", "Cat"]);
    let wait = remote.spawn(["wait", "Slow"]);
    let mut send = remote.command(["send", "Cat", "-"]);
    let mut send = send.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = send.stdin.take().unwrap();
    let path = remote.story.project().join("events");
    let mut events = remote.command(["events", "-f", "--json"]);
    let mut events = events.stdout(fs::File::create(&path).unwrap()).spawn().unwrap();
    let until = |text: &str| {
        poll(text, || Some(fs::read_to_string(&path).ok()?).filter(|all| all.contains(text)))
    };
    until("spawned");
    // Only a client that was connected waits for the next server.
    writeln!(lines, "connected").unwrap();
    let connected = || remote.story.ok(["logs", "Cat"]).contains("connected").then_some(());
    poll("the sender is connected", connected);
    for name in ["First", "Second"] {
        writeln!(lines, "before {name}").unwrap();
        remote.kill_and_restart();
        writeln!(lines, "after {name}").unwrap();
        remote.ok(["exec", "--name", name, "--", "true"]);
        until(name);
    }
    drop(lines);
    assert!(send.wait().unwrap().success());
    remote.ok(["send", "Cat", "--close"]);
    let ran: Ran = cat.wait_with_output().unwrap().into();
    let sent = ["connected", "before First", "after First", "before Second", "after Second"];
    assert_eq!(ran.code, 0, "{ran:?}");
    let arrived: Vec<&str> =
        ran.out.lines().filter_map(|line| Some(line.split_once('\t')?.1)).collect();
    let missing = sent.iter().filter(|line| !arrived.contains(line)).count();
    let in_order: Vec<&str> = sent.into_iter().filter(|line| arrived.contains(line)).collect();
    assert_eq!(arrived, in_order, "each line at most once: {}", ran.err);
    // A line that a killed server was writing may be missing, and is stored as such.
    let stored = remote.story.ok(["events", "--json"]);
    let unknown = stored.matches("\"message_delivery_unknown\"").count();
    assert!(missing <= unknown, "{missing} of {unknown}: {}", ran.err);
    remote.go();
    let mut rest = String::new();
    output.read_line(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
    assert_eq!(exec.wait().unwrap().code(), Some(5));
    let ran: Ran = logs.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "up\ndone\n"), "each byte once: {}", ran.err);
    assert_eq!(wait.wait_with_output().unwrap().status.code(), Some(5));
    let ran: Ran = run.wait_with_output().unwrap().into();
    assert_eq!((ran.code, ran.out.trim()), (0, "Soup is ready."), "{}", ran.err);
    let items = until("exit_code\":5");
    let items = items.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let positions = items.map(|event| event["event"]["position"].as_u64().unwrap());
    let positions: Vec<u64> = positions.collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "each once: {positions:?}");
    events.kill().unwrap();
    events.wait().unwrap();
    remote.end();
}

#[test]
fn the_next_server_of_several_continues() {
    let mut remote = RemoteStory::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let servers = format!("https://{address},{}", remote.url);
    // The first one is not there yet.
    let mut exec = remote.command(["exec", "--server", &servers, "--shell", UNTIL_GO]);
    let mut exec = exec.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(exec.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    remote.kill();
    remote.serve_at(&address);
    remote.go();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "up\ndone\n");
    let ran: Ran = exec.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 5, "{}", ran.err);
    remote.end();
}

#[test]
fn a_revocation_ends_the_clients_of_a_token() {
    let remote = RemoteStory::start();
    let wait = remote.spawn(["exec", "--shell", UNTIL_GO]);
    poll("it runs", || remote.story.ok(["ps"]).contains("process:1").then_some(()));
    let listed = remote.story.json(["token", "list"]);
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    remote.ok(["token", "revoke", &id]);
    let ran: Ran = wait.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 126, "{ran:?}");
    assert!(ran.err.contains("expired or revoked"), "{}", ran.err);
    assert!(ran.err.contains("process:1 keeps running"), "{}", ran.err);
    assert_eq!(remote.run(["ps"]).code, 126);
    remote.go();
    assert_eq!(remote.story.run(["wait", "1"]).code, 5);
    remote.end();
}

/// Sends a line of JSON-RPC, and returns the result of the response.
fn ask(
    input: &mut impl Write,
    output: &mut impl BufRead,
    id: u64,
    method: &str,
    params: &Value,
) -> Value {
    let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    writeln!(input, "{line}").unwrap();
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "an answer to {method}");
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == id {
            return message["result"].clone();
        }
    }
}

#[test]
fn coding_agents_and_editors_use_a_server() {
    let mut remote = RemoteStory::start();
    let piped = |mut command: Command| {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (child.stdin.take().unwrap(), output, child)
    };
    let (mut input, mut output, mut mcp) = piped(remote.command(["mcp"]));
    let client = json!({ "name": "claude", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    ask(&mut input, &mut output, 1, "initialize", &hello);
    writeln!(input, r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#).unwrap();
    let process = json!({ "command": "exit 7", "background": true });
    let call = json!({ "name": "run_process", "arguments": process });
    ask(&mut input, &mut output, 2, "tools/call", &call);
    remote.kill_and_restart();
    let call = json!({ "name": "wait_tasks", "arguments": { "mode": "all" } });
    let waited = ask(&mut input, &mut output, 3, "tools/call", &call);
    assert_eq!(waited["structuredContent"]["ended"][0]["address"], "process:1", "{waited}");
    drop(input);
    assert!(mcp.wait().unwrap().success());
    let (mut input, mut output, mut acp) = piped(remote.command(["acp", "--allow", "run_process"]));
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    ask(&mut input, &mut output, 1, "initialize", &hello);
    let session = json!({ "cwd": remote.story.project(), "mcpServers": [] });
    let session = ask(&mut input, &mut output, 2, "session/new", &session);
    let prompt = json!({
        "sessionId": session["sessionId"], "prompt": [{ "type": "text", "text": "Make soup" }],
    });
    remote.go();
    let prompted = ask(&mut input, &mut output, 3, "session/prompt", &prompt);
    assert_eq!(prompted["stopReason"], "end_turn", "{prompted}");
    drop(input);
    assert!(acp.wait().unwrap().success());
    remote.end();
}
