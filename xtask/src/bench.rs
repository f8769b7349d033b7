//! `cargo xtask bench`: measures the same work of Brigade and of its baselines, and prints the
//! ratios.
//!
//! Absolute times depend on the machine and on its other load; ratios depend less.

use crate::cargo::{cargo_command, run_command};
use std::collections::BTreeMap;

/// The times of one benchmark, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BenchTime {
    best: f64,
    median: f64,
}

/// The times of all benchmarks, by name.
type BenchTimes = BTreeMap<String, BenchTime>;

/// Measures all benchmarks, or those whose name contains the filter.
pub(crate) fn run(filter: Option<&str>) -> Result<(), String> {
    let baseline = measure("baseline", filter)?;
    let product = measure("product", filter)?;
    println!("\n| benchmark | Brigade (best) | baseline (best) | ratio | median ratio |");
    println!("|---|---|---|---|---|");
    for (name, time) in &product {
        match baseline.get(name) {
            Some(base) => println!(
                "| {name} | {} | {} | {:.1} | {:.1} |",
                render_time(time.best),
                render_time(base.best),
                time.best / base.best,
                time.median / base.median
            ),
            None => println!("| {name} | {} | | | |", render_time(time.best)),
        }
    }
    match filter {
        None => measure_memory(None)?,
        Some("agents") => measure_memory(Some("agents"))?,
        Some(_) => {}
    }
    if filter.is_none_or(|filter| filter == "processes") {
        measure_processes()?;
    }
    if filter.is_none_or(|filter| filter == "http") {
        measure_http()?;
    }
    if filter.is_none_or(|filter| filter == "load") {
        measure_load()?;
    }
    if filter.is_none_or(|filter| filter == "fleet") {
        measure_fleet()?;
    }
    Ok(())
}

fn measure(bench: &str, filter: Option<&str>) -> Result<BenchTimes, String> {
    println!("measuring {bench} ...");
    let mut command = cargo_command();
    command.args(["bench", "--quiet", "--package", "brigade", "--bench", bench, "--"]);
    command.args(filter);
    let output = command.output().map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    Ok(parse_divan_table(&text))
}

/// Measures the memory of everything, or of one kind of task.
fn measure_memory(figure: Option<&str>) -> Result<(), String> {
    let mut footprint = cargo_command();
    footprint.args(["run", "--quiet", "--release", "--package", "brigade"]);
    footprint.args(["--example", "footprint", "--"]).args(figure);
    run_command(&mut footprint).map_err(|error| format!("measuring memory: {error}"))
}

/// Measures processes. The benchmark alternates with its baseline and prints its own table.
fn measure_processes() -> Result<(), String> {
    let mut bench = cargo_command();
    bench.args(["bench", "--quiet", "--package", "brigade", "--bench", "processes"]);
    run_command(&mut bench).map_err(|error| format!("measuring processes: {error}"))
}

/// Measures the HTTP API. The benchmark prints its own tables, with a bare handler as the baseline.
fn measure_http() -> Result<(), String> {
    let mut bench = cargo_command();
    bench.args(["bench", "--quiet", "--package", "brigade-server", "--bench", "http"]);
    run_command(&mut bench).map_err(|error| format!("measuring HTTP: {error}"))
}

/// Measures bad conditions: a slow and a failing store, a burst of requests, a large neighbour. The
/// benchmark prints its own table.
fn measure_load() -> Result<(), String> {
    let mut bench = cargo_command();
    bench.args(["bench", "--quiet", "--package", "brigade", "--bench", "load"]);
    run_command(&mut bench).map_err(|error| format!("measuring load: {error}"))
}

/// Measures a fleet on a private PostgreSQL server. The benchmark starts nodes as processes, alternates them with
/// bare writers, and prints its own tables.
fn measure_fleet() -> Result<(), String> {
    let mut bench = cargo_command();
    bench.args(["bench", "--quiet", "--package", "brigade", "--bench", "fleet"]);
    run_command(&mut bench).map_err(|error| format!("measuring a fleet: {error}"))
}

/// Reads divan's table: rows of a tree, with the fastest time first and the median third.
fn parse_divan_table(table: &str) -> BenchTimes {
    let mut times = BenchTimes::new();
    let mut group = String::new();
    for line in table.lines() {
        let plain = line.trim_start_matches(['│', ' ']);
        let Some(row) = plain.strip_prefix(['├', '╰']) else { continue };
        let nested = line.starts_with(['│', ' ']);
        let row = row.trim_start_matches(['─', ' ']);
        let mut cells = row.split('│').map(str::trim);
        let Some(first) = cells.next() else { continue };
        let mut words = first.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let best: Vec<&str> = words.collect();
        if best.is_empty() {
            group = name;
            continue;
        }
        let median = cells.nth(1).unwrap_or_default();
        if let (Some(best), Some(median)) = (parse_nanos(&best.join(" ")), parse_nanos(median)) {
            let key = if nested { format!("{group}/{name}") } else { name };
            times.insert(key, BenchTime { best, median });
        }
    }
    times
}

fn parse_nanos(cell: &str) -> Option<f64> {
    let (number, unit) = cell.split_once(' ')?;
    let scale = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|value| value * scale)
}

fn render_time(nanos: f64) -> String {
    match nanos {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divan_tables_are_read() {
        let table = "\
product                  fastest       │ slowest       │ median        │ mean          │ samples │ iters
├─ get                   125 ns        │ 8.526 µs      │ 165.3 ns      │ 310.2 ns      │ 100     │ 100000
├─ spawn                               │               │               │               │         │
│  ├─ 100                1.376 ms      │ 16.76 ms      │ 1.488 ms      │ 4.554 ms      │ 5       │ 5
│  │                     72.64 Kitem/s │ 5.963 Kitem/s │ 67.16 Kitem/s │ 21.95 Kitem/s │         │
╰─ stop                  2 s           │ 3 s           │ 2.5 s         │ 2 s           │ 5       │ 5
";
        let times = parse_divan_table(table);
        assert_eq!(times["get"], BenchTime { best: 125.0, median: 165.3 });
        assert_eq!(times["spawn/100"], BenchTime { best: 1.376e6, median: 1.488e6 });
        assert_eq!(times["stop"], BenchTime { best: 2e9, median: 2.5e9 });
        assert_eq!(times.len(), 3);
    }
}
