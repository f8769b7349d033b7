//! The time from a command on one node to its event there, when another node owns the session.

use crate::BenchResult;
use crate::database::BenchDatabase;
use crate::node_process::BenchProcess;

pub(crate) async fn measure(count: usize) -> BenchResult<()> {
    println!("\n## Latency: {count} commands, one after the other\n");
    let database = BenchDatabase::start().await?;
    database.create_schema("latency").await?;
    let url = database.url();
    let mut owner = BenchProcess::start_node(&url, "latency", "owner").await?;
    let mut other = BenchProcess::start_node(&url, "latency", "other").await?;
    owner.ask("hold 1").await?;
    println!("| command on | p50 | p99 | max | its event there: p50 | p99 | max |");
    println!("|---|---|---|---|---|---|---|");
    let command = format!("latency held-0 {count}");
    for (name, node) in [("the owner", &mut owner), ("another node", &mut other)] {
        let answer = node.ask(&command).await?;
        let mut cells = String::new();
        for micros in answer.split(' ') {
            cells += &format!(" {:.1} ms |", micros.parse::<f64>()? / 1_000.0);
        }
        println!("| {name} |{cells}");
    }
    other.end().await?;
    owner.kill().await
}
