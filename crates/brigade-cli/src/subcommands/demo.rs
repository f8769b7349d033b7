//! Shows what Brigade promises, with real commands, scripted agents and a real kill.

mod agents;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use brigade_model::call::WaitMode;
use brigade_model::outcome::{EndConfirmation, Outcome};
use brigade_server::frames::ClientRole;
use brigade_server::requests::{
    ExecCommandLine, ExecRequest, ListTasksRequest, ReadOutputRequest, ShutdownRequest, StartReply,
    StopRequest, WaitRequest,
};
use brigade_server::{ClientError, DaemonConnection, StateDir, TaskInfo, TaskTarget};
use rustix::process::{Pid, Signal, kill_process};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

/// Watch Brigade keep its promises: real commands, agents, a real kill -9, no network, no key
///
/// The agents play a script instead of asking a model; all else is as always. Everything happens in a
/// folder of its own, which is removed at the end. It takes about six seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Keep the folder, to look around in it
    #[arg(long)]
    keep: bool,
}

const SESSION: &str = "demo";
const QUICK: &str = "sleep 0.8; echo quick >> ran; exit 0";

impl DemoArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let folder = std::env::temp_dir().join(format!("brigade-demo-{}", std::process::id()));
        let stage = DemoStage::new(context, &folder)?;
        let seen = stage.run_checks().await;
        let left = stage.shut_down().await;
        if !self.keep {
            let _ = fs::remove_dir_all(&folder);
        }
        let mut seen = seen?;
        seen.push(left);
        print_checks(context, &seen)?;
        if self.keep {
            render::print_line(format!("\nkept: {}", folder.display()))?;
        }
        let broken = seen.iter().any(|seen| !seen.kept);
        Ok(if broken { CliExitCode::FAILED } else { CliExitCode::SUCCEEDED })
    }
}

/// A promise, and what was seen of it.
#[derive(Debug, serde::Serialize)]
struct PromiseCheck {
    promise: &'static str,
    kept: bool,
    observation: String,
}

fn new_check(promise: &'static str, kept: bool, what: String) -> PromiseCheck {
    PromiseCheck { promise, kept, observation: what }
}

fn print_checks(context: &CliContext, all: &[PromiseCheck]) -> Result<(), CliError> {
    if context.json {
        return render::print_json(all);
    }
    render::print_line("")?;
    let (good, bad) =
        (Style::new().fg_color(Some(AnsiColor::Green.into())), render::state_style("failed"));
    for one in all {
        let (style, mark) = if one.kept { (good, "kept") } else { (bad, "BROKEN") };
        let line = StyledLine::from("  ").styled(style, format!("{mark:<6}"));
        render::print_line(line.text(format!("  {:<14}  {}", one.promise, one.observation)))?;
    }
    render::print_line(
        "\nNext: `brigade exec -- COMMAND`, `brigade run PROMPT`, or `brigade --help`.",
    )
}

/// A daemon of the demonstration's own.
struct DemoStage {
    quiet: bool,
    demo_dir: PathBuf,
    state_dir: StateDir,
    context: CliContext,
}

impl DemoStage {
    fn new(context: &CliContext, folder: &Path) -> Result<Self, CliError> {
        let places = StateDir::new(folder.join("state"));
        places.create()?;
        let context = context.with_state_dir(places.clone());
        Ok(Self { quiet: context.json, demo_dir: folder.to_owned(), state_dir: places, context })
    }

    async fn run_checks(&self) -> Result<Vec<PromiseCheck>, CliError> {
        let first = self.connect_client().await?;
        self.print_line(format!(
            "A daemon comes up (pid {}), and gets work to do:",
            first.daemon_pid()
        ))?;
        let tasks = self.start_commands(&first).await?;
        let agents = self.start_agents(&first).await?;
        let once = self.check_spawn_once(&first, &tasks[0]).await?;

        self.print_line(format!("\n$ kill -9 {}", first.daemon_pid()))?;
        kill_daemon(first.daemon_pid())?;
        drop(first);
        self.wait_without_daemon().await?;

        let next = self.connect_client().await?;
        self.print_line(format!(
            "\nThe next command starts a daemon (pid {}), which finds:",
            next.daemon_pid()
        ))?;
        let found = self.list_recovered().await?;
        let recovery = check_recovery(&found);
        let ending = self.check_outcomes(&next, &tasks).await?;
        let result = self.check_result_once(&next, &tasks[0]).await?;
        let output = self.check_output(&next, &tasks[2]).await?;
        let stop = self.check_stop(&next, &tasks[3]).await?;
        let messages = self.check_messages(&next, &tasks[4]).await?;
        let [agents, delegation, steering] = self.check_agents(&next, &agents, &found).await?;
        let (first, then) = ([once, recovery, agents, delegation], [steering, ending, result]);
        Ok(first.into_iter().chain(then).chain([output, messages, stop]).collect())
    }

    async fn start_commands(&self, client: &DaemonConnection) -> Result<Vec<TaskInfo>, CliError> {
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
            let started = client.call(self.exec_request(name, text)).await?;
            self.print_line(format!("  {:<11} {name:<9} {about}", started.task.address))?;
            tasks.push(started.task);
        }
        Ok(tasks)
    }

    fn exec_request(&self, name: &str, text: &str) -> ExecRequest {
        ExecRequest {
            name: Some(name.to_owned()),
            key: Some(format!("demo {name}")),
            cwd: Some(self.demo_dir.display().to_string()),
            reads_messages: name == "Echo",
            grace_ms: Some(700),
            ..ExecRequest::new(SESSION, ExecCommandLine::Shell(text.to_owned()))
        }
    }

    async fn check_spawn_once(
        &self,
        client: &DaemonConnection,
        quick: &TaskInfo,
    ) -> Result<PromiseCheck, CliError> {
        let again = self.exec_request("Quick", QUICK);
        let StartReply { task, existed } = client.call(again).await?;
        let kept = existed && task.address == quick.address;
        let what = format!("asked for Quick twice by one key: {} each time", task.address);
        Ok(new_check("spawn once", kept, what))
    }

    /// Long enough for two of them to end.
    async fn wait_without_daemon(&self) -> Result<(), CliError> {
        let alive = self.list_processes().len();
        self.print_line(format!(
            "  the daemon is gone; {alive} processes of commands go on by themselves"
        ))?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        self.print_line("  meanwhile Quick and Failing come to their ends, with nobody watching")
    }

    async fn list_recovered(&self) -> Result<Vec<TaskInfo>, CliError> {
        let list = ListTasksRequest {
            session: Some(SESSION.to_owned()),
            include_ended: true,
            ..ListTasksRequest::default()
        };
        let mut tasks = self.connect_operator().await?.call(list).await?;
        tasks.retain(|task| task.name.is_some());
        for task in &tasks {
            let line = StyledLine::from(format!("  {:<11} {:<9} ", task.address, task.label()));
            self.print_line(
                line.styled(render::state_style(&task.state), render::render_state(task)),
            )?;
        }
        Ok(tasks)
    }

    async fn check_outcomes(
        &self,
        client: &DaemonConnection,
        tasks: &[TaskInfo],
    ) -> Result<PromiseCheck, CliError> {
        let quick = self.wait_for_task(client, &tasks[0]).await?;
        let failing = self.wait_for_task(client, &tasks[1]).await?;
        let ran = fs::read_to_string(self.demo_dir.join("ran")).unwrap_or_default();
        let kept = quick.exit_code == Some(0) && failing.exit_code == Some(7) && ran == "quick\n";
        let what = format!(
            "exit codes {} and {} after the kill; Quick ran {}",
            render_exit_code(&quick),
            render_exit_code(&failing),
            if ran.lines().count() == 1 { "once" } else { "not once" }
        );
        Ok(new_check("one ending", kept, what))
    }

    async fn check_result_once(
        &self,
        client: &DaemonConnection,
        quick: &TaskInfo,
    ) -> Result<PromiseCheck, CliError> {
        let again = self.wait_for_task(client, quick).await?;
        let what = "a second wait says that it was taken before".to_owned();
        Ok(new_check("result once", again.collected_before, what))
    }

    async fn check_output(
        &self,
        client: &DaemonConnection,
        counter: &TaskInfo,
    ) -> Result<PromiseCheck, CliError> {
        self.wait_for_task(client, counter).await?;
        let target = task_target(counter);
        let read = ReadOutputRequest {
            target,
            streams: Default::default(),
            from: Default::default(),
            max_bytes: 1_000,
        };
        let text = client.call(read).await?.text();
        let lines: Vec<&str> = text.lines().collect();
        let kept = lines == ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
        Ok(new_check(
            "output",
            kept,
            format!("Counter printed through the kill: {}", lines.join(" ")),
        ))
    }

    async fn check_stop(
        &self,
        client: &DaemonConnection,
        stubborn: &TaskInfo,
    ) -> Result<PromiseCheck, CliError> {
        let before = self.list_processes().len();
        let stop = StopRequest { target: task_target(stubborn), reason: None, grace_ms: None };
        let began = Instant::now();
        client.call(stop).await?;
        let ended = self.wait_for_task(client, stubborn).await?;
        let after = self.list_processes().len();
        let verified = match &ended.outcome {
            Some(Outcome::Cancelled(cancelled)) => {
                cancelled.confirmation == EndConfirmation::Confirmed
            }
            _ => false,
        };
        let what = format!(
            "TERM ignored, killed after {:.1} s with all {} processes",
            began.elapsed().as_secs_f64(),
            before.saturating_sub(after)
        );
        Ok(new_check("stop is real", verified && after < before, what))
    }

    async fn check_messages(
        &self,
        client: &DaemonConnection,
        echo: &TaskInfo,
    ) -> Result<PromiseCheck, CliError> {
        let message = Some(brigade_model::json::Json::of("hello")?);
        let send = brigade_server::requests::SendRequest {
            interrupt: false,
            target: task_target(echo),
            message,
            closes_input: true,
        };
        client.call(send).await?;
        let ended = self.wait_for_task(client, echo).await?;
        let read = ReadOutputRequest {
            target: task_target(echo),
            streams: Default::default(),
            from: Default::default(),
            max_bytes: 1_000,
        };
        let text = client.call(read).await?.text();
        let kept = text == "you said hello\n" && ended.exit_code == Some(0);
        Ok(new_check(
            "messages",
            kept,
            format!("sent Echo a line, it answered {:?}", text.trim_end()),
        ))
    }

    async fn wait_for_task(
        &self,
        client: &DaemonConnection,
        task: &TaskInfo,
    ) -> Result<TaskInfo, CliError> {
        let wait = WaitRequest {
            session: SESSION.to_owned(),
            tasks: vec![task.address.clone()],
            mode: WaitMode::All,
            timeout_ms: Some(15_000),
        };
        let waited = client.call(wait).await?;
        waited
            .ended
            .into_iter()
            .next()
            .ok_or_else(|| CliError::internal(format!("{} did not end in time", task.address)))
    }

    /// As a client, so that results are taken.
    async fn connect_client(&self) -> Result<DaemonConnection, CliError> {
        Ok(self.context.daemon_launcher()?.connect(ClientRole::Client("demo".to_owned())).await?)
    }

    /// The daemon leaves, and nothing is left.
    async fn shut_down(&self) -> PromiseCheck {
        if let Ok(client) = DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await {
            let list = ListTasksRequest {
                session: Some(SESSION.to_owned()),
                ..ListTasksRequest::default()
            };
            for task in client.call(list).await.unwrap_or_default() {
                let stop =
                    StopRequest { target: task_target(&task), reason: None, grace_ms: Some(0) };
                let _ = client.call(stop).await;
            }
            let pid = client.daemon_pid();
            let left: Result<(), ClientError> = client.call(ShutdownRequest {}).await;
            let deadline = Instant::now() + Duration::from_secs(5);
            while left.is_ok()
                && Path::new(&format!("/proc/{pid}")).exists()
                && Instant::now() < deadline
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.list_processes().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let left = self.list_processes().len();
        new_check("no orphans", left == 0, format!("{left} processes of all this are left"))
    }

    /// Everything that bears the folder in its environment, shims included.
    fn list_processes(&self) -> Vec<u32> {
        let mark = format!("={}", self.state_dir.path().display());
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

    fn print_line(&self, line: impl Into<StyledLine>) -> Result<(), CliError> {
        if self.quiet { Ok(()) } else { render::print_line(line) }
    }
}

/// What became of the commands.
fn check_recovery(found: &[TaskInfo]) -> PromiseCheck {
    let commands = found.iter().filter(|task| task.is_process());
    let (living, ended): (Vec<_>, Vec<_>) = commands.partition(|task| task.alive);
    let (living, ended) = (living.len(), ended.len());
    let what = format!("{living} commands adopted while they ran, {ended} with an ending");
    new_check("recovery", living == 3 && ended == 2, what)
}

fn task_target(task: &TaskInfo) -> TaskTarget {
    TaskTarget { session: SESSION.to_owned(), task: task.address.clone() }
}

fn render_exit_code(task: &TaskInfo) -> String {
    task.exit_code.map_or_else(|| "none".to_owned(), |code| code.to_string())
}

fn kill_daemon(pid: u32) -> Result<(), CliError> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| CliError::internal("the daemon has no pid"))?;
    kill_process(pid, Signal::KILL).map_err(|error| CliError::internal(error.to_string()))
}
