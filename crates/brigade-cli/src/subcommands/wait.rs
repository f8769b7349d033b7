//! `brigade wait`: waits for tasks.

use brigade_model::duration::parse_duration;
use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{
    self, ListTasksRequest, PendingApprovalItem, WaitReply, WaitUntil,
};
use brigade_protocol::{DaemonConnection, TaskInfo};

use crate::context::{CliContext, follow_over, list_tasks_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Wait until tasks end; the exit code is the task's, of several the first failure's
///
/// Without an address, waits for all alive tasks of this workspace. An ended task is reported at
/// once, as often as you ask. After the timeout the tasks keep running. Without a timeout,
/// questions and pending approvals are printed to stderr, once.
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
    /// Wait at most this long; then the exit code is 124, or 123 if only input is missing
    #[arg(long, short, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  brigade wait Tests && git push
  brigade wait --any 3 4 5
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
            let until = WaitUntil::Ended;
            let request = requests::WaitRequest { session, tasks, mode, timeout_ms, until };
            tokio::select! {
                waited = connection.call(request.clone()) => Ok(waited?),
                // With a timeout, the reply reports them.
                never = print_questions(&connection, &request), if timeout_ms.is_none() => match never {},
            }
        };
        let waited = follow_over(&client, wait).await?;
        print_reply(context, &waited)?;
        Ok(reply_exit_code(&waited))
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
    for task in &waited.ended {
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
