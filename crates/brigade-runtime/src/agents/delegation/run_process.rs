//! Runs a command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brigade_agent::{Call, Effect, Hints, Outcome, Outliving, Subject, ToolError};
use brigade_model::call::{Answer, Asked, WaitMode};
use brigade_model::ids::Millis;
use brigade_model::patience::wait_timeout;
use brigade_model::refusal::Refusal;
use brigade_model::work::EnvValue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Delegate, Delegation, not_blank, wait_tasks};
use crate::agents::blueprint::Parent;
use crate::agents::link::spawned;
use crate::jobs::Handlers;
use crate::new_task::NewTask;

const PATIENCE_DEFAULT: f64 = 120.0;
const DEADLINE_MAX: u64 = 100_000_000;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunProcess {
    /// A command line for bash, or for /bin/sh where there is no bash, unless another shell is configured.
    command: String,
    /// A name to find it by, such as "Tests". Free again when it has ended.
    #[serde(default)]
    name: Option<String>,
    /// Where it runs: absolute, or relative to your directory. Default: your directory.
    #[serde(default)]
    cwd: Option<String>,
    /// Environment variables beside the usual ones. They are stored: no secrets.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Return its address at once instead of waiting for it. Only then can it be written to.
    #[serde(default)]
    background: bool,
    /// How long to wait before it moves to the background and its address is returned. Default: 120.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    timeout_secs: Option<f64>,
    /// End it as failed (timeout) after so many seconds. Default: never.
    #[serde(default)]
    deadline_secs: Option<u64>,
    /// Let it go on when you end, instead of being stopped.
    #[serde(default)]
    keep: bool,
    /// The same key with the same arguments is the same run, however often it is asked for.
    #[serde(default)]
    key: Option<String>,
}

impl Delegation for RunProcess {
    const NAME: &'static str = "run_process";
    const DESCRIPTION: &'static str = "Run a shell command. Waits up to timeout_secs, then it goes on \
        in the background and you get its address; background: true returns at once. Use it for \
        builds, tests, servers and everything that a shell does. In the background you hear of its end \
        without asking; wait_tasks waits, read_output reads, send_message writes a line to its input, \
        stop_task ends it. Not for waiting by sleeping: wait_tasks does that.";
    const HINTS: Hints = Hints { destructive: true, ..Hints::of(Effect::Recorded) };

    fn subject(&self, directory: Option<&str>) -> Subject {
        // Variables can change what a command does as much as its words: `PATH=x git status` is
        // not `git status`. A name may be any text, and must not read as a command.
        let set =
            |(name, value): (&String, &String)| format!("{}={} ", quoted(name), quoted(value));
        let variables = self.env.iter().map(set);
        // So does a directory: `make test` is what its makefile says.
        let elsewhere = self.elsewhere(directory).map(|cwd| format!("PWD={} ", quoted(cwd)));
        Subject::Shell(
            elsewhere.into_iter().chain(variables).chain([self.command.clone()]).collect(),
        )
    }

    fn outliving(&self) -> Outliving {
        if self.keep { Outliving::Process } else { Outliving::Nothing }
    }

    fn acts_in(&self, own: Option<&str>) -> Option<String> {
        let path = match (own, &self.cwd) {
            (Some(own), Some(cwd)) => Path::new(own).join(cwd),
            (own, cwd) => own.or(cwd.as_deref())?.into(),
        };
        Some(path.display().to_string())
    }

    async fn run(self, delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        not_blank("command", &self.command)?;
        let patience = wait_timeout(self.timeout_secs.unwrap_or(PATIENCE_DEFAULT))?;
        let record = (call.place.effect(), call.effect.as_ref());
        let effect = delegate
            .link
            .spawn(record, || {
                let key = format!("call:{}", call.place.effect());
                let parent = Parent::Agent(&delegate.blueprint);
                self.new_task(delegate)?.into_spec(&Handlers::default(), Some(&key), parent)
            })
            .await?;
        let child = spawned(&effect)?;
        let address = format!("{}:{}", child.kind, child.no);
        match &call.told {
            Some(told) => self.told(delegate, told, child.no, &address).await,
            None if self.background => Ok(Outcome::text(format!("{address} has started."))),
            None => {
                let (tasks, mode) = (vec![child.no], WaitMode::All);
                let patience = Some(patience);
                let asked = Asked::Tasks { tasks, mode, patience, interruptible: true };
                Ok(Outcome::Park { asked, effect: Some(effect.clone()) })
            }
        }
    }
}

/// A text as a shell would take it for one word.
fn quoted(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=,@%+".contains(letter);
    if value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

impl RunProcess {
    fn new_task(&self, delegate: &Delegate) -> Result<NewTask, Refusal> {
        let mut task = NewTask::shell(&self.command);
        if self.background {
            task = task.reads_messages();
        }
        if let Some(name) = &self.name {
            task = task.name(name);
        }
        if let Some(directory) = self.directory(delegate.blueprint.directory.as_deref())? {
            task = task.cwd(directory);
        }
        for (name, value) in &self.env {
            task = task.env(name, EnvValue::Text(value.as_str().into()));
        }
        if let Some(seconds) = self.deadline_secs {
            if !(1..=DEADLINE_MAX).contains(&seconds) {
                return Err(Refusal::invalid(format!(
                    "the argument `deadline_secs`: give 1 to {DEADLINE_MAX}, not {seconds}"
                )));
            }
            task = task.deadline(Duration::from_secs(seconds));
        }
        if let Some(key) = &self.key {
            task = task.key(key);
        }
        Ok(if self.keep { task.keep() } else { task })
    }

    /// Where it runs, if that is not surely the agent's own directory.
    fn elsewhere(&self, own: Option<&str>) -> Option<&str> {
        let cwd = self.cwd.as_deref()?;
        let is_own = own.map(Path::new).is_some_and(|own| own.join(cwd) == own);
        (!is_own).then_some(cwd)
    }

    fn directory(&self, own: Option<&str>) -> Result<Option<PathBuf>, Refusal> {
        let path = match (own, &self.cwd) {
            (Some(own), Some(cwd)) => Path::new(own).join(cwd),
            (Some(own), None) => return Ok(Some(own.into())),
            (None, Some(cwd)) => cwd.into(),
            (None, None) => return Ok(None),
        };
        if path.is_dir() {
            return Ok(Some(path));
        }
        let shown = path.display();
        Err(Refusal::invalid(format!("the argument `cwd`: {shown} is not a directory")))
    }

    async fn told(
        &self,
        delegate: &Delegate,
        told: &Answer,
        no: brigade_model::ids::TaskNo,
        address: &str,
    ) -> Result<Outcome, ToolError> {
        match told {
            Answer::Elapsed => {
                let Millis(waited) = wait_timeout(self.timeout_secs.unwrap_or(PATIENCE_DEFAULT))?;
                Ok(Outcome::text(format!(
                    "It did not end within {} s and goes on in the background as {address}.",
                    waited / 1_000
                )))
            }
            told => wait_tasks::told(delegate, told, &[no]).await,
        }
    }
}
