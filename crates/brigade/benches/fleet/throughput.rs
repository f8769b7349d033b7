//! Tasks per second, from the spawn to the stored end, beside bare writers of the same rows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::bare_writer::CommitRows;
use crate::database::BenchDatabase;
use crate::node_process::BenchProcess;
use crate::{BenchResult, loops, median};

/// The time of one measurement. Its middle half counts.
const DURATION: Duration = Duration::from_secs(8);
const NODES: [usize; 3] = [1, 2, 3];

/// The waits of commits: for this disk alone, and 5 ms more, as for a disk or a standby far away. Unlike
/// this disk, the wait takes no processor.
const COMMIT_WAITS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(5)];

/// The result of nodes or bare writers.
#[derive(Clone, Copy, Debug)]
struct TaskRate {
    per_second: f64,
    log_bytes_per_task: f64,
    /// The processor time of the nodes or writers, and of the server, as a number of cores.
    client_cores: f64,
    server_cores: f64,
}

/// The sizes of the rows of a round.
#[derive(Clone, Copy, Debug)]
struct RoundSizes {
    tasks_per_commit: f64,
    bytes_per_task: f64,
    bytes_per_event: f64,
    events_per_task: f64,
    connections_per_node: f64,
}

pub(crate) async fn measure(rounds: usize) -> BenchResult<()> {
    println!("\n## Throughput: {rounds} alternating rounds of {DURATION:?}, durable\n");
    let database = BenchDatabase::start().await?;
    for wait in COMMIT_WAITS {
        println!("\nEach commit waits {wait:?} longer than for the disk:\n");
        database.set_commit_wait(wait).await?;
        measure_rounds(&database, rounds).await?;
    }
    Ok(())
}

async fn measure_rounds(database: &BenchDatabase, rounds: usize) -> BenchResult<()> {
    let mut results = NODES.map(|_| Vec::new());
    for round in 0..rounds {
        for (result, nodes) in results.iter_mut().zip(NODES) {
            let schema = format!("nodes_{round}_{nodes}");
            let (rate, rows, sizes) = measure_nodes(database, &schema, nodes).await?;
            let schema = format!("bare_{round}_{nodes}");
            let bare = measure_bare(database, &schema, nodes, rows).await?;
            eprintln!("round {round}, {nodes} nodes: {rate:.0?}, bare {bare:.0?}, {sizes:.1?}");
            result.push((rate, bare, sizes));
        }
    }
    print(&results);
    Ok(())
}

fn print(results: &[Vec<(TaskRate, TaskRate, RoundSizes)>; 3]) {
    println!(
        "| nodes | tasks/s | bare rows, as tasks/s | of bare | of one node | tasks per commit | WAL per task \
         | bare WAL | cores: nodes + server | cores: bare writers + server |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let by = |nodes: usize, value: fn(&(TaskRate, TaskRate, RoundSizes)) -> f64| {
        median(results[nodes].iter().map(value).collect())
    };
    for (place, nodes) in NODES.into_iter().enumerate() {
        // Ratios of the same round: the machine may have other load in another one.
        let of_one = results[place]
            .iter()
            .zip(&results[0])
            .map(|(it, one)| it.0.per_second / one.0.per_second);
        println!(
            "| {nodes} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} | {:.0} B | {:.0} B | {:.2} + {:.2} | {:.2} + {:.2} |",
            by(place, |it| it.0.per_second),
            by(place, |it| it.1.per_second),
            by(place, |it| it.0.per_second / it.1.per_second),
            median(of_one.collect()),
            by(place, |it| it.2.tasks_per_commit),
            by(place, |it| it.0.log_bytes_per_task),
            by(place, |it| it.1.log_bytes_per_task),
            by(place, |it| it.0.client_cores),
            by(place, |it| it.0.server_cores),
            by(place, |it| it.1.client_cores),
            by(place, |it| it.1.server_cores),
        );
    }
    println!(
        "\nper task: {:.1} events, {:.0} B of tables and indexes; per event: {:.0} B; connections of a node \
         under load: {:.0}",
        by(0, |it| it.2.events_per_task),
        by(0, |it| it.2.bytes_per_task),
        by(0, |it| it.2.bytes_per_event),
        by(0, |it| it.2.connections_per_node),
    );
}

async fn measure_nodes(
    database: &BenchDatabase,
    schema: &str,
    nodes: usize,
) -> BenchResult<(TaskRate, CommitRows, RoundSizes)> {
    database.create_schema(schema).await?;
    let url = database.url();
    let mut processes = Vec::new();
    for number in 0..nodes {
        let node = BenchProcess::start_node(&url, schema, &format!("node-{number}")).await?;
        processes.push(node);
    }
    database.checkpoint().await?;
    let log_before = database.log_bytes().await?;
    let cpu = CpuMeter::start(database, &processes).await?;
    let command = format!("tasks {}", DURATION.as_millis());
    let running = try_join_all(processes.iter_mut().map(|process| process.ask(&command)));
    let looking = async {
        tokio::time::sleep(DURATION / 2).await;
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'brigade'";
        database.number(sql).await
    };
    let (answers, connections) = tokio::join!(running, looking);
    let (answers, connections) = (answers?, connections?);
    let (client_cores, server_cores) = cpu.finish(database, &processes).await?;
    let log_bytes = database.log_bytes().await? - log_before;
    for process in processes {
        process.end().await?;
    }
    let number = |sql: &str| {
        let sql = sql.replace("{schema}", schema);
        async move { database.number(&sql).await }
    };
    let tasks = number("SELECT count(*) FROM {schema}.tasks").await?;
    let events = number("SELECT count(*) FROM {schema}.events").await?;
    let others = number(
        "SELECT (SELECT count(*) FROM {schema}.journal) + (SELECT count(*) FROM {schema}.messages) \
             + (SELECT count(*) FROM {schema}.runs) + (SELECT count(*) FROM {schema}.key_marks)",
    )
    .await?;
    if others > 0.0 {
        return Err("tasks write rows that bare writers do not".into());
    }
    let counters = database.counters(schema).await?;
    // Each commit moves the head of its lane.
    let commits = counters.updated("lanes");
    let rows = CommitRows {
        sessions: counters.updated("sessions") / commits,
        new_tasks: tasks / commits,
        changed_tasks: counters.updated("tasks") / commits,
        events: events / commits,
        spans: counters.inserted("event_spans") / commits,
        session_bytes: number("SELECT avg(octet_length(body)) FROM {schema}.sessions").await?,
        task_bytes: number("SELECT avg(octet_length(body)) FROM {schema}.tasks").await?,
        event_bytes: number("SELECT avg(octet_length(body)) FROM {schema}.events").await?,
    };
    let sizes = RoundSizes {
        tasks_per_commit: rows.new_tasks,
        bytes_per_task: database.table_bytes(schema, "tasks").await? / tasks,
        bytes_per_event: (database.table_bytes(schema, "events").await?
            + database.table_bytes(schema, "event_spans").await?)
            / events,
        events_per_task: events / tasks,
        connections_per_node: connections / nodes as f64,
    };
    let per_second = sum_rates(&answers)?;
    let log_bytes_per_task = log_bytes / tasks;
    let rate = TaskRate { per_second, log_bytes_per_task, client_cores, server_cores };
    database.drop_schema(schema).await?;
    Ok((rate, rows, sizes))
}

async fn measure_bare(
    database: &BenchDatabase,
    schema: &str,
    nodes: usize,
    rows: CommitRows,
) -> BenchResult<TaskRate> {
    database.create_schema(schema).await?;
    let mut processes = Vec::new();
    // One writer for each loop.
    for _ in 0..nodes * loops()? {
        let words = ["bare", &database.url(), schema, &rows.to_words()];
        processes.push(BenchProcess::start(&words).await?);
    }
    database.checkpoint().await?;
    let log_before = database.log_bytes().await?;
    let cpu = CpuMeter::start(database, &processes).await?;
    let command = DURATION.as_millis().to_string();
    let running = try_join_all(processes.iter_mut().map(|process| process.ask(&command)));
    let answers = running.await?;
    let (client_cores, server_cores) = cpu.finish(database, &processes).await?;
    let log_bytes = database.log_bytes().await? - log_before;
    for process in processes {
        process.end().await?;
    }
    let tasks = database.number(&format!("SELECT count(*) FROM {schema}.tasks")).await?;
    database.drop_schema(schema).await?;
    let per_second = sum_rates(&answers)?;
    let log_bytes_per_task = log_bytes / tasks;
    Ok(TaskRate { per_second, log_bytes_per_task, client_cores, server_cores })
}

/// Measures processor time from its start.
struct CpuMeter {
    started_at: Instant,
    /// In ticks of the kernel, by process.
    clients: HashMap<u32, f64>,
    server: HashMap<u32, f64>,
}

impl CpuMeter {
    async fn start(database: &BenchDatabase, clients: &[BenchProcess]) -> BenchResult<Self> {
        let (clients, server) = (client_ticks(clients)?, server_ticks(database).await?);
        Ok(Self { started_at: Instant::now(), clients, server })
    }

    /// Returns the number of cores that the clients and the server have used.
    async fn finish(
        self,
        database: &BenchDatabase,
        clients: &[BenchProcess],
    ) -> BenchResult<(f64, f64)> {
        // The kernel counts 100 ticks a second for programs, whatever its own clock is.
        let ticks = self.started_at.elapsed().as_secs_f64() * 100.0;
        let since = |now: HashMap<u32, f64>, before: &HashMap<u32, f64>| {
            let used = now.iter().map(|(pid, now)| now - before.get(pid).copied().unwrap_or(0.0));
            used.sum::<f64>() / ticks
        };
        let server = server_ticks(database).await?;
        Ok((since(client_ticks(clients)?, &self.clients), since(server, &self.server)))
    }
}

fn client_ticks(clients: &[BenchProcess]) -> BenchResult<HashMap<u32, f64>> {
    clients.iter().filter_map(BenchProcess::pid).map(|pid| Ok((pid, cpu_ticks(pid)?))).collect()
}

async fn server_ticks(database: &BenchDatabase) -> BenchResult<HashMap<u32, f64>> {
    let pids = database.server_processes().await?;
    // A connection can end meanwhile.
    Ok(pids.into_iter().filter_map(|pid| Some((pid, cpu_ticks(pid).ok()?))).collect())
}

/// Returns the processor time of a process, in user mode and in the kernel.
fn cpu_ticks(pid: u32) -> BenchResult<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("an unknown format")?;
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|ticks| Ok(ticks.parse::<f64>()?)).sum()
}

fn sum_rates(answers: &[String]) -> BenchResult<f64> {
    let mut sum = 0.0;
    for answer in answers {
        let (count, seconds) = answer.split_once(' ').ok_or("an answer without a time")?;
        sum += count.parse::<f64>()? / seconds.parse::<f64>()?;
    }
    Ok(sum)
}
