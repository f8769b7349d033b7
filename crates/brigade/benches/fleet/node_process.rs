//! A node as a process of its own, and its commands. Each command is a line, and so is its answer.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brigade::{Event, FeedUpdate, Job, JobContext, JobError, NodeOptions, Runtime, Session};
use brigade_postgres::PostgresStore;
use futures_util::future::try_join_all;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::{BenchResult, database, percentile};

/// The sessions of a node, and the clients of each. A client starts the next task after the end of the
/// last one.
const SESSIONS: usize = 16;
const CLIENTS: usize = 32;

const RETURN: Job<u32, u32> = Job::new("return");
/// A job that runs until its node ends, and so keeps its session from resting.
const WORK: Job<(), ()> = Job::new("work");

/// The process of a node or of a bare writer, as its parent sees it.
pub(crate) struct BenchProcess {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl BenchProcess {
    /// Starts this program again, and waits until it is ready.
    pub(crate) async fn start(words: &[&str]) -> BenchResult<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut process = Self { child, input, output };
        process.read().await?;
        Ok(process)
    }

    pub(crate) async fn start_node(url: &str, schema: &str, name: &str) -> BenchResult<Self> {
        let loops = crate::loops()?.to_string();
        Self::start(&["node", url, schema, name, &loops]).await
    }

    pub(crate) async fn ask(&mut self, command: &str) -> BenchResult<String> {
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        self.read().await
    }

    async fn read(&mut self) -> BenchResult<String> {
        let line = self.output.next_line().await?;
        line.ok_or_else(|| "a process of the benchmark has ended".into())
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends the process in good order.
    pub(crate) async fn end(mut self) -> BenchResult<()> {
        drop(self.input);
        self.child.wait().await?;
        Ok(())
    }

    /// Kills the process, so that it can do nothing more.
    pub(crate) async fn kill(mut self) -> BenchResult<()> {
        Ok(self.child.kill().await?)
    }
}

/// Reads the commands of the parent in a thread, which ends with the input.
pub(crate) fn read_commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    commands
}

/// Runs a node until its input ends.
pub(crate) async fn run(url: &str, schema: &str, name: &str, loops: usize) -> BenchResult<()> {
    let started = Arc::new(AtomicU64::new(0));
    let counter = started.clone();
    let runtime = Runtime::builder()
        .store(PostgresStore::open(&database::options(url, schema)?).await?)
        .node(NodeOptions::new(name))
        .loops(loops)
        .job(RETURN, |_: JobContext, number| async move { Ok::<_, JobError>(number) })
        .job(WORK, move |_: JobContext, ()| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<(), JobError>>()
        })
        .start()
        .await?;
    let node = BenchNode { runtime, name: name.to_owned(), started };
    println!("ready");
    let mut lines = read_commands();
    while let Some(line) = lines.recv().await {
        println!("{}", node.answer(&line).await?);
    }
    node.runtime.shutdown().await?;
    Ok(())
}

struct BenchNode {
    runtime: Runtime,
    name: String,
    /// The number of attempts of `WORK`.
    started: Arc<AtomicU64>,
}

impl BenchNode {
    async fn answer(&self, line: &str) -> BenchResult<String> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words[..] {
            ["tasks", millis] => self.run_tasks(Duration::from_millis(millis.parse()?)).await?,
            ["hold", count] => self.hold_sessions(count.parse()?).await?,
            ["started"] => self.started.load(Ordering::Relaxed).to_string(),
            ["latency", session, count] => self.measure_latency(session, count.parse()?).await?,
            _ => return Err(format!("unknown command {line}").into()),
        })
    }

    /// Starts tasks and awaits their ends for a time. Returns their number in the middle half of it, and
    /// the milliseconds of that.
    async fn run_tasks(&self, duration: Duration) -> BenchResult<String> {
        let is_counted = AtomicBool::new(false);
        let is_over = AtomicBool::new(false);
        let ended = AtomicU64::new(0);
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            sessions.push(self.runtime.session(&format!("{}-{number}", self.name)).await?);
        }
        let clients =
            sessions.iter().flat_map(|session| (0..CLIENTS).map(move |_| session.clone()));
        let clients = clients.map(|session| async {
            let session = session;
            while !is_over.load(Ordering::Relaxed) {
                session.spawn(RETURN.with(1)).await?.result().await?;
                ended.fetch_add(is_counted.load(Ordering::Relaxed).into(), Ordering::Relaxed);
            }
            BenchResult::Ok(())
        });
        let timing = async {
            tokio::time::sleep(duration / 4).await;
            let began_at = Instant::now();
            is_counted.store(true, Ordering::Relaxed);
            tokio::time::sleep(duration / 2).await;
            is_counted.store(false, Ordering::Relaxed);
            let took = began_at.elapsed();
            tokio::time::sleep(duration / 4).await;
            is_over.store(true, Ordering::Relaxed);
            BenchResult::Ok(took)
        };
        let (done, took) = tokio::join!(try_join_all(clients), timing);
        done?;
        Ok(format!("{} {}", ended.into_inner(), took?.as_secs_f64()))
    }

    /// Opens sessions with a task each that runs for ever.
    async fn hold_sessions(&self, count: usize) -> BenchResult<String> {
        let numbers: Vec<usize> = (0..count).collect();
        for slice in numbers.chunks(256) {
            try_join_all(slice.iter().map(|number| async move {
                let session = self.runtime.session(&format!("held-{number}")).await?;
                session.spawn(WORK.with(())).await?;
                BenchResult::Ok(())
            }))
            .await?;
        }
        Ok("held".to_owned())
    }

    /// Starts tasks in a session of another node, one after the other. Returns percentiles in
    /// microseconds: of the replies, then of the events.
    async fn measure_latency(&self, name: &str, count: usize) -> BenchResult<String> {
        let session: Session = self.runtime.session(name).await?;
        let mut replies = Vec::with_capacity(count);
        let mut events = Vec::with_capacity(count);
        for _ in 0..count {
            let mut feed = session.subscribe(self.runtime.cursor());
            let began_at = Instant::now();
            let (spawned, seen) = tokio::join!(session.spawn(RETURN.with(1)), async {
                loop {
                    let update = feed.next().await.ok_or("the feed has ended")??;
                    if let FeedUpdate::Event(item) = update
                        && matches!(item.record.event, Event::Spawned(_))
                    {
                        return BenchResult::Ok(began_at.elapsed());
                    }
                }
            });
            replies.push(began_at.elapsed());
            events.push(seen?);
            spawned?.result().await?;
        }
        let mut words = Vec::new();
        for mut latencies in [replies, events] {
            latencies.sort_unstable();
            for percent in [50, 99, 100] {
                words.push(percentile(&latencies, percent).as_micros().to_string());
            }
        }
        Ok(words.join(" "))
    }
}
