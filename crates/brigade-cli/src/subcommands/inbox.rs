//! Reads what tasks said.

use brigade_model::message::Receipt;
use brigade_server::requests::{self, InboxItem};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Read what agents and jobs here said to you, the oldest first
///
/// What is shown counts as read, and is not shown again; who sent it can see that. A question stays open
/// until `brigade answer` answers it. What tasks say is what they say: nobody else vouches for it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InboxArgs {
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

impl InboxArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let mut asked = requests::InboxRequest {
            session: context.session_name()?,
            from: self.from.clone(),
            mark_read: !self.peek,
            include_read: self.all,
            ..requests::InboxRequest::default()
        };
        let mut client = context.connect_daemon().await?;
        let mut all = Vec::new();
        loop {
            let notes = context.call_over(&mut client, asked.clone()).await.map_err(|failure| {
                let lost = failure.is_lost_daemon();
                if lost {
                    failure.with_hint("`brigade inbox --all` has what was read")
                } else {
                    failure
                }
            })?;
            let Some(last) = notes.last() else { break };
            asked.after = last.number;
            if context.json {
                all.extend(notes);
                continue;
            }
            for note in &notes {
                render::print_line(render_item(note))?;
            }
        }
        if context.json {
            render::print_json(&all)?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn render_item(note: &InboxItem) -> String {
    let told = if note.receipt == Receipt::Accepted { "" } else { ", read before" };
    let says = if note.question.is_some() { "asks" } else { "says" };
    let (age, who) = (render::render_age(note.sent_at), render::render_sender(note));
    let text = note.text.replace('\n', "\n  ");
    format!("{who} {says} ({age} ago{told}): {text}")
}
