//! What a shim costs, beside a bare tokio `Command` in the same run. Prints a table.
//!
//! `cargo bench -p brigade --bench processes`

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::process::machine_identity::boot_id;
use brigade::process::{Companion, ProcessLimits, Shim, ShimLaunch, ShimPhase, ShimRecord};
use brigade::{
    InputPiece, NewTask, Outcome, ProcessOptions, Runtime, Session, SqliteStore, TaskHandle,
};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

type Checked<T> = Result<T, Box<dyn Error>>;

const SAMPLES: usize = 400;
const TREES: usize = 200;
const IDLE: usize = 50;
const GIBIBYTE: u64 = 1 << 30;
/// Bytes of input, in pieces as a client brings them.
const INPUT: usize = 256 << 20;
const INPUT_PIECE: usize = 256 << 10;

#[tokio::main]
async fn main() -> Checked<()> {
    // Cargo asks every benchmark for its list.
    if std::env::args().any(|word| word == "--list") {
        return Ok(());
    }
    println!("| what | Brigade | bare tokio | ratio | aim |\n|---|---|---|---|---|");
    start_to_exit().await?;
    footprint().await?;
    stubborn_trees().await?;
    gibibyte().await?;
    input().await
}

async fn session(folder: &Path, on_disk: bool) -> Checked<(Runtime, Session)> {
    let mut builder = Runtime::builder().processes(ProcessOptions::new(folder));
    if on_disk {
        builder = builder.store(SqliteStore::open(folder.join("brigade.db"), Default::default())?);
    }
    let runtime = builder.start().await?;
    let session = runtime.session("bench").await?;
    Ok((runtime, session))
}

/// One after the other, in turns, so that both see the same machine.
async fn start_to_exit() -> Checked<()> {
    let folder = tempfile::tempdir()?;
    let other = tempfile::tempdir()?;
    let (_runtime, memory) = session(folder.path(), false).await?;
    let (_runtime, sqlite) = session(other.path(), true).await?;
    let companion = Companion::prepare(folder.path())?;
    let mut bare = Vec::new();
    let (mut in_memory, mut on_disk, mut shim) = (Vec::new(), Vec::new(), Vec::new());
    for sample in 0..SAMPLES {
        let began = Instant::now();
        Command::new("true").stdin(Stdio::null()).stdout(Stdio::null()).status().await?;
        bare.push(began.elapsed());
        for (session, times) in [(&memory, &mut in_memory), (&sqlite, &mut on_disk)] {
            let began = Instant::now();
            let task = session.spawn(NewTask::program(["true"])).await?;
            let ending = task.wait().await?;
            times.push(began.elapsed());
            assert!(ending.outcome.is_success(), "{}", ending.outcome);
        }
        let place = folder.path().join(format!("bare-{sample}"));
        fs::create_dir(&place)?;
        let began = Instant::now();
        launch(&companion, &place, &["true"])?.wait_exit().await?;
        shim.push(began.elapsed());
    }
    let [bare, in_memory, on_disk, shim] = [bare, in_memory, on_disk, shim].map(p10);
    for (what, time) in [
        ("`true`, start to exit, memory store", in_memory),
        ("the same on SQLite", on_disk),
        ("the same, the shim alone", shim),
    ] {
        let ratio = time.as_secs_f64() / bare.as_secs_f64();
        println!("| {what} (p10) | {time:.0?} | {bare:.0?} | {ratio:.2} | 2.5 |");
    }
    Ok(())
}

fn p10(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 10]
}

fn launch(companion: &Companion, place: &Path, words: &[&str]) -> Checked<Shim> {
    let argv: Vec<OsString> = words.iter().map(Into::into).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let launch = ShimLaunch {
        dir: place,
        boot_id: &boot_id()?,
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

fn record(place: &Path) -> Checked<ShimRecord> {
    Ok(ShimRecord::read_from(&fs::File::open(place.join("claim"))?)?)
}

/// What each of many shims adds to the memory that is in use.
async fn footprint() -> Checked<()> {
    let folder = tempfile::tempdir()?;
    let companion = Companion::prepare(folder.path())?;
    let mut shims = Vec::new();
    for number in 0..IDLE {
        let place = folder.path().join(number.to_string());
        fs::create_dir(&place)?;
        shims.push((launch(&companion, &place, &["sleep", "60"])?, place));
    }
    for (_, place) in &shims {
        while record(place).map_or(true, |record| record.phase < ShimPhase::Running) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let (mut shared, mut resident) = (0, 0);
    for (shim, _) in &shims {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", shim.pid()))?;
        shared += kilobytes(&rollup, "Pss:");
        resident += kilobytes(&rollup, "Rss:");
    }
    for (shim, _) in &shims {
        shim.send_order(brigade::process::ShimOrder::Kill)?;
        shim.wait_exit().await?;
    }
    let (shared, resident) = (shared / IDLE as u64, resident / IDLE as u64);
    println!("| memory of a shim, PSS of {IDLE} | {shared} kB | | | 150 kB |");
    println!("| memory of a shim, RSS | {resident} kB | | | |");
    Ok(())
}

fn kilobytes(rollup: &str, field: &str) -> u64 {
    let line = rollup.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Each a shell with two children, one of them in another session, all deaf to TERM.
async fn stubborn_trees() -> Checked<()> {
    let folder = tempfile::tempdir()?;
    let (_runtime, session) = session(folder.path(), false).await?;
    let text = "trap '' TERM; sleep 60 & setsid sleep 60 & echo up; wait";
    let tasks = session.spawn_all((0..TREES).map(|_| NewTask::shell(text))).await?;
    let tasks: Vec<TaskHandle> = tasks.into_iter().collect::<Result<_, _>>()?;
    for task in &tasks {
        while task.output().await?.totals()?.stdout == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let began = Instant::now();
    let target = brigade::model::command::StopTarget::Children;
    session.stop_with(target, None, Some(Duration::ZERO)).await?;
    for ending in session.wait_all(tasks.iter().map(Into::into)).await? {
        let verified = match &*ending.outcome {
            Outcome::Cancelled(cancelled) => cancelled.confirmation.clone(),
            other => return Err(other.to_string().into()),
        };
        assert_eq!(verified, brigade::model::outcome::EndConfirmation::Confirmed);
    }
    let took = began.elapsed();
    println!(
        "| {TREES} stubborn trees, KILL to the last verified ending | {took:.0?} | | | 500 ms |"
    );
    Ok(())
}

/// The command's own cost is in both; only the shim's is counted as CPU time.
async fn gibibyte() -> Checked<()> {
    let folder = tempfile::tempdir()?;
    let companion = Companion::prepare(folder.path())?;
    let bytes = GIBIBYTE.to_string();
    let words = ["head", "-c", &bytes, "/dev/zero"];
    let mut best = (Duration::MAX, Duration::MAX);
    for round in 0..3 {
        let place = folder.path().join(round.to_string());
        fs::create_dir(&place)?;
        let began = Instant::now();
        let shim = launch(&companion, &place, &words)?;
        while record(&place).map_or(true, |record| record.phase < ShimPhase::Done) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let took = began.elapsed();
        // Until it is waited for, the kernel keeps its account.
        let cpu = on_cpu(shim.pid())?;
        shim.wait_exit().await?;
        assert_eq!(record(&place)?.produced_bytes[0], GIBIBYTE);
        best = (best.0.min(took), best.1.min(cpu));
    }
    let rate = GIBIBYTE as f64 / best.0.as_secs_f64() / 1e9;
    println!("| 1 GiB of output through the cap | {rate:.2} GB/s | | | 1 GB/s |");
    println!("| the same, CPU time of the shim | {:.0?} | | | 600 ms |", best.1);
    Ok(())
}

/// Bytes to a command's input, beside the same bytes through a plain pipe.
async fn input() -> Checked<()> {
    let piece: Arc<[u8]> = vec![b'x'; INPUT_PIECE].into();
    let began = Instant::now();
    let mut bare =
        Command::new("wc").arg("-c").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut pipe = bare.stdin.take().ok_or("a pipe was asked for")?;
    for _ in 0..INPUT / INPUT_PIECE {
        pipe.write_all(&piece).await?;
    }
    drop(pipe);
    bare.wait().await?;
    let bare = began.elapsed();

    let folder = tempfile::tempdir()?;
    let (_runtime, session) = session(folder.path(), true).await?;
    let began = Instant::now();
    let task = session.spawn(NewTask::program(["wc", "-c"]).reads_messages()).await?;
    for offset in (0..INPUT as u64).step_by(INPUT_PIECE) {
        let last = offset as usize + INPUT_PIECE == INPUT;
        let brought = InputPiece { writer: 1, offset, bytes: piece.clone(), closes_input: last };
        session.write_input(&task, brought).await?;
    }
    task.wait().await?;
    let took = began.elapsed();
    assert_eq!(task.output().await?.tail_text(100)?.trim(), INPUT.to_string());
    let rate = |time: Duration| INPUT as f64 / time.as_secs_f64() / 1e6;
    let (ours, theirs, ratio) = (rate(took), rate(bare), rate(bare) / rate(took));
    println!("| input as bytes | {ours:.0} MB/s | {theirs:.0} MB/s | {ratio:.1} | 50 MB/s |");
    Ok(())
}

fn on_cpu(pid: u32) -> Checked<Duration> {
    let account = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let nanos = account.split_whitespace().next().ok_or("no account")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}
