//! Shows what happened.

use brigade_model::call::Condition;
use brigade_model::event::Event;
use brigade_server::DaemonConnection;
use brigade_server::daemon_connection::ReplyStreamPart;
use brigade_server::requests::{self, EventItem};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::{duration, render};

/// Show what happened here, in order; with -f also what happens
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EventsArgs {
    /// Go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// Only what came after this position
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    from: u64,
    /// Of every workspace
    #[arg(long, short)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade events
  brigade events -f --from 1042             go on where you left off
  brigade events -f --all --json";

impl EventsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let session = if self.all { None } else { Some(context.session_name()?) };
        let mut asked =
            requests::ReadEventsRequest { session, after: self.from, follow: self.follow };
        let mut client = context.connect_daemon().await?;
        loop {
            match self.print_events(context, &client, &mut asked).await {
                // The next one goes on at the same position.
                Err(failure) if failure.is_lost_daemon() => {
                    client = context.connect_next_daemon().await?
                }
                shown => return shown.map(|()| CliExitCode::SUCCEEDED),
            }
        }
    }

    async fn print_events(
        &self,
        context: &CliContext,
        client: &DaemonConnection,
        asked: &mut requests::ReadEventsRequest,
    ) -> Result<(), CliError> {
        let mut events = client.call_streaming(asked.clone())?;
        while let ReplyStreamPart::Item(happened) = events.next_part().await? {
            if context.json {
                render::print_json(&happened)?;
            } else {
                render::print_line(render_item(&happened, self.all))?;
            }
            let (EventItem::Event { position, .. } | EventItem::Gap { to: position }) = happened;
            asked.after = position;
        }
        Ok(())
    }
}

fn render_item(happened: &EventItem, all: bool) -> String {
    match happened {
        EventItem::Gap { to } => format!("{to:>6}  events up to here are no longer kept"),
        EventItem::Event { position, session, at, event, .. } => {
            let session =
                if all { format!("{}  ", render::render_one_line(session)) } else { String::new() };
            let task = event.task().map_or_else(|| "-".to_owned(), |no| no.to_string());
            let (at, what) = (duration::render_timestamp(at.0), render_event(event));
            format!("{position:>6}  {at}  {session}{task:>4}  {what}")
        }
    }
}

/// The event's name, and of some what is most wanted beside it.
fn render_event(event: &Event) -> String {
    let word = match serde_json::to_value(event) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(object)) => object.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let word = word.replace('_', " ");
    match event {
        Event::Ended { outcome, .. } => {
            format!("{word}: {}", render::render_one_line(&outcome.to_string()))
        }
        Event::Parked { call, .. } => match &call.condition {
            Condition::Approval { request, .. } => {
                format!("{word}: asks for leave: {}", render::render_one_line(&request.to_string()))
            }
            _ => word,
        },
        Event::ApprovalDecided { verdict, .. } => {
            format!("{word}: {}", render::render_one_line(&verdict.to_string()))
        }
        Event::GrantAdded(grant) => {
            format!("{word}: {}", render::render_one_line(&grant.scope.to_string()))
        }
        Event::Progressed { note, .. } => {
            format!("{word}: {}", render::render_one_line(note.as_str()))
        }
        Event::DeadLettered { reason, .. } => {
            format!("{word}: {}", render::render_one_line(reason))
        }
        Event::Spawned(spawned) => match &spawned.spec.name {
            Some(name) => format!("{word}: {name}"),
            None => word,
        },
        _ => word,
    }
}
