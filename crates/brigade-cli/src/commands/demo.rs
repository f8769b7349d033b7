//! Shows what Brigade promises, with real commands, scripted agents and a real kill.

mod agents;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use brigade_model::call::WaitMode;
use brigade_model::outcome::{Outcome, Verified};
use brigade_server::requests::{Command, Exec, Leave, List, Read, Started, Stop, Wait};
use brigade_server::wire::As;
use brigade_server::{Client, ClientError, Places, Target, TaskInfo};
use rustix::process::{Pid, Signal, kill_process};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;
use crate::styled_line::StyledLine;

/// Watch Brigade keep its promises: real commands, agents, a real kill -9, no network, no key
///
/// The agents play a script instead of asking a model; all else is as always. Everything happens in a
/// folder of its own, which is removed at the end. It takes about six seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Keep the folder, to look around in it
    #[arg(long)]
    keep: bool,
}

const SESSION: &str = "demo";
const QUICK: &str = "sleep 0.8; echo quick >> ran; exit 0";

impl Demo {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let folder = std::env::temp_dir().join(format!("brigade-demo-{}", std::process::id()));
        let stage = Stage::new(context, &folder)?;
        let seen = stage.play().await;
        let left = stage.leave().await;
        if !self.keep {
            let _ = fs::remove_dir_all(&folder);
        }
        let mut seen = seen?;
        seen.push(left);
        report(context, &seen)?;
        if self.keep {
            show::line(format!("\nkept: {}", folder.display()))?;
        }
        let broken = seen.iter().any(|seen| !seen.kept);
        Ok(if broken { Exit::FAILED } else { Exit::SUCCEEDED })
    }
}

/// A promise, and what was seen of it.
#[derive(Debug, serde::Serialize)]
struct Seen {
    promise: &'static str,
    kept: bool,
    what: String,
}

fn seen(promise: &'static str, kept: bool, what: String) -> Seen {
    Seen { promise, kept, what }
}

fn report(context: &Context, all: &[Seen]) -> Result<(), Failure> {
    if context.json {
        return show::json(all);
    }
    show::line("")?;
    let (good, bad) = (Style::new().fg_color(Some(AnsiColor::Green.into())), show::style("failed"));
    for one in all {
        let (style, mark) = if one.kept { (good, "kept") } else { (bad, "BROKEN") };
        let line = StyledLine::from("  ").painted(style, format!("{mark:<6}"));
        show::line(line.text(format!("  {:<14}  {}", one.promise, one.what)))?;
    }
    show::line("\nNext: `brigade exec -- COMMAND`, `brigade run PROMPT`, or `brigade --help`.")
}

/// A daemon of the demonstration's own.
struct Stage {
    quiet: bool,
    folder: PathBuf,
    places: Places,
    context: Context,
}

impl Stage {
    fn new(context: &Context, folder: &Path) -> Result<Self, Failure> {
        let places = Places::new(folder.join("state"));
        places.make()?;
        let context = context.elsewhere(places.clone());
        Ok(Self { quiet: context.json, folder: folder.to_owned(), places, context })
    }

    async fn play(&self) -> Result<Vec<Seen>, Failure> {
        let first = self.daemon().await?;
        self.say(format!("A daemon comes up (pid {}), and gets work to do:", first.daemon_pid()))?;
        let tasks = self.start_all(&first).await?;
        let agents = self.hire(&first).await?;
        let once = self.ask_twice(&first, &tasks[0]).await?;

        self.say(format!("\n$ kill -9 {}", first.daemon_pid()))?;
        kill(first.daemon_pid())?;
        drop(first);
        self.nobody_there().await?;

        let next = self.daemon().await?;
        self.say(format!(
            "\nThe next command starts a daemon (pid {}), which finds:",
            next.daemon_pid()
        ))?;
        let found = self.found_again().await?;
        let recovery = recovery(&found);
        let ending = self.endings(&next, &tasks).await?;
        let result = self.taken_once(&next, &tasks[0]).await?;
        let output = self.whole_output(&next, &tasks[2]).await?;
        let stop = self.stop(&next, &tasks[3]).await?;
        let messages = self.message(&next, &tasks[4]).await?;
        let [agents, delegation, steering] = self.dinner(&next, &agents, &found).await?;
        let (first, then) = ([once, recovery, agents, delegation], [steering, ending, result]);
        Ok(first.into_iter().chain(then).chain([output, messages, stop]).collect())
    }

    async fn start_all(&self, client: &Client) -> Result<Vec<TaskInfo>, Failure> {
        let stubborn = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 99' & \
                        echo up; while :; do sleep 0.1; done";
        let commands = [
            ("Quick", "ends well after 0.8 s", QUICK),
            ("Failing", "exits with 7 after a second", "sleep 1; exit 7"),
            (
                "Counter",
                "counts to nine, 0.4 s each",
                "for n in 1 2 3 4 5 6 7 8 9; do echo $n; sleep 0.4; done",
            ),
            ("Stubborn", "ignores TERM, with a child in another OS session", stubborn),
            ("Echo", "answers what it is sent", "while read line; do echo you said $line; done"),
        ];
        let mut tasks = Vec::new();
        for (name, about, text) in commands {
            let started = client.ask(self.command(name, text)).await?;
            self.say(format!("  {:<11} {name:<9} {about}", started.task.address))?;
            tasks.push(started.task);
        }
        Ok(tasks)
    }

    fn command(&self, name: &str, text: &str) -> Exec {
        Exec {
            name: Some(name.to_owned()),
            key: Some(format!("demo {name}")),
            cwd: Some(self.folder.display().to_string()),
            reads_messages: name == "Echo",
            grace_ms: Some(700),
            ..Exec::new(SESSION, Command::Shell(text.to_owned()))
        }
    }

    async fn ask_twice(&self, client: &Client, quick: &TaskInfo) -> Result<Seen, Failure> {
        let again = self.command("Quick", QUICK);
        let Started { task, existed } = client.ask(again).await?;
        let kept = existed && task.address == quick.address;
        let what = format!("asked for Quick twice by one key: {} each time", task.address);
        Ok(seen("spawn once", kept, what))
    }

    /// Long enough for two of them to end.
    async fn nobody_there(&self) -> Result<(), Failure> {
        let alive = self.processes().len();
        self.say(format!(
            "  the daemon is gone; {alive} processes of commands go on by themselves"
        ))?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        self.say("  meanwhile Quick and Failing come to their ends, with nobody watching")
    }

    async fn found_again(&self) -> Result<Vec<TaskInfo>, Failure> {
        let list = List { session: Some(SESSION.to_owned()), ended: true, ..List::default() };
        let mut tasks = self.operator().await?.ask(list).await?;
        tasks.retain(|task| task.name.is_some());
        for task in &tasks {
            let line = StyledLine::from(format!("  {:<11} {:<9} ", task.address, task.label()));
            self.say(line.painted(show::style(&task.state), show::state(task)))?;
        }
        Ok(tasks)
    }

    async fn endings(&self, client: &Client, tasks: &[TaskInfo]) -> Result<Seen, Failure> {
        let quick = self.wait(client, &tasks[0]).await?;
        let failing = self.wait(client, &tasks[1]).await?;
        let ran = fs::read_to_string(self.folder.join("ran")).unwrap_or_default();
        let kept = quick.exit_code == Some(0) && failing.exit_code == Some(7) && ran == "quick\n";
        let what = format!(
            "exit codes {} and {} after the kill; Quick ran {}",
            code(&quick),
            code(&failing),
            if ran.lines().count() == 1 { "once" } else { "not once" }
        );
        Ok(seen("one ending", kept, what))
    }

    async fn taken_once(&self, client: &Client, quick: &TaskInfo) -> Result<Seen, Failure> {
        let again = self.wait(client, quick).await?;
        let what = "a second wait says that it was taken before".to_owned();
        Ok(seen("result once", again.collected_before, what))
    }

    async fn whole_output(&self, client: &Client, counter: &TaskInfo) -> Result<Seen, Failure> {
        self.wait(client, counter).await?;
        let target = target(counter);
        let read =
            Read { target, which: Default::default(), from: Default::default(), max_bytes: 1_000 };
        let text = client.ask(read).await?.text();
        let lines: Vec<&str> = text.lines().collect();
        let kept = lines == ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
        Ok(seen("output", kept, format!("Counter printed through the kill: {}", lines.join(" "))))
    }

    async fn stop(&self, client: &Client, stubborn: &TaskInfo) -> Result<Seen, Failure> {
        let before = self.processes().len();
        let stop = Stop { target: target(stubborn), reason: None, grace_ms: None };
        let began = Instant::now();
        client.ask(stop).await?;
        let ended = self.wait(client, stubborn).await?;
        let after = self.processes().len();
        let verified = match &ended.outcome {
            Some(Outcome::Cancelled(cancelled)) => cancelled.verified == Verified::Gone,
            _ => false,
        };
        let what = format!(
            "TERM ignored, killed after {:.1} s with all {} processes",
            began.elapsed().as_secs_f64(),
            before.saturating_sub(after)
        );
        Ok(seen("stop is real", verified && after < before, what))
    }

    async fn message(&self, client: &Client, echo: &TaskInfo) -> Result<Seen, Failure> {
        let message = Some(brigade_model::json::Json::of("hello")?);
        let send = brigade_server::requests::Send {
            interrupt: false,
            target: target(echo),
            message,
            last: true,
        };
        client.ask(send).await?;
        let ended = self.wait(client, echo).await?;
        let read = Read {
            target: target(echo),
            which: Default::default(),
            from: Default::default(),
            max_bytes: 1_000,
        };
        let text = client.ask(read).await?.text();
        let kept = text == "you said hello\n" && ended.exit_code == Some(0);
        Ok(seen("messages", kept, format!("sent Echo a line, it answered {:?}", text.trim_end())))
    }

    async fn wait(&self, client: &Client, task: &TaskInfo) -> Result<TaskInfo, Failure> {
        let wait = Wait {
            session: SESSION.to_owned(),
            tasks: vec![task.address.clone()],
            mode: WaitMode::All,
            timeout_ms: Some(15_000),
        };
        let waited = client.ask(wait).await?;
        waited
            .ended
            .into_iter()
            .next()
            .ok_or_else(|| Failure::broken(format!("{} did not end in time", task.address)))
    }

    /// As a client, so that results are taken.
    async fn daemon(&self) -> Result<Client, Failure> {
        Ok(self.context.starter()?.connect(As::Client("demo".to_owned())).await?)
    }

    /// The daemon leaves, and nothing is left.
    async fn leave(&self) -> Seen {
        if let Ok(client) = Client::connect(&self.places, As::Operator).await {
            let list = List { session: Some(SESSION.to_owned()), ..List::default() };
            for task in client.ask(list).await.unwrap_or_default() {
                let stop = Stop { target: target(&task), reason: None, grace_ms: Some(0) };
                let _ = client.ask(stop).await;
            }
            let pid = client.daemon_pid();
            let left: Result<(), ClientError> = client.ask(Leave {}).await;
            let deadline = Instant::now() + Duration::from_secs(5);
            while left.is_ok()
                && Path::new(&format!("/proc/{pid}")).exists()
                && Instant::now() < deadline
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.processes().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let left = self.processes().len();
        seen("no orphans", left == 0, format!("{left} processes of all this are left"))
    }

    /// Everything that bears the folder in its environment, shims included.
    fn processes(&self) -> Vec<u32> {
        let mark = format!("={}", self.places.folder().display());
        let all = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            let marked = variables.any(|variable| variable.ends_with(mark.as_bytes()));
            marked && environment.windows(13).any(|window| window == b"BRIGADE_SHIM=")
        })
        .collect()
    }

    fn say(&self, line: impl Into<StyledLine>) -> Result<(), Failure> {
        if self.quiet { Ok(()) } else { show::line(line) }
    }
}

/// What became of the commands.
fn recovery(found: &[TaskInfo]) -> Seen {
    let commands = found.iter().filter(|task| task.is_command());
    let (living, ended): (Vec<_>, Vec<_>) = commands.partition(|task| task.living);
    let (living, ended) = (living.len(), ended.len());
    let what = format!("{living} commands adopted while they ran, {ended} with an ending");
    seen("recovery", living == 3 && ended == 2, what)
}

fn target(task: &TaskInfo) -> Target {
    Target { session: SESSION.to_owned(), task: task.address.clone() }
}

fn code(task: &TaskInfo) -> String {
    task.exit_code.map_or_else(|| "none".to_owned(), |code| code.to_string())
}

fn kill(pid: u32) -> Result<(), Failure> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::broken("the daemon has no pid"))?;
    kill_process(pid, Signal::KILL).map_err(|error| Failure::broken(error.to_string()))
}
