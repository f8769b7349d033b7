//! Measures a fleet on PostgreSQL, and prints tables. Nodes and bare writers are processes of their own:
//! this program starts itself again. The server is a private one that syncs each commit to the disk.
//!
//! `cargo xtask bench fleet`, or `cargo bench -p brigade --bench fleet -- MEASUREMENT [COUNT]`.
//! The variable `BRIGADE_BENCH_LOOPS` is the number of loops of each node, and `BRIGADE_BENCH_DIR` a
//! directory on the disk to measure.
//!
//! - `throughput`: tasks per second beside bare writers of the same rows, in alternating rounds.
//! - `latency`: from a command on one node to its event, when another node owns the session.
//! - `takeover`: the sessions of a killed node.
//! - `rest`: the rows and transactions of nodes beside many sessions at rest.

mod bare_writer;
mod database;
mod latency;
mod node_process;
mod rest;
mod takeover;
mod throughput;

use std::error::Error;

type BenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

const MEASUREMENTS: [&str; 4] = ["throughput", "latency", "takeover", "rest"];

fn main() -> BenchResult<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match words[..] {
        // Cargo runs every benchmark with `--list`.
        ["--list"] => Ok(()),
        ["node", url, schema, name, loops] => {
            tokio.block_on(node_process::run(url, schema, name, loops.parse()?))
        }
        ["bare", url, schema, rows] => tokio.block_on(bare_writer::run(url, schema, rows)),
        [measurement] => tokio.block_on(measure(measurement, None)),
        [measurement, count] => tokio.block_on(measure(measurement, Some(count.parse()?))),
        _ => MEASUREMENTS.iter().try_for_each(|one| tokio.block_on(measure(one, None))),
    }
}

async fn measure(measurement: &str, count: Option<usize>) -> BenchResult<()> {
    match measurement {
        "throughput" => throughput::measure(count.unwrap_or(3)).await,
        "latency" => latency::measure(count.unwrap_or(2_000)).await,
        "takeover" => takeover::measure(count.unwrap_or(10_000)).await,
        "rest" => rest::measure(count.unwrap_or(1_000_000)).await,
        other => Err(format!("unknown measurement {other}; there are {MEASUREMENTS:?}").into()),
    }
}

/// Returns the number of loops of each node: by default that of a runtime on PostgreSQL.
fn loops() -> BenchResult<usize> {
    match std::env::var("BRIGADE_BENCH_LOOPS") {
        Ok(loops) => Ok(loops.parse()?),
        Err(_) => Ok(2),
    }
}

/// Returns a percentile of sorted values.
fn percentile<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}

/// Returns the median of values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    percentile(&values, 50)
}
