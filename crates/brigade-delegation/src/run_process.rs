//! `run_process`: runs a command line as a task.

use std::collections::BTreeMap;
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_model::work::ReadinessCheck;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::audience::{Audience, HiddenArgs, read_deadline};
use crate::tool_args::{ArgumentAlias, ArgumentDoc, ToolArgs, ToolHints, require_text};

/// The wait of an agent's call without `wait_secs`.
const AGENT_DEFAULT_WAIT_SECS: u64 = 120;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunProcess {
    /// A command line for bash (/bin/sh where there is no bash), unless another shell is set.
    pub command: String,
    /// A name to find it by, such as "Tests". Free again when it has ended.
    #[serde(default)]
    pub name: Option<String>,
    /// The working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Environment variables beside the usual ones. They are stored: no secrets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Return its address at once instead of waiting for it.
    #[serde(default)]
    pub background: bool,
    /// Seconds to wait.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    pub wait_secs: Option<f64>,
    /// Kill the command after this many seconds; it counts as failed (timeout). Default: never.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    pub deadline_secs: Option<f64>,
    /// Let it run on when its owner ends.
    #[serde(default)]
    pub keep: bool,
    /// Work in a new git worktree on a branch of its own, from the HEAD of its directory.
    #[serde(default)]
    pub worktree: bool,
    /// The same key with the same arguments is the same run, however often you call.
    #[serde(default)]
    pub key: Option<String>,
    /// The condition under which it counts as ready.
    #[serde(default)]
    pub ready: Option<ReadyWhen>,
    /// Keep its standard input open for send_message.
    #[serde(default)]
    pub stdin: bool,
}

/// The condition under which a command counts as ready: exactly one of the fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadyWhen {
    /// A line of its output matches this regular expression.
    #[serde(default)]
    pub output: Option<String>,
    /// It accepts connections on this port of localhost.
    #[serde(default)]
    pub port: Option<u16>,
    /// This URL of localhost answers with a success.
    #[serde(default)]
    pub http: Option<String>,
}

impl ToolArgs for RunProcess {
    const NAME: &'static str = "run_process";
    const TITLE: &'static str = "Run a command";
    const HINTS: ToolHints = ToolHints::STARTS_WORK;

    fn description(audience: Audience) -> String {
        match audience {
            Audience::Agent => {
                "Run a shell command: builds, tests, servers, everything that a shell does. The call \
                 waits up to wait_secs; then the command moves to the background and you get its \
                 address. For several at once: background: true. You are notified when a background \
                 command ends; read_output reads its output, send_message writes a line to its \
                 standard input, stop_task ends it. Not for waiting by sleeping: use wait_tasks."
            }
            Audience::Client(_) => {
                "Run a shell command that survives this conversation: builds, tests, servers, anything \
                 over a minute or worth keeping. It runs on when this client or the daemon is killed; \
                 its exit code and output stay readable. The call waits up to wait_secs; then the \
                 command moves to the background and you get its address. For several at once: \
                 background: true, then wait_tasks. wait_secs never ends the command; deadline_secs \
                 does. Not for a quick look at files: use your own shell."
            }
        }
        .to_owned()
    }

    const ALIASES: &'static [ArgumentAlias] =
        &[ArgumentAlias { alias: "run_in_background", name: "background" }];

    fn hidden_args(audience: Audience) -> &'static [&'static str] {
        let hidden = HiddenArgs { agent: &["stdin"], inner_client: &[], top_client: &["keep"] };
        hidden.select(audience)
    }

    fn argument_docs(audience: Audience) -> Vec<ArgumentDoc> {
        let base = if audience.is_agent() { "your directory" } else { "the workspace" };
        let owner = if audience.is_agent() { "you end" } else { "the task that you run in ends" };
        let background = "Return its address at once. Use it to run several commands at once.";
        let background = match audience {
            Audience::Agent => format!("{background} Only then can send_message write to it."),
            Audience::Client(_) => background.to_owned(),
        };
        let wait = format!(
            "Seconds that this call waits; then the command moves to the background. {} The command \
             is not killed: deadline_secs does that. 0 returns at once.",
            render_wait_range(audience)
        );
        let cwd =
            format!("The working directory: absolute, or relative to {base}. Default: {base}.");
        let keep = format!("Let it run on when {owner}, instead of being stopped.");
        vec![
            ArgumentDoc::new("cwd", cwd),
            ArgumentDoc::new("background", background),
            ArgumentDoc::new("wait_secs", wait),
            ArgumentDoc::new("keep", keep),
            ArgumentDoc::new("ready", READY_DOC.to_owned()),
        ]
    }
}

const READY_DOC: &str = "For a server in the background: counts as ready when a line of its output \
    matches a regular expression (output), when it accepts connections on a port of localhost (port), or \
    when a URL such as http://localhost:8000/ answers (http). Then call wait_tasks with until: \
    \"ready\".";

/// Renders the bounds of `wait_secs` for its description.
fn render_wait_range(audience: Audience) -> String {
    let default = default_wait(audience).as_secs();
    match audience {
        Audience::Agent => format!("Default {default}."),
        Audience::Client(client) => {
            format!("Default {default}, most {}.", client.wait.max_secs)
        }
    }
}

fn default_wait(audience: Audience) -> Duration {
    Duration::from_secs(match audience {
        Audience::Agent => AGENT_DEFAULT_WAIT_SECS,
        Audience::Client(client) => client.wait.default_secs,
    })
}

impl RunProcess {
    /// Returns the timeout of the call.
    pub fn wait(&self, audience: Audience) -> Result<Duration, Refusal> {
        match self.wait_secs {
            Some(secs) => audience.read_wait("wait_secs", secs),
            None => Ok(default_wait(audience)),
        }
    }

    /// Returns the time after which the process is ended.
    pub fn deadline(&self) -> Result<Option<Duration>, Refusal> {
        self.deadline_secs.map(read_deadline).transpose()
    }

    pub fn check(&self) -> Result<(), Refusal> {
        require_text("command", &self.command)?;
        self.readiness_check().map(|_| ())
    }

    /// Returns the condition under which the process counts as ready.
    pub fn readiness_check(&self) -> Result<Option<ReadinessCheck>, Refusal> {
        let check = self.ready.as_ref().map(|ready| {
            ReadinessCheck::from_fields(ready.output.as_deref(), ready.port, ready.http.as_deref())
        });
        check.transpose()
    }
}
