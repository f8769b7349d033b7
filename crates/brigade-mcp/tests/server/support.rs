//! A workspace with a daemon that starts on demand, and clients of MCP servers in it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use brigade_mcp::server::{McpOptions, serve};
use brigade_protocol::StateDir;
use brigade_protocol::daemon_connector::DaemonConnector;
use brigade_protocol::daemon_launcher::{DaemonLauncher, StartPolicy};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, DetailedTask,
    Implementation, ProgressNotificationParam, TaskStatusNotificationParams,
};
use rmcp::service::{NotificationContext, RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::Value;

use crate::reply_halves;

pub(crate) const SESSION: &str = "kitchen";
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the path of the example that is MCP server and daemon. `cargo test` has built it, unless
/// it built this test alone.
pub(crate) fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let here = std::env::current_exe().unwrap();
        let program = here.ancestors().nth(2).unwrap().join("examples/mcp_server");
        if !is_up_to_date(&program) {
            // With the features of this package alone, which may take minutes.
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "--package", "brigade-mcp", "--example", "mcp_server"]);
            assert!(cargo.status().unwrap().success());
        }
        program
    };
    BUILT.get_or_init(build).clone()
}

/// Returns true if the program is newer than the sources that cargo lists beside it.
fn is_up_to_date(program: &Path) -> bool {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified());
    let Ok(built) = modified(program) else { return false };
    let Ok(listed) = std::fs::read_to_string(program.with_extension("d")) else { return false };
    let Some((_, sources)) = listed.split_once(": ") else { return false };
    let mut sources = sources.split_whitespace().map(Path::new);
    sources.all(|source| modified(source).is_ok_and(|changed| changed <= built))
}

/// A directory with a state directory in it. Its daemon is killed when the value is dropped.
pub(crate) struct TestWorkspace {
    dir: tempfile::TempDir,
}

impl TestWorkspace {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// Creates a workspace whose agents play this script.
    pub(crate) fn with_script(script: &str) -> Self {
        let workspace = Self::new();
        std::fs::write(workspace.path().join("script"), script).unwrap();
        workspace
    }

    /// Returns the directory in which processes run.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// Connects a client to its own MCP server in this process.
    pub(crate) async fn client(&self, name: &str) -> Client {
        self.client_with(name, ClientCapabilities::default()).await
    }

    pub(crate) async fn client_with(&self, name: &str, capabilities: ClientCapabilities) -> Client {
        let options = McpOptions::new(SESSION, self.path());
        self.connect(options, ClientConfig::new(capabilities, Implementation::new(name, "1"))).await
    }

    /// Connects a client that may also control tasks of other clients.
    pub(crate) async fn client_sharing(&self, name: &str) -> Client {
        let options = McpOptions { shared: true, ..McpOptions::new(SESSION, self.path()) };
        let config = ClientConfig::new(Default::default(), Implementation::new(name, "1"));
        self.connect(options, config).await
    }

    /// Connects a client whose agents have this `allow` rule too.
    pub(crate) async fn client_allowing(&self, name: &str, rule: &str) -> Client {
        let mut options = McpOptions::new(SESSION, self.path());
        options.allow.push(rule.parse().unwrap());
        let config = ClientConfig::new(Default::default(), Implementation::new(name, "1"));
        self.connect(options, config).await
    }

    /// Connects a client whose agents have this `ask` rule, and which shows no forms.
    pub(crate) async fn client_asking(&self, name: &str, rule: &str) -> Client {
        let mut options = McpOptions::new(SESSION, self.path());
        options.ask.push(rule.parse().unwrap());
        let config = ClientConfig::new(Default::default(), Implementation::new(name, "1"));
        self.connect(options, config).await
    }

    /// Connects a client whose agents have this `ask` rule, and which shows forms to its user.
    pub(crate) async fn client_with_forms(&self, name: &str, rule: &str) -> Client {
        let mut options = McpOptions::new(SESSION, self.path());
        options.ask.push(rule.parse().unwrap());
        let capabilities =
            ClientCapabilities::builder().enable_tasks().enable_elicitation().build();
        let config = ClientConfig::new(capabilities, Implementation::new(name, "1"));
        self.connect(options, config).await
    }

    async fn connect(&self, options: McpOptions, config: ClientConfig) -> Client {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let launcher = DaemonLauncher {
            state_dir: StateDir::new(self.state()),
            program: program(),
            args: vec![self.state().into(), "--daemon".into()],
            start_policy: StartPolicy::Start,
            notice: |line| eprintln!("{line}"),
        };
        let (input, output) = tokio::io::split(theirs);
        #[expect(
            clippy::disallowed_methods,
            reason = "the server ends with the client's end of the pipe"
        )]
        tokio::spawn(serve(DaemonConnector::from(launcher), options, input, output));
        let notifications = Notifications::default();
        let listener = RecordingClient { config, notifications: notifications.clone() };
        Client { service: listener.serve(ours).await.unwrap(), notifications }
    }

    /// Starts an MCP server as a process of its own.
    pub(crate) fn bridge(&self) -> Child {
        let mut command = Command::new(program());
        command.arg(self.state()).args([SESSION, "raw"]).current_dir(self.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    pub(crate) fn daemon_pid(&self) -> Option<u32> {
        let lock = std::fs::read_to_string(self.state().join("daemon.lock")).ok()?;
        lock.lines().next()?.parse().ok()
    }

    /// Kills the daemon with SIGKILL.
    pub(crate) fn kill_daemon(&self) {
        if let Some(pid) = self.daemon_pid() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }

    /// Polls until the condition holds.
    pub(crate) async fn until(&self, condition: &str, holds: impl Fn() -> bool) {
        let started_at = Instant::now();
        while !holds() {
            assert!(started_at.elapsed() < TEST_TIMEOUT, "timed out: {condition}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for TestWorkspace {
    fn drop(&mut self) {
        self.kill_daemon();
    }
}

/// The notifications that a client has got.
#[derive(Clone, Default)]
pub(crate) struct Notifications {
    pub(crate) progress: Arc<Mutex<Vec<ProgressNotificationParam>>>,
    pub(crate) tasks: Arc<Mutex<Vec<DetailedTask>>>,
}

pub(crate) struct RecordingClient {
    config: ClientConfig,
    notifications: Notifications,
}

impl ClientHandler for RecordingClient {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_progress(
        &self,
        notification: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.notifications.progress.lock().unwrap().push(notification);
    }

    async fn on_task_status(
        &self,
        notification: TaskStatusNotificationParams,
        _: NotificationContext<RoleClient>,
    ) {
        self.notifications.tasks.lock().unwrap().push(notification.task);
    }
}

pub(crate) struct Client {
    pub(crate) service: RunningService<RoleClient, RecordingClient>,
    pub(crate) notifications: Notifications,
}

/// The reply of a tool, in both forms.
#[derive(Debug)]
pub(crate) struct ToolReply {
    pub(crate) text: String,
    pub(crate) structured: Value,
    pub(crate) is_error: bool,
}

impl ToolReply {
    pub(crate) fn of(result: &CallToolResult) -> Self {
        let text = result.content.iter().filter_map(|block| block.as_text());
        Self {
            text: text.map(|text| text.text.clone()).collect(),
            structured: result.structured_content.clone().unwrap_or_default(),
            is_error: result.is_error == Some(true),
        }
    }

    #[track_caller]
    pub(crate) fn has(&self, part: &str) -> &Self {
        assert!(self.text.contains(part), "no {part:?} in: {}", self.text);
        self
    }

    /// Checks that the reply is a refusal of this kind.
    #[track_caller]
    pub(crate) fn refused(&self, kind: &str) -> &Self {
        assert!(self.is_error, "{}", self.text);
        assert_eq!(self.structured["error"]["kind"], kind, "{}", self.text);
        self
    }

    /// Returns the output of the structured content as one text.
    pub(crate) fn output(&self) -> String {
        let lines = self.structured["output"].as_array().unwrap().iter();
        lines.map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn address(&self) -> String {
        self.structured["address"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn tool_call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

impl Client {
    pub(crate) async fn call(&self, tool: &'static str, arguments: Value) -> ToolReply {
        let result = self.service.call_tool(tool_call(tool, arguments)).await.unwrap();
        let reply = ToolReply::of(&result);
        reply_halves::check(&reply);
        reply
    }

    /// Repeats a call until its text contains this part.
    pub(crate) async fn until(
        &self,
        tool: &'static str,
        arguments: Value,
        part: &str,
    ) -> ToolReply {
        let started_at = Instant::now();
        loop {
            let reply = self.call(tool, arguments.clone()).await;
            if reply.text.contains(part) {
                return reply;
            }
            assert!(started_at.elapsed() < TEST_TIMEOUT, "no {part:?} in: {}", reply.text);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
