//! Runs a process.

use std::path::{Path, PathBuf};

use brigade_agent::{OutlivingWork, ToolEffect, ToolError, ToolInvocation, ToolReply, ToolSubject};
use brigade_delegation::background_task::{render_started, render_timed_out};
use brigade_delegation::{Audience, RunProcess};
use brigade_model::call::{CallCompletion, ConditionRequest, WaitMode};
use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_model::work::EnvValue;

use super::{AgentDelegationTool, DelegationContext, wait_tasks};
use crate::agents::task_link::{CallSlot, expect_spawned};
use crate::jobs::HandlerRegistry;
use crate::new_task::{NewTask, ProcessTask};
use crate::spawn_parent::SpawnParent;

impl AgentDelegationTool for RunProcess {
    const EFFECT: ToolEffect = ToolEffect::Recorded;

    fn subject(&self, directory: Option<&str>) -> ToolSubject {
        // Variables can change a command line as much as its words: `PATH=x git status` is not `git
        // status`. A name may be any text, so it is quoted and cannot read as a command line.
        let variables = self
            .env
            .iter()
            .map(|(name, value)| format!("{}={} ", shell_quote(name), shell_quote(value)));
        // The directory counts too: `make test` runs what its makefile says.
        let elsewhere =
            foreign_directory(&self.cwd, directory).map(|cwd| format!("PWD={} ", shell_quote(cwd)));
        ToolSubject::Shell(
            elsewhere.into_iter().chain(variables).chain([self.command.clone()]).collect(),
        )
    }

    fn outliving(&self) -> OutlivingWork {
        if self.keep { OutlivingWork::Process } else { OutlivingWork::Nothing }
    }

    fn acts_in(&self, own: Option<&str>) -> Option<String> {
        let path = match (own, &self.cwd) {
            (Some(own), Some(cwd)) => Path::new(own).join(cwd),
            (own, cwd) => own.or(cwd.as_deref())?.into(),
        };
        Some(path.display().to_string())
    }

    async fn run(
        self,
        delegate: &DelegationContext,
        call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        self.check()?;
        let wait = self.wait(Audience::Agent)?;
        let slot = CallSlot { index: call.slot_range.effect(), recorded: call.effect.as_ref() };
        let effect = delegate
            .link
            .spawn(slot, || {
                let key = format!("call:{}", call.slot_range.effect());
                let parent = SpawnParent::Agent(&delegate.blueprint);
                new_task(&self, delegate)?.into_draft().into_spec(
                    &HandlerRegistry::default(),
                    Some(&key),
                    parent,
                )
            })
            .await?;
        let child = expect_spawned(&effect)?;
        let address = format!("{}:{}", child.kind, child.no);
        match &call.completion {
            Some(completion) if matches!(**completion, CallCompletion::Elapsed) => {
                Ok(ToolReply::text(render_timed_out(&address, wait).text()))
            }
            Some(completion) => {
                wait_tasks::render_completion(delegate, completion, &[child.no]).await
            }
            None if self.background => {
                Ok(ToolReply::text(render_started(&address, child.existing).text()))
            }
            None => {
                let asked = ConditionRequest::Tasks {
                    tasks: vec![child.no],
                    mode: WaitMode::All,
                    timeout: Some(Millis(wait.as_millis() as u64)),
                    interruptible: true,
                };
                Ok(ToolReply::Park { condition: asked, effect: Some(effect.clone()) })
            }
        }
    }
}

/// Quotes a text so that a shell reads it as one word.
pub(in crate::agents) fn shell_quote(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=,@%+".contains(letter);
    if value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

fn new_task(
    args: &RunProcess,
    delegate: &DelegationContext,
) -> Result<NewTask<ProcessTask>, Refusal> {
    let mut task = NewTask::shell(&args.command);
    if args.background {
        task = task.reads_messages();
    }
    if let Some(name) = &args.name {
        task = task.name(name);
    }
    if let Some(directory) = resolve_directory(&args.cwd, delegate.blueprint.directory.as_deref())?
    {
        task = task.cwd(directory);
    }
    for (name, value) in &args.env {
        task = task.env(name, EnvValue::Text(value.as_str().into()));
    }
    if let Some(check) = args.readiness_check()? {
        task = task.ready(check);
    }
    if let Some(deadline) = args.deadline()? {
        task = task.deadline(deadline);
    }
    if let Some(key) = &args.key {
        task = task.key(key);
    }
    if args.worktree {
        task = task.worktree();
    }
    Ok(if args.keep { task.keep() } else { task })
}

/// Returns the directory of the process, unless it is certainly the agent's own.
fn foreign_directory<'a>(cwd: &'a Option<String>, own: Option<&str>) -> Option<&'a str> {
    let cwd = cwd.as_deref()?;
    let is_own = own.map(Path::new).is_some_and(|own| own.join(cwd) == own);
    (!is_own).then_some(cwd)
}

fn resolve_directory(cwd: &Option<String>, own: Option<&str>) -> Result<Option<PathBuf>, Refusal> {
    let path = match (own, cwd) {
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
