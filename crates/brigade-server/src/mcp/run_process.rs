//! Runs a command that outlives whoever asked for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;
use brigade_model::work::EnvValue;
use rmcp::model::ToolAnnotations;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::text::{self, Tail};
use super::tool::{Answer, Call, Tool};
use super::{agents, approvals, input, tasks};
use crate::info::TaskInfo;
use crate::requests::{Command, Exec, Started};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunProcess {
    /// A command line for bash, or for /bin/sh where there is no bash, unless another shell is configured.
    command: String,
    /// A name to find it by, such as "Tests". Free again when it has ended.
    #[serde(default)]
    name: Option<String>,
    /// Where it runs: absolute, or relative to the workspace. Default: the workspace.
    #[serde(default)]
    cwd: Option<String>,
    /// Environment variables beside the usual ones. They are stored: no secrets.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Return its address at once instead of waiting for it.
    #[serde(default)]
    background: bool,
    /// How long to wait before it moves to the background and its address is returned. Default: 50.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    timeout_secs: Option<f64>,
    /// End it as failed (timeout) after so many seconds. Default: never.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    deadline_secs: Option<f64>,
    /// Let it go on when the task that started it ends; only for calls from within a task.
    #[serde(default)]
    keep: bool,
    /// The same key with the same arguments is the same run, however often it is asked for.
    #[serde(default)]
    key: Option<String>,
    /// Keep its standard input open for send_message.
    #[serde(default)]
    stdin: bool,
}

impl Tool for RunProcess {
    const NAME: &'static str = "run_process";
    const TITLE: &'static str = "Run a command";
    const DESCRIPTION: &'static str = "Run a shell command that survives this session: builds, test \
        suites, servers, anything long or worth not losing. It runs on when the client, this server or \
        the daemon is killed, and its true exit code and output stay readable. Waits up to \
        timeout_secs, then returns its address for wait_tasks, read_output, send_message and \
        stop_task. Not for quick looks at files or one-line commands that your own shell does as well.";

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true)
    }

    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        // All that is wrong is said before anything is started.
        let patience = input::patience(self.timeout_secs)?;
        let exec = self.exec(call)?;
        let started = call.line.ask(|| exec.clone()).await?;
        let address = call.address(&started.task);
        let patience = match (self.background, call.knows_tasks) {
            (true, _) => return in_background(call, &started, Why::Asked).await,
            (false, true) => tasks::AT_ONCE.min(patience),
            (false, false) => patience,
        };
        let mut waited = call.wait(&[address], WaitMode::All, patience).await?;
        match (waited.ended.pop(), call.knows_tasks) {
            (Some(ended), _) => ended_answer(call, &ended).await,
            (None, true) => Ok(Answer::Task(Box::new(started.task))),
            (None, false) => in_background(call, &started, Why::Slow(patience)).await,
        }
    }
}

impl RunProcess {
    fn exec(&self, call: &Call) -> Result<Exec, Refusal> {
        let mut exec = Exec::new(&call.options.session, Command::Shell(self.command.clone()));
        exec.name = self.name.clone();
        exec.key = Some(self.key.clone().unwrap_or_else(|| call.key.clone()));
        exec.cwd = Some(directory(&call.options.directory, self.cwd.as_deref())?);
        let usual = call.options.env.iter().filter(|(name, _)| !self.env.contains_key(name));
        exec.env = usual.cloned().collect();
        for (name, value) in &self.env {
            exec.env.push((name.clone(), EnvValue::Text(value.as_str().into())));
        }
        exec.reads_messages = self.stdin;
        exec.deadline_ms = self.deadline_secs.map(input::deadline).transpose()?;
        exec.keep = self.keep;
        Ok(exec)
    }
}

/// Looked at here, where it can still be corrected.
pub(super) fn directory(workspace: &Path, cwd: Option<&str>) -> Result<String, Refusal> {
    let path = cwd.map_or_else(|| workspace.to_owned(), |cwd| workspace.join(cwd));
    let shown = text::clip(&path.to_string_lossy(), 200);
    if !path.is_dir() {
        return Err(Refusal::invalid(format!("the argument `cwd`: {shown} is not a directory")));
    }
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(Refusal::invalid(format!("the path {shown} is not UTF-8"))),
    }
}

/// How it ended, with the end of its output. The run's own failure is a result like any other.
pub(super) async fn ended_answer(call: &Call, info: &TaskInfo) -> Result<Answer, Refusal> {
    if info.is_agent() {
        return Ok(agents::ended(call, info));
    }
    let address = call.address(info);
    let tail = Tail::read(call, &address).await?;
    let shown = tail.shown(&address);
    let mut text = text::headline(call, info);
    if shown.is_empty() {
        text.push_str("\n(no output)");
    } else {
        text = format!("{text}\n{shown}");
    }
    let mut structured = text::structured(call, info);
    structured["output"] = tail.structured();
    Ok(Answer::Said { text, structured })
}

/// Why an answer comes before the end.
pub(super) enum Why {
    Asked,
    Slow(Duration),
}

/// How it is, and how to get at the rest.
pub(super) async fn in_background(
    call: &Call,
    started: &Started,
    why: Why,
) -> Result<Answer, Refusal> {
    let address = call.address(&started.task);
    let info = call.show(&address).await?;
    let tail = match info.is_agent() {
        true => None,
        false => Tail::read(call, &address).await.ok(),
    };
    let wake = call.is_woken.then(|| text::wake_line(call, &info));
    let mut text = text::headline(call, &info);
    match why {
        Why::Slow(patience) if info.living => text.push_str(&format!(
            "\nIt did not end within {}s and goes on in the background.",
            patience.as_secs()
        )),
        _ if started.existed => text.push_str("\nIt had been started before under this key."),
        _ => {}
    }
    let pending = approvals::pending(call, &info).await?;
    let lines = agents::asks(call, &info).into_iter().chain(agents::approvals(call, &pending));
    for line in lines {
        text.push_str(&format!("\n{line}"));
    }
    if let Some(shown) = tail.as_ref().map(|tail| tail.shown(&address)).filter(|s| !s.is_empty()) {
        text.push_str(&format!("\nOutput so far:\n{shown}"));
    }
    text.push_str(&format!(
        "\nwait_tasks returns its result; read_output, send_message and stop_task take {address:?}."
    ));
    if let Some(wake) = &wake {
        text.push_str(&format!(
            " To be woken when it ends, run this in a background shell of your own:\n{wake}"
        ));
    }
    let mut structured = text::structured(call, &info);
    structured["existed"] = json!(started.existed);
    agents::add_approvals(&mut structured, call, &pending);
    if let Some(wake) = wake {
        structured["wait_command"] = json!(wake);
    }
    if let Some(tail) = tail {
        structured["output"] = tail.structured();
    }
    Ok(Answer::Said { text, structured })
}
