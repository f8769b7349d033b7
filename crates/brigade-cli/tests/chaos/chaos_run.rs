//! One run: starts everything, lets clients and faults work, and collects the evidence.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::checker::{Violation, check};
use crate::database::ReplicatedDatabase;
use crate::evidence::Evidence;
use crate::fault_injector::FaultInjector;
use crate::faults::FaultDeck;
use crate::history::OperationResult;
use crate::http_client::{Asked, HttpRequest};
use crate::node::{ChaosNode, has_faketime};
use crate::proxy::FaultProxy;
use crate::random::ChaosRandom;
use crate::run_directory::RunDirectory;
use crate::settings::ChaosSettings;
use crate::snapshot;
use crate::workload::{ClientHistory, SessionClient, WorkloadEnv, agent_script};

/// The time after the last fault in which all tasks must end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(300);
/// The time in which the shims of ended processes exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The operations of all clients in a second.
const OPERATIONS_PER_SECOND: u32 = 12;

/// Runs the nodes, the clients and the faults of these settings. Returns the violations.
pub(crate) fn run(settings: &ChaosSettings) -> Vec<Violation> {
    println!("chaos: {settings:?}");
    if !has_faketime() {
        println!("chaos: skipped: clock skew (libfaketime is not installed)");
    }
    let directory = RunDirectory::create();
    let effects = directory.path().join("effects");
    fs::create_dir(&effects).expect("the directory is ours");
    let mut injector = start(settings, directory.path(), &effects);
    let env = WorkloadEnv {
        nodes: injector.nodes.iter().map(|node| (node.name.clone(), node.address())).collect(),
        token: injector.token.clone(),
        effects: effects.clone(),
        started_at: injector.started_at,
        pace: Duration::from_secs(settings.sessions as u64) / OPERATIONS_PER_SECOND,
    };
    let histories = run_clients(&mut injector, &env);
    let mut evidence = collect(&mut injector, &env, &directory);
    for history in histories {
        evidence.operations.extend(history.operations);
        evidence.alive_tasks.extend(history.unfinished);
    }
    let violations = check(&evidence);
    print_figures(&injector, &evidence);
    if !violations.is_empty() {
        let place = store_evidence(settings.seed, directory.path(), &evidence);
        println!(
            "chaos: seed {} broke {} times; evidence: {place}",
            settings.seed,
            violations.len()
        );
    }
    violations
}

fn start(settings: &ChaosSettings, directory: &Path, effects: &Path) -> FaultInjector {
    let started_at = Instant::now();
    let database = ReplicatedDatabase::start(directory);
    let script = directory.join("agents.script");
    fs::write(&script, agent_script(effects)).expect("the directory is ours");
    let config = directory.join(".config/brigade");
    fs::create_dir_all(&config).expect("the directory is ours");
    let text = format!(
        "model = \"script:{}\"\n[node]\nlease = \"{}ms\"\n",
        script.display(),
        settings.lease.as_millis()
    );
    fs::write(config.join("config.toml"), text).expect("the directory is ours");
    let mut nodes = Vec::new();
    for number in 0..settings.nodes {
        let proxies = database.addresses().map(FaultProxy::start);
        let url = database.url([proxies[0].port(), proxies[1].port()]);
        nodes.push(ChaosNode::new(&format!("node-{number}"), directory, proxies, url));
    }
    nodes[0].start();
    let token = add_token(&nodes[0]);
    let random = ChaosRandom::new(settings.seed);
    let mut injector = FaultInjector {
        settings: settings.clone(),
        database,
        deck: FaultDeck::new(random, nodes.len(), settings.lease, has_faketime()),
        nodes,
        token,
        takeovers: Vec::new(),
        counts: BTreeMap::new(),
        database_fault_at: started_at,
        started_at,
    };
    for node in &mut injector.nodes {
        node.start();
    }
    injector.wait_until_ready();
    injector
}

/// Makes a token of an operator, which is valid for all nodes.
fn add_token(node: &ChaosNode) -> String {
    let deadline = Instant::now() + FINISH_TIMEOUT;
    loop {
        let output = node.command().args(["token", "add", "chaos"]).output().expect("it is built");
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).trim().to_owned();
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(Instant::now() < deadline, "no token: {errors}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Runs the clients until the faults are over and their tasks have ended. Returns their histories.
fn run_clients(injector: &mut FaultInjector, env: &WorkloadEnv) -> Vec<ClientHistory> {
    let is_over = AtomicBool::new(false);
    let settings = injector.settings.clone();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..settings.sessions)
            .map(|number| {
                let is_over = &is_over;
                let client = SessionClient::new(env, settings.seed, number);
                scope.spawn(move || client.run(is_over, FINISH_TIMEOUT))
            })
            .collect();
        // The clients end if a fault cannot be injected.
        let _guard = SetOnDrop(&is_over);
        injector.run();
        injector.wait_until_ready();
        println!("chaos: {:>6.1} s  no more faults", env.started_at.elapsed().as_secs_f64());
        is_over.store(true, Ordering::Relaxed);
        while clients.iter().any(|client| !client.is_finished()) {
            injector.nodes.iter_mut().for_each(ChaosNode::keep_running);
            std::thread::sleep(Duration::from_millis(100));
        }
        let histories = clients.into_iter().map(|client| client.join().expect("a client failed"));
        histories.collect()
    })
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the tasks that no client knows, and reads the evidence.
fn collect(injector: &mut FaultInjector, env: &WorkloadEnv, directory: &RunDirectory) -> Evidence {
    let alive_tasks = end_tasks(injector, env);
    let (feed, lanes) = read_feed(injector);
    let database = &injector.database;
    let mut evidence = Evidence {
        sessions: snapshot::read_sessions(database),
        lanes,
        events: snapshot::read_events(database, &feed),
        feed: feed.into_iter().map(|(place, _)| place).collect(),
        takeovers: injector.takeovers.clone(),
        alive_tasks,
        ..Evidence::default()
    };
    for node in &mut injector.nodes {
        node.stop();
        evidence.defects.extend(node.read_defects());
    }
    evidence.effects = snapshot::read_effects(&env.effects);
    evidence.stray_processes = find_strays(directory);
    evidence
}

/// Stops the tasks that are alive, and waits for their end. Returns those that do not end.
fn end_tasks(injector: &mut FaultInjector, env: &WorkloadEnv) -> Vec<String> {
    let sql = "SELECT s.name, t.no, t.residency FROM brigade.tasks t JOIN brigade.sessions s \
        ON s.key = t.session WHERE t.residency < 2";
    let deadline = Instant::now() + FINISH_TIMEOUT;
    loop {
        let alive = snapshot::read_rows(&injector.database, sql).expect("the database answers");
        if alive.is_empty() || Instant::now() >= deadline {
            return alive.into_iter().map(|row| row.join(" ")).collect();
        }
        let address = env.nodes[0].1;
        let listed = HttpRequest::get("/v1/tasks?limit=1000").send(address, &env.token);
        if let Asked::Answered { status: 200, body } = listed {
            for task in body["items"].as_array().into_iter().flatten() {
                let id = task["id"].as_str().unwrap_or_default();
                let stop = HttpRequest::post(&format!("/v1/tasks/{id}/stop"), json!({}));
                stop.send(address, &env.token);
            }
        }
        injector.nodes.iter_mut().for_each(ChaosNode::keep_running);
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Reads the feed of all events, and the lanes at the same moment.
fn read_feed(
    injector: &FaultInjector,
) -> (
    Vec<(crate::evidence::EventPlace, crate::evidence::EventFact)>,
    Vec<crate::evidence::StoredLane>,
) {
    let deadline = Instant::now() + FINISH_TIMEOUT;
    loop {
        let before = snapshot::read_lanes(&injector.database);
        let mut events = injector.nodes[0].command();
        let output = events.args(["events", "--all", "--json"]).output().expect("it is built");
        let after = snapshot::read_lanes(&injector.database);
        if output.status.success() && before == after {
            let text = String::from_utf8(output.stdout).expect("events are text");
            return (snapshot::parse_feed(&text), after);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(Instant::now() < deadline, "the feed does not end: {errors}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the processes of tasks that still run without a node.
fn find_strays(directory: &RunDirectory) -> Vec<String> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        let processes = directory.processes().into_iter();
        let strays = processes.filter(|(_, arguments)| !arguments.contains("postgres"));
        let strays: Vec<String> = strays.map(|(pid, line)| format!("{pid} {line}")).collect();
        if strays.is_empty() || Instant::now() >= deadline {
            return strays;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn print_figures(injector: &FaultInjector, evidence: &Evidence) {
    let elapsed = injector.started_at.elapsed().as_secs();
    let count = |is_wanted: fn(&OperationResult) -> bool| {
        evidence.operations.iter().filter(|one| is_wanted(&one.result)).count()
    };
    let moves: u64 = evidence.sessions.iter().map(|session| session.epoch - 1).sum();
    let cuts: u64 =
        injector.nodes.iter().flat_map(|node| &node.proxies).map(FaultProxy::cuts).sum();
    let worst = evidence.takeovers.iter().filter_map(|one| one.took_ms).max();
    let total: u64 = injector.counts.values().sum();
    let own_ends: u64 = injector.nodes.iter().map(|node| node.own_ends).sum();
    println!("chaos: figures of seed {} after {elapsed} s", injector.settings.seed);
    println!("  faults: {total} ({:?})", injector.counts);
    println!(
        "  operations: {} ({} acknowledged, {} failed, {} unknown)",
        evidence.operations.len(),
        count(|result| matches!(result, OperationResult::Ok(_))),
        count(|result| matches!(result, OperationResult::Failed { .. })),
        count(|result| *result == OperationResult::Unknown)
    );
    println!(
        "  stored: {} sessions, {} changes of their owners, {} lanes, {} events; {} lines of processes",
        evidence.sessions.len(),
        moves,
        evidence.lanes.len(),
        evidence.events.len(),
        evidence.effects.len()
    );
    println!("  connections cut within a request: {cuts}; starts without a database: {own_ends}");
    println!(
        "  takeovers: {}, longest {worst:?} ms with a lease of {} ms",
        evidence.takeovers.len(),
        injector.settings.lease.as_millis()
    );
}

/// Copies logs and histories to a place that outlives the run. Returns it.
fn store_evidence(seed: u64, directory: &Path, evidence: &Evidence) -> String {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{seed}"));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("the target directory is ours");
    let files = fs::read_dir(directory).expect("it exists").map_while(Result::ok);
    for file in files.filter(|file| file.path().extension().is_some_and(|kind| kind == "log")) {
        let _ = fs::copy(file.path(), place.join(file.file_name()));
    }
    for name in ["db-a", "db-b"] {
        let _ = fs::copy(directory.join(name).join("log"), place.join(format!("{name}.log")));
    }
    let operations: String = evidence.operations.iter().map(|one| format!("{one:?}\n")).collect();
    let events: String = evidence.events.iter().map(|event| format!("{event:?}\n")).collect();
    let effects: String = evidence.effects.iter().map(|effect| format!("{effect:?}\n")).collect();
    for (name, text) in [("operations", operations), ("events", events), ("effects", effects)] {
        fs::write(place.join(name), text).expect("the target directory is ours");
    }
    place.display().to_string()
}
