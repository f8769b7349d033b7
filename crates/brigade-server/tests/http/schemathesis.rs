//! Generated requests against the OpenAPI document. The generator must be installed, so this test
//! runs only by name.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use brigade_sqlite::SqliteStore;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::TestServer;
use crate::task_server::{TaskServer, build};

/// The options, which name the files with ids beside them.
const CONFIG: &str = include_str!("schemathesis.toml");

/// `BRIGADE_SCHEMATHESIS` names the program.
#[test]
#[ignore = "needs BRIGADE_SCHEMATHESIS: the program schemathesis"]
fn generated_requests_get_documented_answers() {
    let Some(program) = std::env::var_os("BRIGADE_SCHEMATHESIS") else { return };
    let server = InertServer::start();
    let dir = tempfile::tempdir().unwrap();
    let InertTarget { url, secret, sessions, closing, tasks } = &server.target;
    let quote = |ids: &[String]| -> String { ids.iter().map(|id| format!("{id:?}\n")).collect() };
    let sessions = quote(sessions);
    let tasks = quote(tasks);
    let closing = quote(std::slice::from_ref(closing));
    let files = [
        ("config.toml", CONFIG),
        ("sessions.txt", &sessions),
        ("closing.txt", &closing),
        ("tasks.txt", &tasks),
    ];
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let mut run = Command::new(program);
    run.args(["--config-file", "config.toml", "run"]).arg(format!("{url}/openapi.json"));
    run.env("BRIGADE_TOKEN", secret).current_dir(dir.path());
    assert!(run.status().unwrap().success());
    server.stop();
}

/// A server of an ordinary user with tasks in several states. It has no slots for running tasks, so
/// everything that a request starts or wakes stays in the queue.
struct InertServer {
    target: InertTarget,
    shutdown: CancellationToken,
    thread: JoinHandle<()>,
}

/// The address, a token and the ids of a server.
#[derive(Clone)]
struct InertTarget {
    url: String,
    secret: String,
    sessions: Vec<String>,
    /// A session that requests may close.
    closing: String,
    tasks: Vec<String>,
}

impl InertServer {
    fn start() -> Self {
        let (sender, receiver) = mpsc::channel();
        let shutdown = CancellationToken::new();
        let stopped = shutdown.clone();
        let thread = std::thread::spawn(move || {
            become_user();
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let seeded = SeededServer::start().await;
                sender.send(seeded.target.clone()).unwrap();
                stopped.cancelled().await;
                seeded.server.get("/v1/whoami").await.expect(200);
            });
        });
        let target = receiver.recv().unwrap();
        Self { target, shutdown, thread }
    }

    fn stop(self) {
        self.shutdown.cancel();
        self.thread.join().unwrap();
    }
}

struct SeededServer {
    server: TestServer,
    target: InertTarget,
    _dir: tempfile::TempDir,
}

impl SeededServer {
    /// Starts tasks on a server that runs them, and continues with one that starts nothing.
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let open = |dir: &Path| SqliteStore::open(dir.join("store.db")).unwrap();
        let seed = TaskServer::start_with(dir, |builder, dir| builder.store(open(dir))).await;
        let tasks = seed_tasks(&seed).await;
        let open_session = async |name: &str| {
            let body = json!({ "name": name });
            let session = seed.server.post("/v1/sessions", body).await.expect(201);
            session["id"].as_str().unwrap().to_owned()
        };
        let other = open_session("other").await;
        let closing = open_session("closing").await;
        let TaskServer { server, session, dir } = seed;
        let path = dir.path().canonicalize().unwrap();
        let server =
            server.restart(|builder| build(builder.store(open(&path)), &path).max_running(0)).await;
        let target = InertTarget {
            url: server.url(""),
            secret: server.operator.clone(),
            sessions: vec![session, other],
            closing,
            tasks,
        };
        Self { server, target, _dir: dir }
    }
}

/// Starts one task of each kind and state.
async fn seed_tasks(server: &TaskServer) -> Vec<String> {
    let process = server.start_shell("echo soup; echo salt >&2").await;
    let failed = server.start_job("burn", json!(null)).await;
    let asking = server.start_job("ask", json!("Salt?")).await;
    let agent = server.start_baker().await;
    for task in [&process, &failed, &asking, &agent] {
        server.wait(task).await;
    }
    let waiting = server.start_job("echo", json!(1)).await;
    let parent = server.start_job("cook", json!(null)).await;
    let message = json!({ "body": "Soup?", "name": "order" });
    server.post(&asking, "messages", message).await.expect(202);
    vec![process, failed, asking, agent, waiting, parent]
}

/// Makes this thread an ordinary user if it is root, and with it all threads that it starts.
fn become_user() {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    const NOBODY: u32 = 65534;
    if rustix::process::geteuid().is_root() {
        let user = rustix::process::Uid::from_raw(NOBODY);
        let group = rustix::process::Gid::from_raw(NOBODY);
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
    }
    assert!(!rustix::process::geteuid().is_root());
}
