//! `brigade wait`: waits for tasks.

use brigade_model::duration::parse_duration;
use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{
    self, ListTasksRequest, OutputOffset, PendingApprovalItem, ReadOutputRequest, StreamSelection,
    WaitReply, WaitUntil,
};
use brigade_protocol::{DaemonConnection, TaskInfo, TaskTarget};

use crate::context::{CliContext, call_over, follow_over, list_tasks_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

/// The end of the output that is printed of a task that never became ready.
const LAST_OUTPUT_BYTES: u64 = 4_000;
const LAST_OUTPUT_LINES: usize = 10;
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Wait until tasks end; the exit code is the task's, of several the first failure's
///
/// Without an address, waits for all alive tasks of this workspace. An ended task is reported at
/// once, as often as you ask. After the timeout the tasks keep running. Without a timeout,
/// questions and pending approvals are printed to stderr, once.
///
/// With --ready, waits until processes that were started with `brigade exec --ready`, --ready-port or
/// --ready-http are ready. The exit code is 0 then; if one ends before, it is that of the task and never
/// 0.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WaitArgs {
    /// Tasks to wait for
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Wait until one task ends
    #[arg(long, conflicts_with = "all")]
    any: bool,
    /// Wait until all tasks end (the default)
    #[arg(long)]
    all: bool,
    /// Wait until the tasks are ready, not until they end
    #[arg(long, requires = "addresses")]
    ready: bool,
    /// Wait at most this long; then the exit code is 124, or 123 if only input is missing
    #[arg(long, short, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  brigade wait Tests && git push
  brigade wait --any 3 4 5
  brigade wait --ready Server --timeout 1m && curl localhost:8000
  brigade wait --timeout 5m process:3 || echo 'running or failed'";

impl WaitArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let deadline = self.timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        let client = context.connect_daemon().await?;
        let tasks = match self.addresses.as_slice() {
            [] => list_alive(context, &client).await?,
            addresses => addresses.to_vec(),
        };
        if tasks.is_empty() {
            render::print_note("no tasks run here");
            print_reply(context, &WaitReply::default())?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let mode = if self.any { WaitMode::Any } else { WaitMode::All };
        let wait = async |connection: DaemonConnection| {
            let remaining =
                deadline.map(|deadline| deadline.duration_since(tokio::time::Instant::now()));
            let timeout_ms =
                remaining.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            let session = context.session_name()?;
            let tasks = tasks.clone();
            let until = if self.ready { WaitUntil::Ready } else { WaitUntil::Ended };
            let request = requests::WaitRequest { session, tasks, mode, timeout_ms, until };
            tokio::select! {
                waited = connection.call(request.clone()) => Ok(waited?),
                // With a timeout, the reply reports them.
                never = print_questions(&connection, &request), if timeout_ms.is_none() && !self.ready => {
                    match never {}
                }
            }
        };
        let waited = follow_over(&client, wait).await?;
        print_reply(context, &waited)?;
        if !self.ready {
            return Ok(reply_exit_code(&waited));
        }
        if !context.json {
            for task in &waited.ended {
                print_unready_end(&client, task).await;
            }
        }
        Ok(readiness_exit_code(&waited, mode))
    }
}

/// Prints that a task ended before it was ready, and its last output.
async fn print_unready_end(client: &DaemonClient, task: &TaskInfo) {
    let label = render::render_label(task);
    render::print_note(&format!("{label} ended before it was ready"));
    let read = ReadOutputRequest {
        target: TaskTarget { session: task.session.clone(), task: task.address.clone() },
        streams: StreamSelection::Combined,
        from: OutputOffset::FromEnd(LAST_OUTPUT_BYTES),
        max_bytes: usize::try_from(LAST_OUTPUT_BYTES).unwrap_or(usize::MAX),
    };
    // A task that was not started has no output.
    let Ok(page) = call_over(client, read).await else { return };
    let text = page.text();
    let lines: Vec<&str> = text.lines().collect();
    for line in lines.iter().skip(lines.len().saturating_sub(LAST_OUTPUT_LINES)) {
        render::print_note(&format!("  {line}"));
    }
}

async fn list_alive(context: &CliContext, client: &DaemonClient) -> Result<Vec<String>, CliError> {
    let list = ListTasksRequest {
        session: Some(context.session_name()?),
        include_ended: false,
        limit: None,
    };
    let tasks = list_tasks_over(client, list).await?;
    Ok(tasks.into_iter().filter(|task| task.alive).map(|task| task.address).collect())
}

/// Prints each question and pending approval once, since nobody else may know that a task needs
/// input.
async fn print_questions(client: &DaemonConnection, wait: &requests::WaitRequest) -> Infallible {
    let mut printed = HashSet::new();
    let wait = requests::WaitRequest { until: WaitUntil::EndedOrInput, ..wait.clone() };
    while let Ok(reply) = client.call(wait.clone()).await {
        for task in reply.still_running.iter().filter(|task| !task.questions.is_empty()) {
            let mut new = task.questions.iter();
            if new.any(|question| printed.insert((task.address.clone(), question.call))) {
                print_question(task);
            }
        }
        for pending in &reply.pending_approvals {
            if printed.insert((pending.address.clone(), pending.approval.call)) {
                print_approval(pending);
            }
        }
        // The daemon replies at once while the question or the call is open.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    // The wait itself reports the error.
    std::future::pending().await
}

fn print_question(task: &TaskInfo) {
    let label = render::render_label(task);
    for question in &task.questions {
        let verb = match &question.client_call {
            Some(_) => question.verb(),
            None => "waits for an answer to",
        };
        render::print_note(&format!("{label} {verb}: {}", render::render_one_line(&question.text)));
    }
    render::print_note(&format!("`brigade answer {} TEXT` answers it", task.address));
}

fn print_approval(pending: &PendingApprovalItem) {
    let PendingApprovalItem { address, name, approval, .. } = pending;
    let label = name.as_ref().unwrap_or(address);
    let text = render::render_one_line(&approval.text);
    render::print_note(&format!("{label} needs approval: {text}"));
    render::print_note(&format!(
        "`brigade approve {address} {} --show` shows the call",
        approval.call
    ));
}

fn print_reply(context: &CliContext, waited: &WaitReply) -> Result<(), CliError> {
    if context.json {
        return render::print_json(waited);
    }
    for task in waited.ready.iter().chain(&waited.ended) {
        let line = StyledLine::from(render::render_label(task)).text(" ");
        render::print_line(
            line.styled(render::state_style(&task.state), render::render_state_and_reason(task)),
        )?;
    }
    if waited.timed_out {
        for task in &waited.still_running {
            match (task.questions.as_slice(), task.approvals.first()) {
                (_, Some(approval)) => {
                    let label = render::render_label(task);
                    let address = &task.address;
                    let text = render::render_one_line(&approval.text);
                    let call = approval.call;
                    render::print_note(&format!("{label} needs approval: {text}"));
                    render::print_note(&format!(
                        "`brigade approve {address} {call} --show` shows the call"
                    ));
                }
                ([], None) => {
                    render::print_note(&format!(
                        "{} is still {}",
                        render::render_label(task),
                        task.state
                    ));
                }
                _ => print_question(task),
            }
        }
    }
    Ok(())
}

/// Returns the exit code of a wait for readiness. A task that ended before it was ready fails it, also
/// one that succeeded.
fn readiness_exit_code(waited: &WaitReply, mode: WaitMode) -> CliExitCode {
    if waited.timed_out {
        return CliExitCode::TIMED_OUT;
    }
    let is_met = mode == WaitMode::Any && !waited.ready.is_empty();
    match waited.ended.first().filter(|_| !is_met).map(CliExitCode::for_task) {
        None => CliExitCode::SUCCEEDED,
        Some(CliExitCode::SUCCEEDED) => CliExitCode::FAILED,
        Some(failed) => failed,
    }
}

fn reply_exit_code(waited: &WaitReply) -> CliExitCode {
    let exits = waited.ended.iter().map(CliExitCode::for_task);
    let all_need_input =
        waited.still_running.iter().all(|task| render::render_pending_input(task).is_some());
    match exits.into_iter().find(|exit| *exit != CliExitCode::SUCCEEDED) {
        _ if waited.timed_out && all_need_input => CliExitCode::INPUT_REQUIRED,
        _ if waited.timed_out => CliExitCode::TIMED_OUT,
        Some(failed) => failed,
        None => CliExitCode::SUCCEEDED,
    }
}
