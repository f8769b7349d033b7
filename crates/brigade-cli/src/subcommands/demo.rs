//! `brigade demo`: demonstrates Brigade's promises with real processes, scripted agents and a real
//! kill.

mod agents;

use brigade_model::work::{CommandLine, ProcessWork, StdinSource};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use brigade_model::call::WaitMode;
use brigade_model::outcome::{EndConfirmation, Outcome};
use brigade_process::orphans::MARK;
use brigade_process::process_identity::{ProcessEnvironment, is_process_alive, list_pids};
use brigade_protocol::frames::ClientRole;
use brigade_protocol::requests::{
    ExecRequest, ListTasksRequest, ReadOutputRequest, SendRequest, ShutdownRequest, StartReply,
    StopRequest, WaitRequest, WaitUntil,
};
use brigade_protocol::{ClientError, DaemonConnection, StateDir, TaskInfo, TaskTarget};
use rustix::process::{Pid, Signal, kill_process};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

/// Watch Brigade keep its promises: real processes, agents, a real kill -9, no network, no key
///
/// The agents play a script instead of calling a model. Everything runs in its own directory, which
/// is removed at the end. It takes about six seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Keep the directory, to inspect it
    #[arg(long)]
    keep: bool,
}

const SESSION: &str = "demo";
const QUICK: &str = "sleep 0.8; echo quick >> ran; exit 0";

impl DemoArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        context.require_local("demo")?;
        let demo_dir = std::env::temp_dir().join(format!("brigade-demo-{}", std::process::id()));
        let stage = DemoStage::new(context, &demo_dir)?;
        let checks = stage.run_checks().await;
        let orphans = stage.shut_down().await;
        if !self.keep {
            let _ = fs::remove_dir_all(&demo_dir);
        }
        let mut checks = checks?;
        checks.push(orphans);
        print_checks(context, &checks)?;
        if self.keep {
            render::print_line(format!("\nkept: {}", demo_dir.display()))?;
        }
        let broken = checks.iter().any(|check| !check.kept);
        Ok(if broken { CliExitCode::FAILED } else { CliExitCode::SUCCEEDED })
    }
}

/// A promise, and the observation about it.
#[derive(Debug, serde::Serialize)]
struct PromiseCheck {
    promise: &'static str,
    kept: bool,
    observation: String,
}

fn new_check(promise: &'static str, kept: bool, observation: String) -> PromiseCheck {
    PromiseCheck { promise, kept, observation }
}

fn print_checks(context: &CliContext, checks: &[PromiseCheck]) -> Result<(), CliError> {
    if context.json {
        return render::print_json(checks);
    }
    render::print_line("")?;
    let good = Style::new().fg_color(Some(AnsiColor::Green.into()));
    let bad = render::state_style("failed");
    for check in checks {
        let (style, mark) = if check.kept { (good, "kept") } else { (bad, "BROKEN") };
        let line = StyledLine::from("  ").styled(style, format!("{mark:<6}"));
        render::print_line(line.text(format!("  {:<14}  {}", check.promise, check.observation)))?;
    }
    render::print_line(
        "\nNext: `brigade exec -- COMMAND`, `brigade run PROMPT`, or `brigade --help`.",
    )
}

/// The demonstration with its own daemon.
struct DemoStage {
    quiet: bool,
    demo_dir: PathBuf,
    state_dir: StateDir,
    context: CliContext,
}

impl DemoStage {
    fn new(context: &CliContext, demo_dir: &Path) -> Result<Self, CliError> {
        let state_dir = StateDir::new(demo_dir.join("state"));
        state_dir.create()?;
        let context = context.with_state_dir(state_dir.clone());
        Ok(Self { quiet: context.json, demo_dir: demo_dir.to_owned(), state_dir, context })
    }

    async fn run_checks(&self) -> Result<Vec<PromiseCheck>, CliError> {
        let first = self.connect_client().await?;
        self.print_line(format!("A daemon starts (pid {}) and gets tasks:", first.daemon_pid()))?;
        let tasks = self.start_processes(&first).await?;
        let agents = self.start_agents(&first).await?;
        let once = self.check_spawn_once(&first, &tasks[0]).await?;

        self.print_line(format!("\n$ kill -9 {}", first.daemon_pid()))?;
        kill_daemon(first.daemon_pid())?;
        drop(first);
        self.wait_without_daemon().await?;

        let next = self.connect_client().await?;
        self.print_line(format!(
            "\nThe next client starts a daemon (pid {}), which finds:",
            next.daemon_pid()
        ))?;
        let found = self.list_recovered().await?;
        let recovery = check_recovery(&found);
        let outcomes = self.check_outcomes(&next, &tasks).await?;
        let result = self.check_result_once(&next, &tasks[0]).await?;
        let output = self.check_output(&next, &tasks[2]).await?;
        let stop = self.check_stop(&next, &tasks[3]).await?;
        let messages = self.check_messages(&next, &tasks[4]).await?;
        let [agents, delegation, steering] = self.check_agents(&next, &agents, &found).await?;
        let first = [once, recovery, agents, delegation, steering];
        let second = [outcomes, result, output, messages, stop];
        Ok(first.into_iter().chain(second).collect())
    }

    async fn start_processes(&self, client: &DaemonConnection) -> Result<Vec<TaskInfo>, CliError> {
        let stubborn = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 99' & \
                        echo up; while :; do sleep 0.1; done";
        let processes = [
            ("Quick", "succeeds after 0.8 s", QUICK),
            ("Failing", "exits with 7 after a second", "sleep 1; exit 7"),
            (
                "Counter",
                "counts to nine, 0.4 s each",
                "for n in 1 2 3 4 5 6 7 8 9; do echo $n; sleep 0.4; done",
            ),
            ("Stubborn", "ignores TERM, with a child in another OS session", stubborn),
            ("Echo", "echoes its input", "while read line; do echo you said $line; done"),
        ];
        let mut tasks = Vec::new();
        for (name, about, text) in processes {
            let started = client.call(self.exec_request(name, text)).await?;
            self.print_line(format!("  {:<11} {name:<9} {about}", started.task.address))?;
            tasks.push(started.task);
        }
        Ok(tasks)
    }

    fn exec_request(&self, name: &str, text: &str) -> ExecRequest {
        let stdin = if name == "Echo" { StdinSource::Messages } else { StdinSource::Null };
        let process = ProcessWork {
            cwd: Some(self.demo_dir.display().to_string().into()),
            stdin,
            ..ProcessWork::new(CommandLine::Shell(text.into()))
        };
        ExecRequest {
            name: Some(name.to_owned()),
            key: Some(format!("demo {name}")),
            grace_ms: Some(700),
            ..ExecRequest::new(SESSION, process)
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
        let text = format!("started Quick twice with one key: {} each time", task.address);
        Ok(new_check("spawn once", kept, text))
    }

    /// Waits until two of the processes have ended without a daemon.
    async fn wait_without_daemon(&self) -> Result<(), CliError> {
        let alive = self.list_processes().len();
        self.print_line(format!("  no daemon runs; {alive} processes keep running"))?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        self.print_line("  Quick and Failing end meanwhile")
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
        let text = format!(
            "exit codes {} and {} after the kill; Quick ran {}",
            render_exit_code(&quick),
            render_exit_code(&failing),
            if ran.lines().count() == 1 { "once" } else { "not once" }
        );
        Ok(new_check("one outcome", kept, text))
    }

    async fn check_result_once(
        &self,
        client: &DaemonConnection,
        quick: &TaskInfo,
    ) -> Result<PromiseCheck, CliError> {
        let again = self.wait_for_task(client, quick).await?;
        let text = "a second wait reports that it was collected before".to_owned();
        Ok(new_check("result once", again.collected_before, text))
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
        let started = Instant::now();
        client.call(stop).await?;
        let ended = self.wait_for_task(client, stubborn).await?;
        let after = self.list_processes().len();
        let confirmed = match &ended.outcome {
            Some(Outcome::Cancelled(cancelled)) => {
                cancelled.confirmation == EndConfirmation::Confirmed
            }
            _ => false,
        };
        let text = format!(
            "TERM ignored, killed after {:.1} s with all {} processes",
            started.elapsed().as_secs_f64(),
            before.saturating_sub(after)
        );
        Ok(new_check("stop is real", confirmed && after < before, text))
    }

    async fn check_messages(
        &self,
        client: &DaemonConnection,
        echo: &TaskInfo,
    ) -> Result<PromiseCheck, CliError> {
        let message = brigade_model::json::Json::of("hello")?;
        let send =
            SendRequest { closes_input: true, ..SendRequest::new(task_target(echo), message) };
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
            format!("sent Echo a line, it printed {:?}", text.trim_end()),
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
            until: WaitUntil::Ended,
        };
        let waited = client.call(wait).await?;
        waited
            .ended
            .into_iter()
            .next()
            .ok_or_else(|| CliError::internal(format!("{} did not end in time", task.address)))
    }

    /// Connects as a client, so that results are collected.
    async fn connect_client(&self) -> Result<DaemonConnection, CliError> {
        Ok(self.context.daemon_launcher()?.connect(ClientRole::Client("demo".to_owned())).await?)
    }

    /// Shuts the daemon down, and checks that no process is left.
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
            let reply: Result<(), ClientError> = client.call(ShutdownRequest {}).await;
            let deadline = Instant::now() + Duration::from_secs(5);
            while reply.is_ok() && is_process_alive(pid) && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.list_processes().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let count = self.list_processes().len();
        new_check("no orphans", count == 0, format!("{count} processes are left"))
    }

    /// Lists all processes with the state directory in their environment, shims included.
    fn list_processes(&self) -> Vec<u32> {
        let mark = format!("={}", self.state_dir.path().display());
        let is_ours = |environment: ProcessEnvironment| {
            let mut variables = environment.variables();
            variables.any(|variable| variable.ends_with(mark.as_bytes()))
                && environment.value(MARK).is_some()
        };
        list_pids().filter(|pid| ProcessEnvironment::read(*pid).is_ok_and(is_ours)).collect()
    }

    fn print_line(&self, line: impl Into<StyledLine>) -> Result<(), CliError> {
        if self.quiet { Ok(()) } else { render::print_line(line) }
    }
}

/// Checks the recovery of the processes.
fn check_recovery(found: &[TaskInfo]) -> PromiseCheck {
    let processes = found.iter().filter(|task| task.is_process());
    let (alive, ended): (Vec<_>, Vec<_>) = processes.partition(|task| task.alive);
    let alive = alive.len();
    let ended = ended.len();
    let text = format!("{alive} running processes adopted, {ended} with an outcome");
    new_check("recovery", alive == 3 && ended == 2, text)
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
