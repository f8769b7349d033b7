//! Runs a command that outlives whoever asked for it.

use std::path::Path;

use brigade_delegation::ended_task::share;
use brigade_delegation::span::truncate_line;
use brigade_delegation::{BackgroundReason, BackgroundTask, EndedResult, EndedTask, RunProcess};
use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;
use brigade_model::work::EnvValue;

use super::summary::{summary, user_approvals};
use super::tool::{Answer, Call, Tool};
use super::{approvals, tasks, text};
use crate::info::TaskInfo;
use crate::requests::{Command, Exec, Started};

impl Tool for RunProcess {
    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        // All that is wrong is said before anything is started.
        self.check()?;
        let wait = self.wait(call.audience())?;
        let exec = exec(&self, call)?;
        let started = call.line.ask(|| exec.clone()).await?;
        let address = call.address(&started.task);
        let patience = match (self.background || wait.is_zero(), call.knows_tasks) {
            (true, _) => return in_background(call, &started, BackgroundReason::Asked).await,
            (false, true) => tasks::AT_ONCE.min(wait),
            (false, false) => wait,
        };
        let mut waited = call.wait(&[address], WaitMode::All, patience).await?;
        match (waited.ended.pop(), call.knows_tasks) {
            (Some(ended), _) => ended_answer(call, &ended).await,
            (None, true) => Ok(Answer::Task(Box::new(started.task))),
            (None, false) => in_background(call, &started, BackgroundReason::Slow(wait)).await,
        }
    }
}

fn exec(asked: &RunProcess, call: &Call) -> Result<Exec, Refusal> {
    let mut exec = Exec::new(&call.options.session, Command::Shell(asked.command.clone()));
    exec.name = asked.name.clone();
    exec.key = Some(asked.key.clone().unwrap_or_else(|| call.key.clone()));
    exec.cwd = Some(directory(&call.options.directory, asked.cwd.as_deref())?);
    let usual = call.options.env.iter().filter(|(name, _)| !asked.env.contains_key(name));
    exec.env = usual.cloned().collect();
    for (name, value) in &asked.env {
        exec.env.push((name.clone(), EnvValue::Text(value.as_str().into())));
    }
    exec.reads_messages = asked.stdin;
    exec.deadline_ms = asked.deadline()?.map(|deadline| deadline.as_millis() as u64);
    exec.keep = asked.keep;
    Ok(exec)
}

/// Looked at here, where it can still be corrected.
pub(super) fn directory(workspace: &Path, cwd: Option<&str>) -> Result<String, Refusal> {
    let path = cwd.map_or_else(|| workspace.to_owned(), |cwd| workspace.join(cwd));
    let shown = truncate_line(&path.to_string_lossy(), 200);
    if !path.is_dir() {
        return Err(Refusal::invalid(format!("the argument `cwd`: {shown} is not a directory")));
    }
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(Refusal::invalid(format!("the path {shown} is not UTF-8"))),
    }
}

/// How it ended, with the end of its output.
pub(super) async fn ended_answer(call: &Call, info: &TaskInfo) -> Result<Answer, Refusal> {
    let ended = ended_task(call, info).await;
    if matches!(ended.result, EndedResult::Unread) {
        return Err(Refusal::unavailable("its output cannot be read at this moment"));
    }
    Ok(Answer::Said(ended.render(share(1))))
}

/// A task that has ended, with what is shown of its result.
pub(super) async fn ended_task(call: &Call, info: &TaskInfo) -> EndedTask {
    let result = match info.is_command() {
        false => EndedResult::Value(info.result.clone()),
        true => match text::read_tail(call, &call.address(info)).await {
            Ok(tail) => EndedResult::Output(tail),
            Err(_) => EndedResult::Unread,
        },
    };
    EndedTask { summary: summary(call, info), result }
}

/// How it is, and how to get at the rest.
pub(super) async fn in_background(
    call: &Call,
    started: &Started,
    reason: BackgroundReason,
) -> Result<Answer, Refusal> {
    let address = call.address(&started.task);
    let info = call.show(&address).await?;
    let output = match info.is_agent() {
        true => None,
        false => text::read_tail(call, &address).await.ok(),
    };
    let pending = approvals::pending(call, &info).await?;
    let background = BackgroundTask {
        summary: summary(call, &info),
        reason,
        existed: started.existed,
        output,
        approvals: user_approvals(call, &pending),
        wake_line: call.is_woken.then(|| text::wake_line(call, &info)),
    };
    Ok(Answer::Said(background.render()))
}
