//! Measures the HTTP API: requests per second beside bare axum handlers, the time from a commit to
//! the clients of its stream, and the memory of idle connections.
//!
//! `cargo bench -p brigade-server --bench http -- requests` measures one of `requests`, `streams` and
//! `memory`.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{get, post};
use brigade_model::limits::Limits;
use brigade_protocol::StateDir;
use brigade_protocol::daemon_connection::DaemonConnection;
use brigade_protocol::frames::ClientRole;
use brigade_protocol::http::TokenScope;
use brigade_protocol::requests::CreateTokenRequest;
use brigade_runtime::{Job, JobContext, JobError, Runtime};
use brigade_server::daemon::{Daemon, DaemonOptions, StateDirLock};
use brigade_server::http::ListenOptions;
use bytes::Bytes;
use http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type BenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

const CONNECTIONS: usize = 32;
const REQUESTS: usize = 1_000;
const STREAMS: usize = 100;
const EVENTS: usize = 5_000;
const EVENTS_PER_SECOND: u64 = 1_000;
/// Each has a socket at either end in this process.
const IDLE_CONNECTIONS: usize = 4_000;
/// The time after which the server has dropped the buffers of a connection, and not yet closed it.
const IDLE_TIME: Duration = Duration::from_secs(1);
const IDLE_STREAMS: usize = 1_000;
const STREAMS_PER_TOKEN: usize = 100;

const WAIT: Job<u32, ()> = Job::new("wait");
const TICK: Job<(), ()> = Job::new("tick");
const RETURN: Job<u32, u32> = Job::new("return");

/// The time at which each event was committed.
static COMMITTED: [OnceLock<Instant>; EVENTS] = [const { OnceLock::new() }; EVENTS];

fn main() -> BenchResult<()> {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let server = BenchServer::start().await?;
        if is_wanted("requests") {
            measure_requests(&server).await?;
        }
        if is_wanted("streams") {
            measure_streams(&server).await?;
        }
        if is_wanted("memory") {
            measure_memory(&server).await?;
        }
        Ok(())
    })
}

/// A daemon in this process with a memory store and one session.
struct BenchServer {
    address: SocketAddr,
    runtime: Runtime,
    state_dir: StateDir,
    _tasks: JoinSet<()>,
    _dir: tempfile::TempDir,
}

impl BenchServer {
    async fn start() -> BenchResult<Self> {
        let dir = tempfile::tempdir()?;
        let state_dir = StateDir::new(dir.path().join("state"));
        let lock = StateDirLock::acquire(&state_dir)?;
        let builder = Runtime::builder().job(WAIT, wait).job(TICK, tick).job(RETURN, return_number);
        let daemon = Daemon::open(lock, DaemonOptions::new(state_dir.clone()), builder).await?;
        let url = daemon.listen(ListenOptions::dashboard()).await?;
        let address = url.trim_start_matches("http://").parse()?;
        let runtime = daemon.runtime().clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = daemon.run().await;
        });
        Ok(Self { address, runtime, state_dir, _tasks: tasks, _dir: dir })
    }

    async fn create_token(&self, name: String) -> BenchResult<String> {
        let client = DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await?;
        let scope = TokenScope::Operator;
        let request = CreateTokenRequest { name, scope, session: None, expires_in_ms: None };
        Ok(client.call(request).await?.secret)
    }
}

async fn wait(context: JobContext, _: u32) -> Result<(), JobError> {
    context.receive().await?;
    Ok(())
}

async fn return_number(_: JobContext, number: u32) -> Result<u32, JobError> {
    Ok(number)
}

/// Commits events at a steady rate.
async fn tick(context: JobContext, (): ()) -> Result<(), JobError> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / EVENTS_PER_SECOND as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for (number, committed) in COMMITTED.iter().enumerate() {
        ticks.tick().await;
        context.progress(number).await?;
        let _ = committed.set(Instant::now());
    }
    Ok(())
}

fn request(path: &str, secret: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n{more}\r\n"
    )
}

fn post_request(path: &str, secret: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Measures each request beside the bare handler of its method.
async fn measure_requests(server: &BenchServer) -> BenchResult<()> {
    let secret = server.create_token("requests".to_owned()).await?;
    let session = server.runtime.session("bench").await?;
    for number in 0..100 {
        session.spawn(WAIT.with(number)).await?;
    }
    let bare = serve_bare().await?;
    let get = |path: &str| request(path, &secret, "");
    println!("| request | per second | ratio |\n|---|---|---|");
    let base = measure_rate(bare.address, get("/")).await?;
    print_rate("GET of a bare axum handler", base, base);
    let task = format!("/v1/tasks/{}.1", session.id());
    for (name, path) in [
        ("GET /v1/whoami", "/v1/whoami"),
        ("GET /v1/tasks/{task}", &task),
        ("GET /v1/tasks, 100 tasks", "/v1/tasks?limit=100"),
    ] {
        print_rate(name, measure_rate(server.address, get(path)).await?, base);
    }
    let new_task = r#"{"kind": "job", "job": "return", "arguments": 7}"#;
    let base = measure_rate(bare.address, post_request("/", &secret, new_task)).await?;
    print_rate("POST to a bare axum handler that parses and returns JSON", base, base);
    let full = server
        .runtime
        .open_session("full")
        .limits(Limits { running: Some(1), ..Limits::default() });
    let full = full.await?.session;
    full.spawn(WAIT.with(0)).await?;
    for (name, session) in [("a job that queues", &full), ("a job that returns", &session)] {
        let path = format!("/v1/sessions/{}/tasks", session.id());
        let rate = measure_rate(server.address, post_request(&path, &secret, new_task)).await?;
        print_rate(&format!("POST /v1/sessions/{{session}}/tasks, {name}"), rate, base);
    }
    Ok(())
}

fn print_rate(name: &str, rate: f64, base: f64) {
    println!("| {name} | {rate:.0} | {:.2} |", rate / base);
}

/// Returns the requests per second of several connections that repeat one request.
async fn measure_rate(address: SocketAddr, text: String) -> BenchResult<f64> {
    let text: Arc<str> = text.into();
    let mut clients = JoinSet::new();
    let started_at = Instant::now();
    for _ in 0..CONNECTIONS {
        clients.spawn(repeat_request(address, text.clone()));
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    Ok((CONNECTIONS * REQUESTS) as f64 / started_at.elapsed().as_secs_f64())
}

struct BareServer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

/// Serves handlers of axum that do nothing, as the daemon serves its own.
async fn serve_bare() -> BenchResult<BareServer> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/", get(async || "{\"name\":\"bench\"}").merge(post(echo)));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let service = TowerToHyperService::new(app.clone());
            connections
                .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(BareServer { address, _tasks: tasks })
}

/// Parses a body of JSON and returns it.
async fn echo(body: Bytes) -> Result<(StatusCode, Vec<u8>), StatusCode> {
    let value: serde_json::Value =
        serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let text = serde_json::to_vec(&value).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((StatusCode::CREATED, text))
}

async fn repeat_request(address: SocketAddr, text: Arc<str>) -> BenchResult<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut bytes = Vec::new();
    for _ in 0..REQUESTS {
        stream.write_all(text.as_bytes()).await?;
        bytes.clear();
        read_response(&mut stream, &mut bytes).await?;
    }
    Ok(())
}

/// Reads a response with a length.
async fn read_response(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> BenchResult<()> {
    loop {
        if stream.read_buf(bytes).await? == 0 {
            return Err("the connection was closed".into());
        }
        let Some(end) = find(bytes, b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&bytes[..end])?.to_ascii_lowercase();
        if !head.starts_with("http/1.1 200 ") && !head.starts_with("http/1.1 201 ") {
            return Err(head.into());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.ok_or("no length")?.parse()?;
        if bytes.len() >= end + 4 + length {
            return Ok(());
        }
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

async fn measure_streams(server: &BenchServer) -> BenchResult<()> {
    let secret = server.create_token("streams".to_owned()).await?;
    let text = request("/v1/events", &secret, "Accept: text/event-stream\r\n");
    let mut clients = JoinSet::new();
    for _ in 0..STREAMS {
        let mut stream = TcpStream::connect(server.address).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.read_u8().await?;
        clients.spawn(read_latencies(stream));
    }
    let session = server.runtime.session("bench").await?;
    session.spawn(TICK.with(())).await?.wait().await?;
    let mut latencies = Vec::new();
    while let Some(client) = clients.join_next().await {
        latencies.append(&mut client??);
    }
    latencies.sort_unstable();
    println!(
        "\n{STREAMS} streams, {EVENTS_PER_SECOND} events per second, {} times:",
        latencies.len()
    );
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)] {
        let index = ((latencies.len() - 1) as f64 * part) as usize;
        println!("- {name}: {:.2} ms", latencies[index].as_secs_f64() * 1_000.0);
    }
    Ok(())
}

/// Returns the time from the commit of each event to its arrival.
async fn read_latencies(mut stream: TcpStream) -> BenchResult<Vec<Duration>> {
    const MARK: &[u8] = b"\"progress\":";
    let mut latencies = Vec::with_capacity(EVENTS);
    let mut bytes = Vec::with_capacity(64 * 1024);
    while latencies.len() < EVENTS {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err("the stream has ended".into());
        }
        let now = Instant::now();
        while let Some(at) = find(&bytes, MARK) {
            let digits = &bytes[at + MARK.len()..];
            let Some(length) = digits.iter().position(|byte| !byte.is_ascii_digit()) else { break };
            let number: usize = std::str::from_utf8(&digits[..length])?.parse()?;
            if number != latencies.len() {
                return Err(format!("event {number} after {} events", latencies.len()).into());
            }
            // The event may arrive before its committer is told.
            let committed_at = COMMITTED[number].get().copied().unwrap_or(now);
            latencies.push(now.saturating_duration_since(committed_at));
            bytes.drain(..at + MARK.len() + length);
        }
    }
    Ok(latencies)
}

/// Measures the memory of idle connections. Their clients have sockets, and no other memory.
async fn measure_memory(server: &BenchServer) -> BenchResult<()> {
    let address = server.address;
    let connect = move |_| Ok(std::net::TcpStream::connect(address)?);
    let open = move |text: &str| -> BenchResult<std::net::TcpStream> {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.write_all(text.as_bytes())?;
        stream.read_exact(&mut [0])?;
        Ok(stream)
    };
    let text = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // The connections are accepted in order, so that an answer to the last one follows them all.
    let before = resident_bytes()?;
    let silent = open_all(IDLE_CONNECTIONS, connect).await?;
    let last = open_all(1, move |_| open(text)).await?;
    print_memory("idle connections that have sent nothing", silent.len(), before)?;
    drop(silent);
    drop(last);
    let before = resident_bytes()?;
    let idle = open_all(IDLE_CONNECTIONS, move |_| open(text)).await?;
    tokio::time::sleep(IDLE_TIME).await;
    print_memory("idle connections after a request", idle.len(), before)?;
    drop(idle);
    let mut texts = Vec::new();
    for number in 0..IDLE_STREAMS.div_ceil(STREAMS_PER_TOKEN) {
        let secret = server.create_token(format!("idle-{number}")).await?;
        texts.push(request("/v1/events", &secret, "Accept: text/event-stream\r\n"));
    }
    let before = resident_bytes()?;
    let open_stream = move |number: usize| open(&texts[number / STREAMS_PER_TOKEN]);
    let streams = open_all(IDLE_STREAMS, open_stream).await?;
    print_memory("streams", streams.len(), before)?;
    Ok(())
}

/// Opens connections without memory of an asynchronous client.
async fn open_all(
    count: usize,
    open: impl Fn(usize) -> BenchResult<std::net::TcpStream> + Send + 'static,
) -> BenchResult<Vec<std::net::TcpStream>> {
    tokio::task::spawn_blocking(move || (0..count).map(open).collect()).await?
}

fn print_memory(name: &str, count: usize, before: u64) -> BenchResult<()> {
    let bytes = resident_bytes()?.saturating_sub(before);
    let each = bytes as f64 / count as f64;
    println!("\n{count} {name}: {} KiB, {:.1} KiB each", bytes / 1024, each / 1024.0);
    Ok(())
}

fn resident_bytes() -> BenchResult<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
