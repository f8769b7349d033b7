//! Shows what happened.

use brigade_model::call::Condition;
use brigade_model::event::Event;
use brigade_server::Client;
use brigade_server::client::Step;
use brigade_server::requests::{self, Happened};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::{show, span};

/// Show what happened here, in order; with -f also what happens
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
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

impl Events {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let session = if self.all { None } else { Some(context.session()?) };
        let mut asked = requests::Events { session, after: self.from, follow: self.follow };
        let mut client = context.daemon().await?;
        loop {
            match self.show(context, &client, &mut asked).await {
                // The next one goes on at the same position.
                Err(failure) if failure.is_lost_daemon() => client = context.next_daemon().await?,
                shown => return shown.map(|()| Exit::SUCCEEDED),
            }
        }
    }

    async fn show(
        &self,
        context: &Context,
        client: &Client,
        asked: &mut requests::Events,
    ) -> Result<(), Failure> {
        let mut events = client.stream(asked.clone())?;
        while let Step::Item(happened) = events.next().await? {
            if context.json {
                show::json(&happened)?;
            } else {
                show::line(described(&happened, self.all))?;
            }
            let (Happened::Event { position, .. } | Happened::Gap { to: position }) = happened;
            asked.after = position;
        }
        Ok(())
    }
}

fn described(happened: &Happened, all: bool) -> String {
    match happened {
        Happened::Gap { to } => format!("{to:>6}  events up to here are no longer kept"),
        Happened::Event { position, session, at, event, .. } => {
            let session =
                if all { format!("{}  ", show::one_line(session)) } else { String::new() };
            let task = event.task().map_or_else(|| "-".to_owned(), |no| no.to_string());
            let (at, what) = (span::date(at.0), what(event));
            format!("{position:>6}  {at}  {session}{task:>4}  {what}")
        }
    }
}

/// The event's name, and of some what is most wanted beside it.
fn what(event: &Event) -> String {
    let word = match serde_json::to_value(event) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(object)) => object.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let word = word.replace('_', " ");
    match event {
        Event::Ended { outcome, .. } => format!("{word}: {}", show::one_line(&outcome.to_string())),
        Event::Parked { call, .. } => match &call.on {
            Condition::Approval { request, .. } => {
                format!("{word}: asks for leave: {}", show::one_line(&request.to_string()))
            }
            _ => word,
        },
        Event::Ruled { verdict, .. } => {
            format!("{word}: {}", show::one_line(&verdict.to_string()))
        }
        Event::Granted(grant) => {
            format!("{word}: {}", show::one_line(&grant.covers.to_string()))
        }
        Event::Progressed { note, .. } => format!("{word}: {}", show::one_line(note.as_str())),
        Event::DeadLettered { reason, .. } => format!("{word}: {}", show::one_line(reason)),
        Event::Spawned(spawned) => match &spawned.spec.name {
            Some(name) => format!("{word}: {name}"),
            None => word,
        },
        _ => word,
    }
}
