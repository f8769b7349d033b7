//! The same work in plain tokio and plain rusqlite: no durability, no scope, no queue, no feed.
//! Each benchmark has the name of its counterpart in `product`.

use std::collections::HashMap;
use std::future::Future;
use std::hint::black_box;
use std::sync::{Arc, Mutex};

use brigade::llm::{ChatMessage, ModelReply, ModelRequest, ReplyPart, ToolCall, ToolResult};
use brigade::{Model, Script, ScriptedModel, ToolSpec};
use divan::Bencher;
use divan::counter::ItemsCount;
use futures_util::StreamExt;
use tokio::runtime::Runtime as Tokio;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const ALIVE_TASKS: usize = 10_000;

fn main() {
    divan::main();
}

fn tokio() -> Tokio {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a tokio runtime")
}

/// Runs a future on a worker, as its counterpart does.
fn run_on_worker<T: Send + 'static>(
    tokio: &Tokio,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    tokio.block_on(async { tokio.spawn(future).await.expect("no panic") })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Running,
    Ended,
}

type Table = Arc<Mutex<HashMap<u64, watch::Sender<Status>>>>;

/// Starts tasks that record their end in a table, and waits for all of them.
async fn spawn_to_end(count: usize) {
    let table = Table::default();
    let mut tasks = JoinSet::new();
    for id in 0..count as u64 {
        table.lock().expect("a table").insert(id, watch::channel(Status::Running).0);
        let table = table.clone();
        tasks.spawn(async move {
            if let Some(status) = table.lock().expect("a table").get(&id) {
                status.send_replace(Status::Ended);
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    let all = table.lock().expect("a table");
    assert!(all.values().all(|status| *status.borrow() == Status::Ended));
}

#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn spawn_to_end_in_batches(bencher: Bencher, count: usize) {
    let tokio = tokio();
    bencher
        .counter(ItemsCount::new(count))
        .bench_local(|| run_on_worker(&tokio, spawn_to_end(count)));
}

/// Does the same through an actor that replies to each spawn, the least that a supervisor must do.
async fn spawn_to_end_by_actor(count: usize) {
    let (sender, mut requests) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(1024);
    let table = Table::default();
    #[expect(clippy::disallowed_methods, reason = "this is the baseline, not the product")]
    let actor = tokio::spawn(async move {
        let mut tasks = JoinSet::new();
        while let Some((id, reply)) = requests.recv().await {
            table.lock().expect("a table").insert(id, watch::channel(Status::Running).0);
            let table = table.clone();
            tasks.spawn(async move {
                if let Some(status) = table.lock().expect("a table").get(&id) {
                    status.send_replace(Status::Ended);
                }
            });
            let _ = reply.send(id);
        }
        while tasks.join_next().await.is_some() {}
    });
    for id in 0..count as u64 {
        let (reply_sender, reply) = oneshot::channel();
        sender.send((id, reply_sender)).await.expect("the actor runs");
        black_box(reply.await.expect("a reply"));
    }
    drop(sender);
    actor.await.expect("no panic");
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn spawn_to_end_each_awaited(bencher: Bencher, count: usize) {
    let tokio = tokio();
    bencher
        .counter(ItemsCount::new(count))
        .bench_local(|| run_on_worker(&tokio, spawn_to_end_by_actor(count)));
}

/// The handles of one waiting task.
struct WaitingTask {
    status: watch::Sender<Status>,
    token: CancellationToken,
    inbox: mpsc::UnboundedSender<u64>,
}

/// Many waiting tasks.
struct WaitingTasks {
    table: HashMap<u64, WaitingTask>,
    _inboxes: Vec<mpsc::UnboundedReceiver<u64>>,
    tasks: JoinSet<()>,
}

fn waiting_tasks(tokio: &Tokio) -> WaitingTasks {
    let _entered = tokio.enter();
    let mut waiting_tasks =
        WaitingTasks { table: HashMap::new(), _inboxes: Vec::new(), tasks: JoinSet::new() };
    for id in 0..ALIVE_TASKS as u64 {
        let token = CancellationToken::new();
        let (sender, receiver) = mpsc::unbounded_channel();
        let status = watch::channel(Status::Running).0;
        let task = WaitingTask { status, token: token.clone(), inbox: sender };
        waiting_tasks.table.insert(id, task);
        waiting_tasks._inboxes.push(receiver);
        waiting_tasks.tasks.spawn(async move { token.cancelled().await });
    }
    waiting_tasks
}

#[divan::bench(sample_count = 100, sample_size = 1000)]
fn get_at_10k_alive(bencher: Bencher) {
    let tokio = tokio();
    let waiting_tasks = waiting_tasks(&tokio);
    let table = Mutex::new(waiting_tasks.table);
    let mut next = 0_u64;
    bencher.bench_local(|| {
        next = (next + 7919) % ALIVE_TASKS as u64;
        *table.lock().expect("a table")[&next].status.borrow()
    });
}

#[divan::bench(sample_count = 100, sample_size = 1)]
fn list_at_10k_alive(bencher: Bencher) {
    let tokio = tokio();
    let waiting_tasks = waiting_tasks(&tokio);
    let table = Mutex::new(waiting_tasks.table);
    bencher.bench_local(|| {
        let table = table.lock().expect("a table");
        let mut all: Vec<(u64, Status)> =
            table.iter().map(|(id, task)| (*id, *task.status.borrow())).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        black_box(all).len()
    });
}

#[divan::bench(sample_count = 50, sample_size = 1)]
fn stop_100_one_by_one_at_10k_alive(bencher: Bencher) {
    let tokio = tokio();
    let waiting_tasks = waiting_tasks(&tokio);
    let mut next = 0;
    bencher.counter(ItemsCount::new(100_usize)).bench_local(|| {
        for _ in 0..100 {
            waiting_tasks.table[&next].token.cancel();
            next += 1;
        }
    });
    drop(waiting_tasks.tasks);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn stop_of_a_10k_tree_ten_deep(bencher: Bencher) {
    let tokio = tokio();
    bencher
        .with_inputs(|| {
            tokio.block_on(async {
                let root = CancellationToken::new();
                let mut tasks = JoinSet::new();
                for _ in 0..1_111 {
                    let mut token = root.child_token();
                    for _ in 0..9 {
                        let mine = token.clone();
                        tasks.spawn(async move { mine.cancelled().await });
                        token = token.child_token();
                    }
                }
                (root, tasks)
            })
        })
        .bench_local_values(|(root, mut tasks)| {
            tokio.block_on(async {
                root.cancel();
                while tasks.join_next().await.is_some() {}
            });
        });
}

fn send_100k(bencher: Bencher) {
    let tokio = tokio();
    let mut waiting_tasks = waiting_tasks(&tokio);
    bencher.counter(ItemsCount::new(100_000_usize)).bench_local(|| {
        for n in 0..100_000 {
            waiting_tasks.table[&5_000].inbox.send(n).expect("sent");
        }
        while waiting_tasks._inboxes[5_000].try_recv().is_ok() {}
    });
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_in_batches(bencher: Bencher) {
    send_100k(bencher);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_each_awaited(bencher: Bencher) {
    send_100k(bencher);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_received_together(bencher: Bencher) {
    send_100k(bencher);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_received_one_by_one(bencher: Bencher) {
    send_100k(bencher);
}

/// Writes the rows of 10,000 tasks: three events each, and a task row three times.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn sqlite_10k_spawn_to_end_64_in_flight(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut db = rusqlite::Connection::open(dir.path().join("bare.db")).expect("a database");
    db.pragma_update(None, "journal_mode", "wal").expect("wal");
    db.pragma_update(None, "synchronous", "normal").expect("normal");
    db.execute_batch(
        "create table events(position integer primary key, session int, seq int, body blob);
         create table tasks(no integer primary key, body blob);",
    )
    .expect("tables");
    let body = vec![7_u8; 200];
    let mut no = 0_i64;
    bencher.counter(ItemsCount::new(10_000_usize)).bench_local(|| {
        for _ in 0..100 {
            let batch = db.transaction().expect("a transaction");
            {
                let mut event = batch
                    .prepare_cached("insert into events(session, seq, body) values (1, ?1, ?2)")
                    .expect("sql");
                let mut task = batch
                    .prepare_cached("insert or replace into tasks(no, body) values (?1, ?2)")
                    .expect("sql");
                for _ in 0..100 {
                    no += 1;
                    for _ in 0..3 {
                        event.execute((no, &body)).expect("an event");
                        task.execute((no, &body)).expect("a task");
                    }
                }
            }
            batch.commit().expect("a commit");
        }
    });
}

const SCRIPT: &str = "agent *\nturn\n  call look {\"at\": \"stove\"}\nturn\n  say Done.\n";

fn scripted() -> (ScriptedModel, Arc<[ToolSpec]>) {
    let look = ToolSpec {
        name: "look".into(),
        description: "Looks at something.".into(),
        parameters: Arc::new(serde_json::json!({ "type": "object" })),
    };
    (ScriptedModel::new(Script::parse("bench", SCRIPT).expect("a script")), Arc::new([look]))
}

/// Runs the smallest agent: model calls and tool calls, until there are no tool calls.
async fn bare_loop(model: ScriptedModel, tools: Arc<[ToolSpec]>) -> String {
    let system: Arc<str> = "You are a capable agent.".into();
    let mut messages = vec![ChatMessage::user("Look.")];
    loop {
        let request = ModelRequest {
            agent: "general".into(),
            model: "scripted".into(),
            system: system.clone(),
            messages: messages.clone(),
            tools: tools.clone(),
            max_output: 8_192,
            temperature: None,
            effort: None,
        };
        let ModelReply { message, .. } = call_model(&model, request).await;
        let calls: Vec<ToolCall> = message.calls().cloned().collect();
        if calls.is_empty() {
            return message.text();
        }
        messages.push(ChatMessage::Assistant(Arc::new(message)));
        let mut results = Vec::new();
        for ToolCall { id, name, .. } in calls {
            results.push(ToolResult { id, name, text: look().await.into(), failed: false });
        }
        messages.push(ChatMessage::Results(results));
    }
}

async fn call_model(model: &ScriptedModel, request: ModelRequest) -> ModelReply {
    let mut parts = model.call(Arc::new(request));
    while let Some(part) = parts.next().await {
        if let ReplyPart::Finished(reply) = part.expect("a reply") {
            return *reply;
        }
    }
    panic!("the reply has no end");
}

async fn look() -> String {
    "It is hot.".to_owned()
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn agents_200_one_after_another(bencher: Bencher) {
    let tokio = tokio();
    let (model, tools) = scripted();
    bencher.counter(ItemsCount::new(200_usize)).bench_local(|| {
        let model = model.clone();
        let tools = tools.clone();
        run_on_worker(&tokio, async move {
            for _ in 0..200 {
                let mut agent = JoinSet::new();
                agent.spawn(bare_loop(model.clone(), tools.clone()));
                black_box(agent.join_next().await);
            }
        });
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn agents_1000_at_once(bencher: Bencher) {
    let tokio = tokio();
    let (model, tools) = scripted();
    bencher.counter(ItemsCount::new(1_000_usize)).bench_local(|| {
        let model = model.clone();
        let tools = tools.clone();
        run_on_worker(&tokio, async move {
            let mut agents = JoinSet::new();
            for _ in 0..1_000 {
                agents.spawn(bare_loop(model.clone(), tools.clone()));
            }
            while let Some(text) = agents.join_next().await {
                assert_eq!(text.expect("no panic"), "Done.");
            }
        });
    });
}
