//! The clients: one for each session, which sends requests to random nodes and keeps a history.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::history::{
    CollectedTask, Operation, OperationReply, OperationRequest, OperationResult, TaskNumber,
};
use crate::http_client::{Asked, HttpRequest};
use crate::random::ChaosRandom;
use crate::snapshot::SESSION_PREFIX;

/// The pause before a repetition.
const REPEAT_PAUSE: Duration = Duration::from_millis(300);
/// The tasks of a session that run at the same time.
const OPEN_TASKS_MAX: usize = 6;

/// The nodes and the files that all clients use.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadEnv {
    pub(crate) nodes: Vec<(String, SocketAddr)>,
    pub(crate) token: String,
    /// The directory with one file of lines for each session.
    pub(crate) effects: PathBuf,
    pub(crate) started_at: Instant,
    /// The mean time between two operations of a session.
    pub(crate) pace: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskKind {
    Process,
    /// A process that reads messages until one says `end`.
    Reader,
    Agent,
}

/// A task that the client knows and that has not ended for it.
#[derive(Clone, Debug)]
struct OpenTask {
    number: TaskNumber,
    kind: TaskKind,
}

/// The history of one client.
pub(crate) struct ClientHistory {
    pub(crate) operations: Vec<Operation>,
    /// The tasks that did not end in time, as text.
    pub(crate) unfinished: Vec<String>,
}

/// The client of one session.
pub(crate) struct SessionClient<'a> {
    env: &'a WorkloadEnv,
    random: ChaosRandom,
    name: String,
    id: String,
    tasks: Vec<OpenTask>,
    /// Spawns without a clear result, with their kind and request, which are repeated at the end.
    doubtful: Vec<(String, TaskKind, Value)>,
    operations: Vec<Operation>,
    keys: u64,
}

impl<'a> SessionClient<'a> {
    pub(crate) fn new(env: &'a WorkloadEnv, seed: u64, number: usize) -> Self {
        Self {
            env,
            random: ChaosRandom::part(seed, number),
            name: format!("{SESSION_PREFIX}{number}"),
            id: String::new(),
            tasks: Vec::new(),
            doubtful: Vec::new(),
            operations: Vec::new(),
            keys: 0,
        }
    }

    /// Sends requests until the end of the faults. Then repeats those in doubt and waits for all tasks, at
    /// most for this time. Returns the history.
    pub(crate) fn run(mut self, is_over: &AtomicBool, timeout: Duration) -> ClientHistory {
        while self.id.is_empty() && !is_over.load(Ordering::Relaxed) {
            self.open();
        }
        while !is_over.load(Ordering::Relaxed) {
            let pause = self.random.around(self.env.pace);
            pause_unless(is_over, pause);
            self.act();
        }
        self.finish(Instant::now() + timeout);
        let name = &self.name;
        let unfinished = self.tasks.iter().map(|task| format!("{name}: {task:?} did not end"));
        ClientHistory { unfinished: unfinished.collect(), operations: self.operations }
    }

    fn open(&mut self) {
        let request = HttpRequest::post("/v1/sessions", json!({ "name": self.name }));
        let opened = self.ask(OperationRequest::Open, &request, |_| Some(OperationReply::Opened));
        match opened {
            Some(body) => self.id = body["id"].as_str().unwrap_or_default().to_owned(),
            None => std::thread::sleep(REPEAT_PAUSE),
        }
    }

    fn act(&mut self) {
        match self.random.below(100) {
            0..35 if self.tasks.len() < OPEN_TASKS_MAX => self.spawn_next(),
            35..60 => self.send_next(),
            60..70 => self.stop_next(),
            _ => {
                let seconds = self.random.between(0, 4);
                self.wait(seconds);
            }
        }
    }

    fn spawn_next(&mut self) {
        self.keys += 1;
        let key = format!("spawn {}", self.keys);
        let (kind, body) = match self.random.below(10) {
            0..5 => (TaskKind::Process, self.new_process()),
            5..7 => (TaskKind::Reader, self.new_reader()),
            _ => (TaskKind::Agent, self.new_agent()),
        };
        // A second try goes to another node. Some commands stay in doubt.
        for _ in 0..2 {
            if self.spawn(&key, kind, &body) {
                return;
            }
            std::thread::sleep(REPEAT_PAUSE);
        }
        if self.random.is_hit(75) {
            self.doubtful.push((key, kind, body));
        }
    }

    fn spawn(&mut self, key: &str, kind: TaskKind, body: &Value) -> bool {
        let request = HttpRequest::post(&format!("/v1/sessions/{}/tasks", self.id), body.clone());
        let request = request.header("Idempotency-Key", key);
        let number = |body: &Value| body["number"].as_u64();
        let spawned = self.ask(OperationRequest::Spawn { key: key.to_owned() }, &request, |body| {
            number(body).map(|task| OperationReply::Spawned { task })
        });
        let number = spawned.as_ref().and_then(number);
        if let Some(number) = number
            && self.tasks.iter().all(|task| task.number != number)
        {
            self.tasks.push(OpenTask { number, kind });
        }
        number.is_some()
    }

    fn effects(&self) -> String {
        self.env.effects.join(&self.name).display().to_string()
    }

    fn new_process(&mut self) -> Value {
        // Some run longer than a takeover takes.
        let most = if self.random.is_hit(30) { 150 } else { 20 };
        let tenths = self.random.between(0, most);
        let shell =
            process_line(&self.effects(), &format!("sleep {}.{}", tenths / 10, tenths % 10));
        json!({ "kind": "process", "shell": shell, "cwd": self.env.effects })
    }

    fn new_reader(&self) -> Value {
        let file = self.effects();
        let read = format!(
            "while read -r line; do echo \"line $BRIGADE_TASK $line\" >>'{file}'; \
             [ \"$line\" = end ] && break; done"
        );
        let shell = process_line(&file, &read);
        json!({ "kind": "process", "shell": shell, "cwd": self.env.effects, "stdin": true })
    }

    fn new_agent(&mut self) -> Value {
        let seconds = self.random.between(0, 3);
        json!({
            "kind": "agent",
            "prompt": "Work.",
            "name": format!("cook-{seconds}-{}", self.keys),
            "cwd": self.env.effects,
            "unattended": true,
            "permissions": { "allow": ["run_process", "wait_tasks"] },
        })
    }

    fn send_next(&mut self) {
        let readers: Vec<TaskNumber> = self.open_readers();
        if readers.is_empty() {
            return self.wait(0);
        }
        let task = readers[self.random.index(readers.len())];
        self.keys += 1;
        let key = format!("message {}", self.keys);
        for _ in 0..2 {
            if self.send(task, &key, &key) {
                return;
            }
        }
    }

    fn open_readers(&self) -> Vec<TaskNumber> {
        let readers = self.tasks.iter().filter(|task| task.kind == TaskKind::Reader);
        readers.map(|task| task.number).collect()
    }

    /// Sends a message. Returns true if it has a clear result.
    fn send(&mut self, task: TaskNumber, key: &str, text: &str) -> bool {
        let path = format!("/v1/tasks/{}.{task}/messages", self.id);
        let request = HttpRequest::post(&path, json!({ "body": text }));
        let request = request.header("Idempotency-Key", key);
        let send = OperationRequest::Send { task, key: key.to_owned() };
        self.ask(send, &request, |_| Some(OperationReply::Sent));
        !self.must_repeat()
    }

    /// Returns true if the last operation has no clear result.
    fn must_repeat(&self) -> bool {
        match self.operations.last().map(|operation| &operation.result) {
            Some(OperationResult::Failed { code }) => {
                matches!(code.as_str(), "unavailable" | "not sent")
            }
            Some(OperationResult::Unknown) => true,
            _ => false,
        }
    }

    fn stop_next(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let index = self.random.index(self.tasks.len());
        let task = self.tasks[index].number;
        let request = HttpRequest::post(&format!("/v1/tasks/{}.{task}/stop", self.id), json!({}));
        self.ask(OperationRequest::Stop { task }, &request, |_| Some(OperationReply::Stopped));
    }

    /// Waits for any of the open tasks, and collects the results.
    fn wait(&mut self, seconds: u64) {
        let tasks: Vec<TaskNumber> = self.tasks.iter().map(|task| task.number).collect();
        if tasks.is_empty() {
            return;
        }
        let ids: Vec<String> = tasks.iter().map(|task| format!("{}.{task}", self.id)).collect();
        let path = format!("/v1/sessions/{}/wait?collect=true", self.id);
        let request = HttpRequest::post(&path, json!({ "tasks": ids, "mode": "any" }));
        let request = request.header("Prefer", &format!("wait={seconds}"));
        self.ask(OperationRequest::Wait { tasks }, &request, |body| {
            Some(OperationReply::Waited { ended: read_collected(body) })
        });
        if let Some(OperationResult::Ok(OperationReply::Waited { ended })) =
            self.operations.last().map(|operation| &operation.result)
        {
            self.tasks.retain(|task| ended.iter().all(|ended| ended.task != task.number));
        }
    }

    /// Repeats the spawns in doubt, ends the readers, and waits for all tasks.
    fn finish(&mut self, deadline: Instant) {
        while let Some((key, kind, body)) = self.doubtful.pop() {
            while Instant::now() < deadline && !self.spawn(&key, kind, &body) {
                if !self.must_repeat() {
                    break;
                }
                std::thread::sleep(REPEAT_PAUSE);
            }
        }
        while !self.tasks.is_empty() && Instant::now() < deadline {
            // Sent again each time: a message that was on its way when a node was killed may be lost,
            // and is then stored as such.
            for reader in self.open_readers() {
                self.keys += 1;
                self.send(reader, &format!("end {}", self.keys), "end");
            }
            self.wait(5);
            if self.must_repeat() {
                std::thread::sleep(REPEAT_PAUSE);
            }
        }
    }

    /// Sends a request to a random node and adds it to the history. Returns the body of a success.
    fn ask(
        &mut self,
        operation: OperationRequest,
        request: &HttpRequest,
        read: impl Fn(&Value) -> Option<OperationReply>,
    ) -> Option<Value> {
        let (node, address) = &self.env.nodes[self.random.index(self.env.nodes.len())];
        let invoked_at = self.now();
        let asked = request.send(*address, &self.env.token);
        let (result, body) = match asked {
            Asked::Answered { status: 200..300, body } => {
                let reply = read(&body).unwrap_or_else(|| panic!("a reply: {body}"));
                (OperationResult::Ok(reply), Some(body))
            }
            Asked::Answered { status, body } => (read_refusal(status, &body), None),
            Asked::NotSent => (OperationResult::Failed { code: "not sent".to_owned() }, None),
            Asked::NoAnswer => (OperationResult::Unknown, None),
        };
        self.operations.push(Operation {
            session: self.name.clone(),
            node: node.clone(),
            invoked_at,
            returned_at: self.now(),
            request: operation,
            result,
        });
        body
    }

    fn now(&self) -> u64 {
        u64::try_from(self.env.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Returns a line for the shell that writes its begin and its end to a file.
fn process_line(file: &str, work: &str) -> String {
    format!(
        "echo \"begin $BRIGADE_TASK\" >>'{file}'; {work}; echo \"end $BRIGADE_TASK\" >>'{file}'"
    )
}

/// Returns the script of all agents: each runs one process, whose time is in the agent's name.
pub(crate) fn agent_script(effects: &Path) -> String {
    let directory = effects.display();
    let section = |seconds: u64| {
        let file = format!("{directory}/${{BRIGADE_TASK%%/*}}");
        let line = format!(
            "echo \"begin $BRIGADE_TASK\" >>\"{file}\"; sleep {seconds}; \
             echo \"end $BRIGADE_TASK\" >>\"{file}\""
        );
        let call = json!({ "command": line, "wait_secs": 60 });
        format!("agent cook-{seconds}-*\nturn\n  call run_process {call}\nturn\n  say Done.\n")
    };
    (0..3).map(section).collect()
}

fn read_collected(body: &Value) -> Vec<CollectedTask> {
    let ended = body["ended"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_done = body["done"] == true;
    let collected = ended.iter().filter(|_| is_done).filter_map(|task| {
        let is_first = task["collected_before"] == false;
        Some(CollectedTask { task: task["number"].as_u64()?, is_first })
    });
    collected.collect()
}

fn read_refusal(status: u16, body: &Value) -> OperationResult {
    match body["code"].as_str() {
        Some("unknown") => OperationResult::Unknown,
        Some(code) => OperationResult::Failed { code: code.to_owned() },
        None => OperationResult::Failed { code: format!("status {status}") },
    }
}

fn pause_unless(is_over: &AtomicBool, pause: Duration) {
    let deadline = Instant::now() + pause;
    while !is_over.load(Ordering::Relaxed) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50).min(pause));
    }
}
