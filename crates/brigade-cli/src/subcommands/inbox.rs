//! `brigade inbox`: reads messages from tasks.

use brigade_model::message::Receipt;
use brigade_protocol::requests::{self, InboxItem};

use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Read messages from tasks, oldest first
///
/// Printing a message marks it as read, and its sender can see that. A question stays open until
/// `brigade answer` answers it. The text of a message is the task's own: Brigade does not verify
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InboxArgs {
    /// Only messages of this task
    #[arg(value_name = "ADDRESS")]
    from: Option<String>,
    /// Leave the messages unread
    #[arg(long, short)]
    peek: bool,
    /// Include read messages
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
        let mut request = requests::InboxRequest {
            session: context.session_name()?,
            from: self.from.clone(),
            mark_read: !self.peek,
            include_read: self.all,
            ..requests::InboxRequest::default()
        };
        let client = context.connect_daemon().await?;
        let mut all = Vec::new();
        loop {
            let items = call_over(&client, request.clone()).await.map_err(|error| {
                let lost = error.is_lost_daemon();
                if lost {
                    error.with_hint(
                        "`brigade inbox --all` includes messages that were marked as read",
                    )
                } else {
                    error
                }
            })?;
            let Some(last) = items.last() else { break };
            request.after = last.number;
            if context.json {
                all.extend(items);
                continue;
            }
            for item in &items {
                render::print_line(render_item(item))?;
            }
        }
        if context.json {
            render::print_json(&all)?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn render_item(item: &InboxItem) -> String {
    let read_before = if item.receipt == Receipt::Accepted { "" } else { ", read before" };
    let verb = if item.question.is_some() { "asks" } else { "says" };
    let age = render::render_age(item.sent_at);
    let sender = render::render_sender(item);
    let name = item.message_name.as_deref().map(render::render_message_name);
    let name = name.map(|name| format!(", {name}")).unwrap_or_default();
    let text = item.text.replace('\n', "\n  ");
    format!("{sender} {verb} ({age} ago{read_before}{name}): {text}")
}
