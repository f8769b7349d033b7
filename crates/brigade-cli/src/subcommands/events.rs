//! `brigade events`: prints events.

use brigade_model::call::Condition;
use brigade_model::event::Event;
use brigade_model::event_author::EventAuthor;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Position;
use brigade_protocol::DaemonConnection;
use brigade_protocol::daemon_connection::ReplyStreamPart;
use brigade_protocol::requests::{self, EventItem};

use crate::context::{CliContext, follow_over, note_lost_daemon};
use crate::exit_code::{CliError, CliExitCode};
use crate::{duration, render};

/// Print the events of this workspace and who caused them; -f follows
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EventsArgs {
    /// Keep printing new events
    #[arg(long, short)]
    follow: bool,
    /// Start after this position, or after one of each lane of a database: 1042,3:57
    #[arg(long, value_name = "POSITION", default_value = "0", value_parser = parse_place)]
    from: FeedCursor,
    /// All workspaces
    #[arg(long, short)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade events
  brigade events -f --from 1042             continue after position 1042
  brigade events -f --all --json";

impl EventsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let session = if self.all { None } else { Some(context.session_name()?) };
        let follow = self.follow;
        let mut request = requests::ReadEventsRequest {
            session,
            follow,
            ..requests::ReadEventsRequest::default()
        };
        let mut place = self.from.clone();
        let client = context.connect_daemon().await?;
        // The next daemon continues at the same position.
        follow_over(&client, async |connection| {
            request.set_place(&place);
            let printed = self.print_events(context, &connection, &request, &mut place).await;
            printed.inspect_err(note_lost_daemon)
        })
        .await?;
        Ok(CliExitCode::SUCCEEDED)
    }

    async fn print_events(
        &self,
        context: &CliContext,
        client: &DaemonConnection,
        request: &requests::ReadEventsRequest,
        place: &mut FeedCursor,
    ) -> Result<(), CliError> {
        let mut events = client.call_streaming(request.clone())?;
        while let ReplyStreamPart::Item(item) = events.next_part().await? {
            if context.json {
                render::print_json(&item)?;
            } else {
                render::print_line(render_item(&item, self.all))?;
            }
            item.advance(place);
        }
        Ok(())
    }
}

fn parse_place(text: &str) -> Result<FeedCursor, String> {
    text.parse()
        .map_err(|_| "write a position as `brigade events` prints it, such as 1042".to_owned())
}

fn render_item(item: &EventItem, all: bool) -> String {
    match item {
        EventItem::Gap { to, cursor } => {
            let to = cursor.clone().unwrap_or_else(|| to.to_string());
            format!("{to:>6}  events up to this position were deleted")
        }
        EventItem::Event { position, lane, session, at, by, event, .. } => {
            let session =
                if all { format!("{}  ", render::render_one_line(session)) } else { String::new() };
            let task = event.task().map_or_else(|| "-".to_owned(), |no| no.to_string());
            let at = duration::render_timestamp(at.0);
            let text = render_event(event);
            let position = Position { lane: *lane, no: *position }.to_string();
            let by = by.as_ref().map(|author| render_author(author)).unwrap_or_default();
            format!("{position:>6}  {at}  {session}{task:>4}  {text}{by}")
        }
    }
}

/// Renders the author of an event, as a suffix.
pub(super) fn render_author(author: &EventAuthor) -> String {
    format!(" · by {}", render::render_one_line(&author.to_string()))
}

/// Renders the name of an event, and details of some.
fn render_event(event: &Event) -> String {
    let name = match serde_json::to_value(event) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(serde_json::Value::Object(object)) => object.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let name = name.replace('_', " ");
    match event {
        Event::Ended { outcome, .. } => {
            format!("{name}: {}", render::render_one_line(&outcome.to_string()))
        }
        Event::Parked { call, .. } => match &call.condition {
            Condition::Approval { request, .. } => {
                format!("{name}: needs approval: {}", render::render_one_line(&request.to_string()))
            }
            Condition::Retry(pause) => {
                let error = render::render_one_line(&pause.error.to_string());
                format!("{name}: retries {} after attempt {}: {error}", pause.label, pause.attempt)
            }
            _ => name,
        },
        Event::ApprovalDecided { verdict, .. } => {
            format!("{name}: {}", render::render_one_line(&verdict.to_string()))
        }
        Event::GrantAdded(grant) => {
            format!("{name}: {}", render::render_one_line(&grant.scope.to_string()))
        }
        Event::Progressed { note, .. } => {
            format!("{name}: {}", render::render_one_line(note.as_str()))
        }
        Event::DeadLettered { reason, .. } => {
            format!("{name}: {}", render::render_one_line(reason))
        }
        Event::MessageSent(message) => match &message.name {
            Some(message_name) => format!("{name}: {}", render::render_message_name(message_name)),
            None => name,
        },
        Event::Spawned(spawned) => match &spawned.spec.name {
            Some(task_name) => format!("{name}: {task_name}"),
            None => name,
        },
        _ => name,
    }
}
