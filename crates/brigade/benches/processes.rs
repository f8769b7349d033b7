//! Measures the cost of a shim and of a bare tokio `Command` in the same run, and prints a table.
//!
//! `cargo bench -p brigade --bench processes`

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::process::read_boot_id;
use brigade::process::{Companion, ProcessLimits, Shim, ShimLaunch, ShimPhase, ShimRecord};
use brigade::{
    InputPiece, NewTask, Outcome, ProcessOptions, ProcessReport, Runtime, Session, SqliteStore,
    TaskHandle,
};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

type BenchResult<T> = Result<T, Box<dyn Error>>;

const SAMPLES: usize = 400;
const PROCESS_TREES: usize = 200;
const IDLE: usize = 50;
const GIBIBYTE: u64 = 1 << 30;
/// The bytes of input, written in pieces as a client does.
const INPUT: usize = 256 << 20;
const INPUT_PIECE: usize = 256 << 10;

#[tokio::main]
async fn main() -> BenchResult<()> {
    // Cargo runs every benchmark with `--list`.
    if std::env::args().any(|word| word == "--list") {
        return Ok(());
    }
    println!("| benchmark | Brigade | bare tokio | ratio | target |\n|---|---|---|---|---|");
    measure_start_to_exit().await?;
    measure_memory().await?;
    measure_stop().await?;
    measure_output().await?;
    measure_input().await
}

async fn session(dir: &Path, on_disk: bool) -> BenchResult<(Runtime, Session)> {
    let mut builder = Runtime::builder().processes(ProcessOptions::new(dir));
    if on_disk {
        builder = builder.store(SqliteStore::open(dir.join("brigade.db"))?);
    }
    let runtime = builder.start().await?;
    let session = runtime.session("bench").await?;
    Ok((runtime, session))
}

/// Measures all variants in turns, so that they run under the same conditions.
async fn measure_start_to_exit() -> BenchResult<()> {
    let dir = tempfile::tempdir()?;
    let other = tempfile::tempdir()?;
    let (_runtime, memory) = session(dir.path(), false).await?;
    let (_runtime, sqlite) = session(other.path(), true).await?;
    let companion = Companion::prepare(dir.path())?;
    let mut bare = Vec::new();
    let mut in_memory = Vec::new();
    let mut on_disk = Vec::new();
    let mut shim = Vec::new();
    for sample in 0..SAMPLES {
        let started_at = Instant::now();
        Command::new("true").stdin(Stdio::null()).stdout(Stdio::null()).status().await?;
        bare.push(started_at.elapsed());
        for (session, times) in [(&memory, &mut in_memory), (&sqlite, &mut on_disk)] {
            let started_at = Instant::now();
            let task = session.spawn(NewTask::program(["true"])).await?;
            let result = task.wait().await?;
            times.push(started_at.elapsed());
            assert!(result.outcome.is_success(), "{}", result.outcome);
        }
        let shim_dir = dir.path().join(format!("bare-{sample}"));
        fs::create_dir(&shim_dir)?;
        let started_at = Instant::now();
        launch(&companion, &shim_dir, &["true"])?.wait_exit().await?;
        shim.push(started_at.elapsed());
    }
    let [bare, in_memory, on_disk, shim] = [bare, in_memory, on_disk, shim].map(p10);
    for (name, time) in [
        ("`true`, start to exit, memory store", in_memory),
        ("the same on SQLite", on_disk),
        ("the same, the shim alone", shim),
    ] {
        let ratio = time.as_secs_f64() / bare.as_secs_f64();
        println!("| {name} (p10) | {time:.0?} | {bare:.0?} | {ratio:.2} | 2.5 |");
    }
    Ok(())
}

fn p10(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 10]
}

fn launch(companion: &Companion, shim_dir: &Path, command_line: &[&str]) -> BenchResult<Shim> {
    let argv: Vec<OsString> = command_line.iter().map(Into::into).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let launch = ShimLaunch {
        dir: shim_dir,
        boot_id: read_boot_id()?,
        argv: &argv,
        env: &[("PATH".into(), path)],
        cwd: None,
        reads_input: false,
        output_cap: 8 << 20,
        grace: Duration::from_secs(5),
        limits: ProcessLimits::default(),
        terminal: None,
        sandbox: None,
        timing: brigade::process::ShimTiming::default(),
    };
    Ok(launch.start(companion)?)
}

fn record(shim_dir: &Path) -> BenchResult<ShimRecord> {
    Ok(ShimRecord::read_from(&fs::File::open(shim_dir.join("claim"))?)?)
}

/// Measures the memory of each of many shims.
async fn measure_memory() -> BenchResult<()> {
    let dir = tempfile::tempdir()?;
    let companion = Companion::prepare(dir.path())?;
    let mut shims = Vec::new();
    for number in 0..IDLE {
        let shim_dir = dir.path().join(number.to_string());
        fs::create_dir(&shim_dir)?;
        shims.push((launch(&companion, &shim_dir, &["sleep", "60"])?, shim_dir));
    }
    for (_, shim_dir) in &shims {
        while record(shim_dir).map_or(true, |record| record.phase < ShimPhase::Running) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let mut shared = 0;
    let mut resident = 0;
    for (shim, _) in &shims {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", shim.pid()))?;
        shared += kilobytes(&rollup, "Pss:");
        resident += kilobytes(&rollup, "Rss:");
    }
    for (shim, _) in &shims {
        shim.send_order(brigade::process::ShimOrder::Kill)?;
        shim.wait_exit().await?;
    }
    let shared = shared / IDLE as u64;
    let resident = resident / IDLE as u64;
    println!("| memory of a shim, PSS of {IDLE} | {shared} kB | | | 150 kB |");
    println!("| memory of a shim, RSS | {resident} kB | | | |");
    Ok(())
}

fn kilobytes(rollup: &str, field: &str) -> u64 {
    let line = rollup.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Stops shells with two children each, one of them in another session. All ignore SIGTERM.
async fn measure_stop() -> BenchResult<()> {
    let dir = tempfile::tempdir()?;
    let (_runtime, session) = session(dir.path(), false).await?;
    let text = "trap '' TERM; sleep 60 & setsid sleep 60 & echo up; wait";
    let tasks = session.spawn_all((0..PROCESS_TREES).map(|_| NewTask::shell(text))).await?;
    let tasks: Vec<TaskHandle<ProcessReport>> = tasks.into_iter().collect::<Result<_, _>>()?;
    for task in &tasks {
        while task.output().await?.totals()?.stdout == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let started_at = Instant::now();
    let target = brigade::model::StopTarget::Children;
    session.stop_with(target, None, Some(Duration::ZERO)).await?;
    for result in session.wait_all(&tasks).await? {
        let confirmation = match &*result.outcome {
            Outcome::Cancelled(cancelled) => cancelled.confirmation.clone(),
            other => return Err(other.to_string().into()),
        };
        assert_eq!(confirmation, brigade::model::EndConfirmation::Confirmed);
    }
    let took = started_at.elapsed();
    println!(
        "| SIGKILL to the last confirmed end of {PROCESS_TREES} process trees | {took:.0?} | | | 500 ms |"
    );
    Ok(())
}

/// Measures output through a shim. The CPU time is the shim's alone.
async fn measure_output() -> BenchResult<()> {
    let dir = tempfile::tempdir()?;
    let companion = Companion::prepare(dir.path())?;
    let bytes = GIBIBYTE.to_string();
    let command_line = ["head", "-c", &bytes, "/dev/zero"];
    let mut best_time = Duration::MAX;
    let mut best_cpu = Duration::MAX;
    for round in 0..3 {
        let shim_dir = dir.path().join(round.to_string());
        fs::create_dir(&shim_dir)?;
        let started_at = Instant::now();
        let shim = launch(&companion, &shim_dir, &command_line)?;
        while record(&shim_dir).map_or(true, |record| record.phase < ShimPhase::Done) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let took = started_at.elapsed();
        // The kernel keeps the CPU time until the shim is reaped.
        let cpu = read_cpu_time(shim.pid())?;
        shim.wait_exit().await?;
        assert_eq!(record(&shim_dir)?.produced_bytes[0], GIBIBYTE);
        best_time = best_time.min(took);
        best_cpu = best_cpu.min(cpu);
    }
    let rate = GIBIBYTE as f64 / best_time.as_secs_f64() / 1e9;
    println!("| 1 GiB of output through the cap | {rate:.2} GB/s | | | 1 GB/s |");
    println!("| the same, CPU time of the shim | {best_cpu:.0?} | | | 600 ms |");
    Ok(())
}

/// Measures bytes to the input of a process, and the same bytes through a plain pipe.
async fn measure_input() -> BenchResult<()> {
    let piece: Arc<[u8]> = vec![b'x'; INPUT_PIECE].into();
    let started_at = Instant::now();
    let mut bare =
        Command::new("wc").arg("-c").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut pipe = bare.stdin.take().ok_or("no pipe")?;
    for _ in 0..INPUT / INPUT_PIECE {
        pipe.write_all(&piece).await?;
    }
    drop(pipe);
    bare.wait().await?;
    let bare = started_at.elapsed();

    let dir = tempfile::tempdir()?;
    let (_runtime, session) = session(dir.path(), true).await?;
    let started_at = Instant::now();
    let task = session.spawn(NewTask::program(["wc", "-c"]).reads_messages()).await?;
    for offset in (0..INPUT as u64).step_by(INPUT_PIECE) {
        let closes_input = offset as usize + INPUT_PIECE == INPUT;
        let input = InputPiece { writer: 1, offset, bytes: piece.clone(), closes_input };
        session.write_input(&task, input).await?;
    }
    task.wait().await?;
    let took = started_at.elapsed();
    assert_eq!(task.output().await?.tail_text(100)?.trim(), INPUT.to_string());
    let rate = |time: Duration| INPUT as f64 / time.as_secs_f64() / 1e6;
    let ours = rate(took);
    let theirs = rate(bare);
    let ratio = theirs / ours;
    println!("| input as bytes | {ours:.0} MB/s | {theirs:.0} MB/s | {ratio:.1} | 50 MB/s |");
    Ok(())
}

fn read_cpu_time(pid: u32) -> BenchResult<Duration> {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let nanos = schedstat.split_whitespace().next().ok_or("schedstat is empty")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}
