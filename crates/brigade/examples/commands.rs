//! Twenty commands of mixed length, in the background. Kill this program with -9 and run it again:
//! what still runs is followed, what ended meanwhile has its true exit code, nothing runs twice.
//!
//! `cargo run --release -p brigade --example commands -- FOLDER`

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brigade::{
    EnvValue, NewTask, Outcome, ProcessOptions, ProcessReport, Runtime, SqliteStore, TaskHandle,
};

const COMMANDS: u32 = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("brigade-commands"), PathBuf::from);
    fs::create_dir_all(folder.join("runs"))?;
    let folder = folder.canonicalize()?;
    let runtime = Runtime::builder()
        .store(SqliteStore::open(folder.join("brigade.db"), Default::default())?)
        .processes(ProcessOptions::new(&folder))
        .start()
        .await?;
    let session = runtime.session("commands").await?;
    let mut tasks = Vec::new();
    for number in 0..COMMANDS {
        let task = session.spawn(command(&folder, number)).await?;
        println!("{} {}", task.address(), if task.existed() { "found again" } else { "started" });
        tasks.push(task);
    }
    for (number, task) in tasks.iter().enumerate() {
        println!("command {number}: {}", ending(task).await?);
    }
    println!("all ended");
    Ok(())
}

/// Each notes that it ran, takes its time, says something and exits with its own code. Every fourth
/// leaves a child behind that does not want to end.
fn command(folder: &Path, number: u32) -> NewTask {
    let stubborn = match number % 4 {
        0 => "(trap '' TERM; sleep 60) & ",
        _ => "",
    };
    let (tenths, code) = (number * 7 % 23, number % 5);
    let text = format!(
        "echo $$ >> runs/{number}; {stubborn}sleep {}.{}; echo done {number}; exit {code}",
        tenths / 10,
        tenths % 10
    );
    NewTask::shell(&text)
        .key(&format!("command {number}"))
        .cwd(folder)
        .env("FOLDER", EnvValue::Text(folder.to_string_lossy().into()))
        .grace(Duration::from_millis(200))
}

async fn ending(task: &TaskHandle) -> Result<String, Box<dyn Error>> {
    let ending = task.wait().await?;
    let report: Option<ProcessReport> = match &*ending.outcome {
        Outcome::Succeeded { result } => Some(result.decode()?),
        Outcome::Failed(failed) => failed.partial.as_ref().map(|json| json.decode()).transpose()?,
        Outcome::Cancelled(_) => None,
    };
    let said = report.map(|report| report.tail).unwrap_or_default();
    Ok(format!("{}, said {:?}", ending.outcome, said.trim_end()))
}
