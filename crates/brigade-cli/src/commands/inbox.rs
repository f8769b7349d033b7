//! Reads what tasks said.

use brigade_model::message::Receipt;
use brigade_server::requests::{self, Note};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;

/// Read what agents and jobs here said to you, the oldest first
///
/// What is shown counts as read, and is not shown again; who sent it can see that. A question stays open
/// until `brigade answer` answers it. What tasks say is what they say: nobody else vouches for it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inbox {
    /// Only what this task said
    #[arg(value_name = "ADDRESS")]
    from: Option<String>,
    /// Look only: it stays unread
    #[arg(long, short)]
    peek: bool,
    /// With what was read before
    #[arg(long, short)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade inbox
  brigade inbox --peek agent:3
  brigade inbox --all --json | jq -r '.[].text'";

impl Inbox {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let mut asked = requests::Inbox {
            session: context.session()?,
            from: self.from.clone(),
            take: !self.peek,
            read_too: self.all,
            ..requests::Inbox::default()
        };
        let mut client = context.daemon().await?;
        let mut all = Vec::new();
        loop {
            let notes = context.ask_over(&mut client, asked.clone()).await.map_err(|failure| {
                let lost = failure.is_lost_daemon();
                if lost { failure.hint("`brigade inbox --all` has what was read") } else { failure }
            })?;
            let Some(last) = notes.last() else { break };
            asked.after = last.number;
            if context.json {
                all.extend(notes);
                continue;
            }
            for note in &notes {
                show::line(described(note))?;
            }
        }
        if context.json {
            show::json(&all)?;
        }
        Ok(Exit::SUCCEEDED)
    }
}

fn described(note: &Note) -> String {
    let told = if note.receipt == Receipt::Accepted { "" } else { ", read before" };
    let says = if note.question.is_some() { "asks" } else { "says" };
    let (age, who) = (show::age(note.sent), show::sender(note));
    let text = note.text.replace('\n', "\n  ");
    format!("{who} {says} ({age} ago{told}): {text}")
}
