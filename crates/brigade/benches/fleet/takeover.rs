//! The time until the sessions of a killed node run elsewhere.

use std::time::{Duration, Instant};

use crate::BenchResult;
use crate::database::BenchDatabase;
use crate::node_process::BenchProcess;

/// The default lease of a node.
const LEASE: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) async fn measure(count: usize) -> BenchResult<()> {
    println!("\n## Takeover of {count} sessions, each with a running task\n");
    let database = BenchDatabase::start().await?;
    database.create_schema("takeover").await?;
    let url = database.url();
    let mut victim = BenchProcess::start_node(&url, "takeover", "victim").await?;
    let mut others = Vec::new();
    for name in ["one", "two"] {
        others.push(BenchProcess::start_node(&url, "takeover", name).await?);
    }
    victim.ask(&format!("hold {count}")).await?;
    // The last renewal is up to a quarter of the lease old.
    let killed_at = Instant::now();
    victim.kill().await?;
    let closed = "SELECT count(*) FROM takeover.nodes WHERE NOT open";
    let owned = "SELECT count(*) FROM takeover.sessions AS s JOIN takeover.lanes AS l USING (lane) \
                 WHERE l.open";
    while database.number(closed).await? < 1.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        check(killed_at)?;
    }
    let closed_after = killed_at.elapsed();
    while database.number(owned).await? < count as f64 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        check(killed_at)?;
    }
    let owned_after = killed_at.elapsed();
    let mut parts;
    loop {
        parts = Vec::new();
        for node in &mut others {
            parts.push(node.ask("started").await?.parse::<usize>()?);
        }
        if parts.iter().sum::<usize>() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        check(killed_at)?;
    }
    println!("| after the kill | time | of the lease ({LEASE:?}) |\n|---|---|---|");
    for (what, after) in [
        ("the node is closed", closed_after),
        ("all sessions have a new owner", owned_after),
        ("all tasks run again", killed_at.elapsed()),
    ] {
        let ratio = after.as_secs_f64() / LEASE.as_secs_f64();
        println!("| {what} | {:.1} s | {ratio:.2} |", after.as_secs_f64());
    }
    println!("\nthe two other nodes run {parts:?} tasks");
    for node in others {
        node.kill().await?;
    }
    Ok(())
}

fn check(killed_at: Instant) -> BenchResult<()> {
    match killed_at.elapsed() > TIMEOUT {
        true => Err("the sessions were not taken over".into()),
        false => Ok(()),
    }
}
