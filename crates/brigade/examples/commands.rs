//! Runs twenty processes of mixed length in the background.
//!
//! Kill this program with -9 and run it again. It adopts the running processes, has the true exit
//! code of the ended ones, and runs none twice.
//!
//! `cargo run --release -p brigade --example commands -- DIR`

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brigade::{
    EnvValue, NewTask, Outcome, ProcessOptions, ProcessReport, ProcessTask, Runtime, SqliteStore,
    TaskHandle,
};

const COMMANDS: u32 = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("brigade-commands"), PathBuf::from);
    fs::create_dir_all(dir.join("runs"))?;
    let dir = dir.canonicalize()?;
    let runtime = Runtime::builder()
        .store(SqliteStore::open(dir.join("brigade.db"))?)
        .processes(ProcessOptions::new(&dir))
        .start()
        .await?;
    let session = runtime.session("commands").await?;
    let mut tasks = Vec::new();
    for number in 0..COMMANDS {
        let task = session.spawn(command(&dir, number)).await?;
        println!("{} {}", task.address(), if task.existed() { "found again" } else { "started" });
        tasks.push(task);
    }
    for (number, task) in tasks.iter().enumerate() {
        println!("command {number}: {}", wait_for_result(task).await?);
    }
    println!("all ended");
    Ok(())
}

/// Returns a process that records its run, sleeps, prints a line and exits with its own code. Every
/// fourth process leaves a child behind that ignores SIGTERM.
fn command(dir: &Path, number: u32) -> NewTask<ProcessTask> {
    let stubborn = match number % 4 {
        0 => "(trap '' TERM; sleep 60) & ",
        _ => "",
    };
    let tenths = number * 7 % 23;
    let code = number % 5;
    let text = format!(
        "echo $$ >> runs/{number}; {stubborn}sleep {}.{}; echo done {number}; exit {code}",
        tenths / 10,
        tenths % 10
    );
    NewTask::shell(&text)
        .key(&format!("command {number}"))
        .cwd(dir)
        .env("EXAMPLE_DIR", EnvValue::Text(dir.to_string_lossy().into()))
        .grace(Duration::from_millis(200))
}

async fn wait_for_result<T>(task: &TaskHandle<T>) -> Result<String, Box<dyn Error>> {
    let result = task.wait().await?;
    let report: Option<ProcessReport> = match &*result.outcome {
        Outcome::Succeeded { result } => Some(result.decode()?),
        Outcome::Failed(failed) => failed.partial.as_ref().map(|json| json.decode()).transpose()?,
        Outcome::Cancelled(_) => None,
    };
    let output = report.map(|report| report.tail).unwrap_or_default();
    Ok(format!("{}, printed {:?}", result.outcome, output.trim_end()))
}
