//! Waits for tasks.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_server::requests::{self, Heed, List, PendingInfo, Waited};
use brigade_server::{Client, TaskInfo};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::styled_line::StyledLine;
use crate::{show, span};

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Wait until tasks have ended; the exit code is the task's, of several the first failure's
///
/// Without an address it waits for everything that runs here. A task that has ended already is
/// answered at once, as often as it is asked for. When the time is up the tasks go on. Without a time
/// limit, an agent's question is told beside the output, once.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Wait {
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
    #[arg(long, short, value_name = "TIME", value_parser = span::parse)]
    timeout: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  brigade wait Tests && git push
  brigade wait --any 3 4 5
  brigade wait --timeout 5m process:3 || echo 'not yet, or not well'";

impl Wait {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let until = self.timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        let mut client = context.daemon().await?;
        let tasks = match self.addresses.as_slice() {
            [] => living(context, &mut client).await?,
            addresses => addresses.to_vec(),
        };
        if tasks.is_empty() {
            show::note("nothing runs here");
            print(context, &Waited::default())?;
            return Ok(Exit::SUCCEEDED);
        }
        let mode = if self.any { WaitMode::Any } else { WaitMode::All };
        let waited = loop {
            let left = until.map(|until| until.duration_since(tokio::time::Instant::now()));
            let left = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            let (session, tasks) = (context.session()?, tasks.clone());
            let asked = requests::Wait { session, tasks, mode, timeout_ms: left };
            let waited = tokio::select! {
                waited = client.ask(asked.clone()) => waited,
                // With patience, that is told when it is over.
                never = tell_questions(&client, &asked), if left.is_none() => match never {},
            };
            match waited.map_err(Failure::from) {
                // Another daemon takes over; what is waited for does not notice.
                Err(failure) if failure.is_lost_daemon() => client = context.daemon().await?,
                waited => break waited?,
            }
        };
        print(context, &waited)?;
        Ok(exit(&waited))
    }
}

async fn living(context: &Context, client: &mut Client) -> Result<Vec<String>, Failure> {
    let list = List { session: Some(context.session()?), ended: false, most: None };
    let tasks = context.list_over(client, list).await?;
    Ok(tasks.into_iter().filter(|task| task.living).map(|task| task.address).collect())
}

/// Says who asks what and waits for which approval, each once: nobody else may know that the wait is for an answer.
async fn tell_questions(client: &Client, waited: &requests::Wait) -> Infallible {
    let mut told = HashSet::new();
    while let Ok(heard) = client.ask(Heed(waited.clone())).await {
        for task in heard.going_on.iter().filter(|task| !task.questions.is_empty()) {
            let mut new = task.questions.iter();
            if new.any(|question| told.insert((task.address.clone(), question.call))) {
                tell_question(task);
            }
        }
        for one in &heard.pending {
            if told.insert((one.address.clone(), one.approval.call)) {
                tell_approval(one);
            }
        }
        // It is answered at once while the question or the call is open.
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    // The wait itself says what is wrong.
    std::future::pending().await
}

fn tell_question(task: &TaskInfo) {
    let called = show::called(task);
    for question in &task.questions {
        let what = match &question.client {
            Some(_) => question.verb(),
            None => "waits for an answer to",
        };
        show::note(&format!("{called} {what}: {}", show::one_line(&question.text)));
    }
    show::note(&format!("`brigade answer {} TEXT` gives it", task.address));
}

fn tell_approval(pending: &PendingInfo) {
    let PendingInfo { address, name, approval, .. } = pending;
    let called = name.as_ref().unwrap_or(address);
    let text = show::one_line(&approval.text);
    show::note(&format!("{called} waits for approval: {text}"));
    show::note(&format!(
        "`brigade approve {address} {} --show` says how it is given",
        approval.call
    ));
}

fn print(context: &Context, waited: &Waited) -> Result<(), Failure> {
    if context.json {
        return show::json(waited);
    }
    for task in &waited.ended {
        let line = StyledLine::from(show::called(task)).text(" ");
        show::line(line.painted(show::style(&task.state), show::state_and_reason(task)))?;
    }
    if waited.timed_out {
        for task in &waited.going_on {
            match (task.questions.as_slice(), task.approvals.first()) {
                (_, Some(approval)) => {
                    let (called, address) = (show::called(task), &task.address);
                    let (text, call) = (show::one_line(&approval.text), approval.call);
                    show::note(&format!("{called} waits for leave: {text}"));
                    show::note(&format!(
                        "`brigade approve {address} {call} --show` says how it is given"
                    ));
                }
                ([], None) => {
                    show::note(&format!("{} is still {}", show::called(task), task.state));
                }
                _ => tell_question(task),
            }
        }
    }
    Ok(())
}

fn exit(waited: &Waited) -> Exit {
    let exits = waited.ended.iter().map(Exit::of);
    let all_ask = waited.going_on.iter().all(|task| show::asks(task).is_some());
    match exits.into_iter().find(|exit| *exit != Exit::SUCCEEDED) {
        _ if waited.timed_out && all_ask => Exit::WAITS_FOR_INPUT,
        _ if waited.timed_out => Exit::TIME_IS_UP,
        Some(failed) => failed,
        None => Exit::SUCCEEDED,
    }
}
