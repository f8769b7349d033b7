//! The cost of sessions at rest: rows, transactions and bytes, beside a database without any.

use std::time::Duration;

use crate::BenchResult;
use crate::database::BenchDatabase;
use crate::node_process::BenchProcess;

/// The time in which rows and transactions are counted.
const DURATION: Duration = Duration::from_secs(30);
const NODES: usize = 3;

/// The work of nodes that have nothing to do.
#[derive(Debug)]
struct IdleWork {
    transactions: f64,
    log_bytes: f64,
    /// The rows that were written, by table.
    rows: String,
    claim_micros: f64,
}

pub(crate) async fn measure(count: usize) -> BenchResult<()> {
    println!("\n## {count} sessions at rest, {NODES} nodes, {DURATION:?}\n");
    let database = BenchDatabase::start().await?;
    println!(
        "| sessions at rest | transactions/s | rows written | WAL/s | a claim |\n|---|---|---|---|---|"
    );
    for sessions in [0, count] {
        let schema = format!("rest_{sessions}");
        database.create_schema(&schema).await?;
        prepare(&database, &schema, sessions).await?;
        let work = measure_idle(&database, &schema).await?;
        let seconds = DURATION.as_secs_f64();
        println!(
            "| {sessions} | {:.1} | {} | {:.1} kB | {:.2} ms |",
            work.transactions / seconds,
            work.rows,
            work.log_bytes / seconds / 1_000.0,
            work.claim_micros / 1_000.0
        );
        if sessions > 0 {
            let per_session = |bytes: f64| bytes / sessions as f64;
            println!(
                "\nper session at rest with one task that waits: {:.0} B in sessions, {:.0} B in tasks, with \
                 indexes",
                per_session(database.table_bytes(&schema, "sessions").await?),
                per_session(database.table_bytes(&schema, "tasks").await?)
            );
        }
    }
    Ok(())
}

/// Stores a session with a task, and copies its rows. Nobody reads the copies while they rest.
async fn prepare(database: &BenchDatabase, schema: &str, sessions: usize) -> BenchResult<()> {
    if sessions == 0 {
        return Ok(());
    }
    let mut node = BenchProcess::start_node(&database.url(), schema, "first").await?;
    node.ask("hold 1").await?;
    node.kill().await?;
    let sql = "
        UPDATE {schema}.nodes SET open = false, closed_at = clock_timestamp();
        UPDATE {schema}.lanes SET open = false;
        UPDATE {schema}.sessions SET lane = NULL;
        INSERT INTO {schema}.sessions(id, name, state, epoch, seq, last_lane, last_pos, opened_at, body)
            SELECT gen_random_uuid(), 'rest ' || n, 0, s.epoch, s.seq, s.last_lane, s.last_pos, s.opened_at, s.body
            FROM {schema}.sessions AS s, generate_series(2, {count}) AS n;
        INSERT INTO {schema}.tasks(session, no, owner, owner_run, residency, body)
            SELECT s.key, t.no, t.owner, t.owner_run, t.residency, t.body
            FROM {schema}.tasks AS t, {schema}.sessions AS s WHERE s.key <> t.session;
        ANALYZE {schema}.sessions; ANALYZE {schema}.tasks;";
    let sql = sql.replace("{schema}", schema).replace("{count}", &sessions.to_string());
    database.client.batch_execute(&sql).await?;
    database.checkpoint().await
}

async fn measure_idle(database: &BenchDatabase, schema: &str) -> BenchResult<IdleWork> {
    let url = database.url();
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(BenchProcess::start_node(&url, schema, &format!("node-{number}")).await?);
    }
    // The joins are over, and a server process reports its counters with a delay.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let transactions = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let before = database.counters(schema).await?;
    let transactions_before = database.number(transactions).await?;
    let log_before = database.log_bytes().await?;
    tokio::time::sleep(DURATION).await;
    let transactions = database.number(transactions).await? - transactions_before;
    let log_bytes = database.log_bytes().await? - log_before;
    let after = database.counters(schema).await?;
    let rows = after.since(&before);
    let rows: Vec<String> = rows.iter().map(|(table, rows)| format!("{table} {rows}")).collect();
    let claim_micros = measure_claims(database, schema).await?;
    for node in nodes {
        node.end().await?;
    }
    Ok(IdleWork { transactions, log_bytes, rows: rows.join(", "), claim_micros })
}

/// Returns the mean time of a claim that finds nothing.
async fn measure_claims(database: &BenchDatabase, schema: &str) -> BenchResult<f64> {
    const CLAIMS: u32 = 100;
    let lane = format!("SELECT min(lane) FROM {schema}.lanes WHERE open AND node <> 0");
    let lane = database.number(&lane).await?;
    let sql = format!(
        "SELECT count(c.*) FROM {schema}.lanes AS l, {schema}.claim_sessions(l.node, l.lane, 0, 100, '{{}}') \
         AS c WHERE l.lane = {lane}"
    );
    let began_at = std::time::Instant::now();
    for _ in 0..CLAIMS {
        database.number(&sql).await?;
    }
    Ok(began_at.elapsed().as_secs_f64() * 1e6 / f64::from(CLAIMS))
}
