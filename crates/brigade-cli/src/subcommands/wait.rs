//! Waits for tasks.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_server::requests::{
    self, ListTasksRequest, PendingApprovalItem, WaitOrInputRequest, WaitReply,
};
use brigade_server::{DaemonConnection, TaskInfo};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::styled_line::StyledLine;
use crate::{duration, render};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Wait until tasks have ended; the exit code is the task's, of several the first failure's
///
/// Without an address it waits for everything that runs here. A task that has ended already is
/// answered at once, as often as it is asked for. When the time is up the tasks go on. Without a time
/// limit, an agent's question is told beside the output, once.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WaitArgs {
    /// The tasks
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Until one of them has ended
    #[arg(long, conflicts_with = "all")]
    any: bool,
    /// Until all of them have ended (this is the default)
    #[arg(long)]
    all: bool,
    /// No longer than this; then the exit code is 124, or 123 when only an answer is missing
    #[arg(long, short, value_name = "TIME", value_parser = duration::parse_duration)]
    timeout: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  brigade wait Tests && git push
  brigade wait --any 3 4 5
  brigade wait --timeout 5m process:3 || echo 'not yet, or not well'";

impl WaitArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let until = self.timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        let mut client = context.connect_daemon().await?;
        let tasks = match self.addresses.as_slice() {
            [] => list_alive(context, &mut client).await?,
            addresses => addresses.to_vec(),
        };
        if tasks.is_empty() {
            render::print_note("nothing runs here");
            print_reply(context, &WaitReply::default())?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let mode = if self.any { WaitMode::Any } else { WaitMode::All };
        let waited = loop {
            let left = until.map(|until| until.duration_since(tokio::time::Instant::now()));
            let left = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            let (session, tasks) = (context.session_name()?, tasks.clone());
            let asked = requests::WaitRequest { session, tasks, mode, timeout_ms: left };
            let waited = tokio::select! {
                waited = client.call(asked.clone()) => waited,
                // With patience, that is told when it is over.
                never = print_questions(&client, &asked), if left.is_none() => match never {},
            };
            match waited.map_err(CliError::from) {
                // Another daemon takes over; what is waited for does not notice.
                Err(failure) if failure.is_lost_daemon() => {
                    client = context.connect_daemon().await?
                }
                waited => break waited?,
            }
        };
        print_reply(context, &waited)?;
        Ok(reply_exit_code(&waited))
    }
}

async fn list_alive(
    context: &CliContext,
    client: &mut DaemonConnection,
) -> Result<Vec<String>, CliError> {
    let list = ListTasksRequest {
        session: Some(context.session_name()?),
        include_ended: false,
        limit: None,
    };
    let tasks = context.list_tasks_over(client, list).await?;
    Ok(tasks.into_iter().filter(|task| task.alive).map(|task| task.address).collect())
}

/// Says who asks what and waits for which approval, each once: nobody else may know that the wait is for an answer.
async fn print_questions(client: &DaemonConnection, waited: &requests::WaitRequest) -> Infallible {
    let mut told = HashSet::new();
    while let Ok(heard) = client.call(WaitOrInputRequest(waited.clone())).await {
        for task in heard.still_running.iter().filter(|task| !task.questions.is_empty()) {
            let mut new = task.questions.iter();
            if new.any(|question| told.insert((task.address.clone(), question.call))) {
                print_question(task);
            }
        }
        for one in &heard.pending_approvals {
            if told.insert((one.address.clone(), one.approval.call)) {
                print_approval(one);
            }
        }
        // It is answered at once while the question or the call is open.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    // The wait itself says what is wrong.
    std::future::pending().await
}

fn print_question(task: &TaskInfo) {
    let called = render::render_label(task);
    for question in &task.questions {
        let what = match &question.client_call {
            Some(_) => question.verb(),
            None => "waits for an answer to",
        };
        render::print_note(&format!(
            "{called} {what}: {}",
            render::render_one_line(&question.text)
        ));
    }
    render::print_note(&format!("`brigade answer {} TEXT` gives it", task.address));
}

fn print_approval(pending: &PendingApprovalItem) {
    let PendingApprovalItem { address, name, approval, .. } = pending;
    let called = name.as_ref().unwrap_or(address);
    let text = render::render_one_line(&approval.text);
    render::print_note(&format!("{called} waits for approval: {text}"));
    render::print_note(&format!(
        "`brigade approve {address} {} --show` says how it is given",
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
                    let (called, address) = (render::render_label(task), &task.address);
                    let (text, call) = (render::render_one_line(&approval.text), approval.call);
                    render::print_note(&format!("{called} waits for leave: {text}"));
                    render::print_note(&format!(
                        "`brigade approve {address} {call} --show` says how it is given"
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
    let all_ask =
        waited.still_running.iter().all(|task| render::render_pending_input(task).is_some());
    match exits.into_iter().find(|exit| *exit != CliExitCode::SUCCEEDED) {
        _ if waited.timed_out && all_ask => CliExitCode::INPUT_REQUIRED,
        _ if waited.timed_out => CliExitCode::TIMED_OUT,
        Some(failed) => failed,
        None => CliExitCode::SUCCEEDED,
    }
}
