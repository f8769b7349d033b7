//! `run_process` for clients: runs a process that outlives its caller.

use brigade_model::work::{CommandLine, EnvValue, ProcessWork, StdinSource};
use std::path::Path;

use brigade_delegation::ended_task::bytes_per_result;
use brigade_delegation::{BackgroundReason, BackgroundTask, EndedResult, EndedTask, RunProcess};
use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_line;

use super::summary::{summarize_task, to_user_approvals};
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use super::{McpOptions, approval_forms, protocol_tasks, task_text};
use brigade_protocol::RequestClient;
use brigade_protocol::requests::{ExecRequest, StartReply};
use brigade_protocol::task_info::TaskInfo;

impl ClientDelegationTool for RunProcess {
    async fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> Result<McpToolReply, Refusal> {
        // Check all arguments before anything starts.
        self.check()?;
        let wait = self.wait(call.audience())?;
        let exec = exec_request(&self, call)?;
        let started = call.request_client.call(|| exec.clone()).await?;
        let address = call.address(&started.task);
        let timeout = match (self.background || wait.is_zero(), call.supports_tasks) {
            (true, _) => {
                return background_reply(call, &started, BackgroundReason::Requested).await;
            }
            (false, true) => protocol_tasks::IMMEDIATE_REPLY_TIMEOUT.min(wait),
            (false, false) => wait,
        };
        let mut waited = call.wait_for_tasks(&[address], WaitMode::All, timeout).await?;
        match (waited.ended.pop(), call.supports_tasks) {
            (Some(ended), _) => ended_reply(call, &ended).await,
            (None, true) => Ok(McpToolReply::Task(Box::new(started.task))),
            (None, false) => {
                background_reply(call, &started, BackgroundReason::TimedOut(wait)).await
            }
        }
    }
}

fn exec_request<C: RequestClient>(
    args: &RunProcess,
    call: &McpCallContext<C>,
) -> Result<ExecRequest, Refusal> {
    let mut process = ProcessWork::new(CommandLine::Shell(args.command.as_str().into()));
    let cwd = resolve_directory(&call.options, args.cwd.as_deref())?;
    process.cwd = Some(cwd.into());
    process.env.clone_from(&call.options.env);
    for (name, value) in &args.env {
        process.env.insert(name.as_str().into(), EnvValue::Text(value.as_str().into()));
    }
    if args.stdin {
        process.stdin = StdinSource::Messages;
    }
    process.ready = args.readiness_check()?;
    let mut exec = ExecRequest::new(&call.options.session, process);
    exec.name = args.name.clone();
    exec.key = Some(args.key.clone().unwrap_or_else(|| call.idempotency_key.clone()));
    exec.deadline_ms = args.deadline()?.map(|deadline| deadline.as_millis() as u64);
    exec.keep = args.keep;
    exec.worktree = args.worktree;
    Ok(exec)
}

/// Returns the path of a working directory. It must exist, so that the model can correct the
/// argument.
pub(super) fn resolve_directory(
    options: &McpOptions,
    cwd: Option<&str>,
) -> Result<String, Refusal> {
    let path = match (&options.directory, cwd.map(Path::new)) {
        (Some(directory), cwd) => directory.join(cwd.unwrap_or(Path::new(""))),
        (None, Some(cwd)) if cwd.is_absolute() => cwd.to_owned(),
        (None, _) => {
            return Err(Refusal::invalid(format!(
                "the session {} belongs to no directory: pass an absolute path as `cwd` of a \
                 command; sub-agents need the session of a directory",
                options.session
            )));
        }
    };
    let shown = truncate_line(&path.to_string_lossy(), 200);
    if !path.is_dir() {
        return Err(Refusal::invalid(format!("the argument `cwd`: {shown} is not a directory")));
    }
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(Refusal::invalid(format!("the path {shown} is not UTF-8"))),
    }
}

/// Returns the reply for an ended task, with its result.
pub(super) async fn ended_reply<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> Result<McpToolReply, Refusal> {
    let ended = read_ended_task(call, info).await;
    if matches!(ended.result, EndedResult::Unreadable) {
        return Err(Refusal::unavailable("its output cannot be read at this moment"));
    }
    Ok(McpToolReply::Reply(ended.render(bytes_per_result(1))))
}

/// Reads the shown part of an ended task's result.
pub(super) async fn read_ended_task<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> EndedTask {
    let result = match info.is_process() {
        false => EndedResult::Value(info.result.clone()),
        true => match task_text::read_tail(call, &call.address(info)).await {
            Ok(tail) => EndedResult::Output(tail),
            Err(_) => EndedResult::Unreadable,
        },
    };
    EndedTask { summary: summarize_task(call, info), result }
}

/// Returns the reply for a task that still runs, with its state and the next calls.
pub(super) async fn background_reply<C: RequestClient>(
    call: &McpCallContext<C>,
    started: &StartReply,
    reason: BackgroundReason,
) -> Result<McpToolReply, Refusal> {
    let address = call.address(&started.task);
    let info = call.show_task(&address).await?;
    let output = match info.is_agent() {
        true => None,
        false => task_text::read_tail(call, &address).await.ok(),
    };
    let pending = approval_forms::pending_approvals(call, &info).await?;
    let background = BackgroundTask {
        summary: summarize_task(call, &info),
        reason,
        existed: started.existed,
        output,
        approvals: to_user_approvals(call, &pending),
        wait_command: call.is_woken_by_shell.then(|| task_text::render_wait_command(call, &info)),
    };
    Ok(McpToolReply::Reply(background.render()))
}
