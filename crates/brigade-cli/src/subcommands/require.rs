//! `brigade require`: sets the labels that a node must have to own a session.

use brigade_protocol::requests::{RequireLabelsReply, RequireLabelsRequest};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Set the labels that a node must have to own a session
///
/// They replace the earlier ones. If the owner has not all of them, the session moves to a node that
/// has, as soon as nothing of it runs. Each node has the labels `node=NAME` and `host=HOST`, which
/// keep a session on one node or one state directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RequireArgs {
    /// Session, as `brigade sessions` names its workspace
    session: String,
    /// Labels of nodes
    #[arg(required_unless_present = "none", value_name = "LABEL")]
    labels: Vec<String>,
    /// Require no label
    #[arg(long, conflicts_with = "labels")]
    none: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade require /home/me/project gpu eu
  brigade require /home/me/project node=kitchen-2
  brigade require /home/me/project --none";

impl RequireArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let Self { session, labels, .. } = self;
        let request = RequireLabelsRequest { session: session.clone(), labels: labels.clone() };
        let reply = context
            .call(request)
            .await
            .map_err(|error| error.hint_if_not_found("`brigade sessions` lists the sessions"))?;
        if context.json {
            let RequireLabelsReply { owner, next_owner, unsatisfied } = reply;
            render::print_json(&serde_json::json!({
                "session": session, "labels": labels, "owner": owner, "next_owner": next_owner,
                "unsatisfied": unsatisfied,
            }))?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        render::print_line(render_reply(&render::render_one_line(&session), &labels, &reply))?;
        if reply.unsatisfied {
            render::print_note(&render_warning(reply.owner.as_deref()));
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn render_reply(session: &str, labels: &[String], reply: &RequireLabelsReply) -> String {
    let requires = match labels {
        [] => format!("{session} requires no label"),
        labels => format!("{session} requires {}", labels.join(" ")),
    };
    match (&reply.owner, &reply.next_owner) {
        (Some(owner), Some(next)) if owner != next => {
            format!("{requires}, and moves to {next} when nothing of it runs on {owner}")
        }
        _ => requires,
    }
}

fn render_warning(owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("no node that takes sessions has these labels; it stays on {owner}"),
        None => {
            "no node that takes sessions has these labels; its requests wait for one".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(owner: Option<&str>, next_owner: Option<&str>) -> RequireLabelsReply {
        let [owner, next_owner] = [owner, next_owner].map(|it| it.map(str::to_owned));
        RequireLabelsReply { owner, next_owner, unsatisfied: false }
    }

    #[test]
    fn a_reply_says_what_the_session_requires_and_where_it_moves() {
        let labels = ["gpu".to_owned(), "eu".to_owned()];
        let stays = render_reply("kitchen", &labels, &reply(Some("one"), None));
        assert_eq!(stays, "kitchen requires gpu eu");
        assert_eq!(
            render_reply("kitchen", &labels, &reply(Some("one"), Some("two"))),
            "kitchen requires gpu eu, and moves to two when nothing of it runs on one"
        );
        assert_eq!(render_reply("kitchen", &[], &reply(None, None)), "kitchen requires no label");
    }
}
