//! `brigade move`: gives a session to a node of the fleet.

use std::time::Duration;

use brigade_model::duration::parse_duration;
use brigade_model::refusal::Refusal;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::http::NodeBody;
use brigade_protocol::requests::{
    ListNodesRequest, ListSessionsRequest, MoveSessionReply, MoveSessionRequest, SessionInfo,
};
use tokio::time::Instant;

use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Give a session to a node, as soon as nothing of the session runs
///
/// Running tasks are not interrupted: the owner gives up the session when all its tasks wait or have
/// ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MoveArgs {
    /// Session, as `brigade sessions` names its workspace
    session: String,
    /// Node, as `brigade nodes` names it
    node: String,
    /// Wait until the node owns the session
    #[arg(long)]
    wait: bool,
    /// Wait at most this long; then the exit code is 124, and the session moves later
    #[arg(long, short, value_name = "TIME", value_parser = parse_duration, requires = "wait")]
    timeout: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  brigade move /home/me/project kitchen-2
  brigade move /home/me/project kitchen-2 --wait --timeout 5m";

/// The progress of a move, by the lists of sessions and nodes.
#[derive(Debug, PartialEq, Eq)]
enum MoveProgress {
    Done,
    /// The session is at its owner, or at none.
    Pending(Option<String>),
    /// The session is not listed any more.
    SessionClosed,
    /// The node claims no sessions any more.
    NodeUnavailable,
}

impl MoveArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let client = context.connect_daemon().await?;
        let request = MoveSessionRequest { session: self.session.clone(), node: self.node.clone() };
        let MoveSessionReply { mut owner } =
            call_over(&client, request.clone()).await.map_err(|error| {
                error.hint_if_not_found(
                    "`brigade nodes` lists the nodes, and `brigade sessions` the sessions",
                )
            })?;
        let mut exit = CliExitCode::SUCCEEDED;
        if self.wait {
            let moved = wait_until_moved(&client, &request, deadline).await?;
            if moved.as_ref() != Some(&self.node) {
                exit = CliExitCode::TIMED_OUT;
            }
            owner = moved;
        }
        print_reply(context, &request, owner.as_deref())?;
        Ok(exit)
    }
}

/// Waits until the node owns the session. Returns the owner, which is another one after the deadline.
async fn wait_until_moved(
    client: &DaemonClient,
    request: &MoveSessionRequest,
    deadline: Option<Instant>,
) -> Result<Option<String>, CliError> {
    let MoveSessionRequest { session, node } = request;
    loop {
        let sessions = call_over(client, ListSessionsRequest { include_closed: false }).await?;
        let nodes = call_over(client, ListNodesRequest {}).await?.items;
        let owner = match observe(&sessions, &nodes, request) {
            MoveProgress::Done => return Ok(Some(node.clone())),
            MoveProgress::Pending(owner) => owner,
            MoveProgress::SessionClosed => {
                return Err(Refusal::ended(format!("the session {session} was closed")).into());
            }
            MoveProgress::NodeUnavailable => {
                let text = format!("the node {node} claims no sessions any more");
                return Err(CliError::new(CliExitCode::FAILED, text)
                    .with_hint("`brigade nodes` lists the nodes"));
            }
        };
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(owner);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn observe(
    sessions: &[SessionInfo],
    nodes: &[NodeBody],
    request: &MoveSessionRequest,
) -> MoveProgress {
    let Some(session) = sessions.iter().find(|session| session.name == request.session) else {
        return MoveProgress::SessionClosed;
    };
    if session.node.as_ref() == Some(&request.node) {
        return MoveProgress::Done;
    }
    let is_running = |node: &NodeBody| node.name == request.node && node.state == "running";
    match nodes.iter().any(is_running) {
        true => MoveProgress::Pending(session.node.clone()),
        false => MoveProgress::NodeUnavailable,
    }
}

fn print_reply(
    context: &CliContext,
    request: &MoveSessionRequest,
    owner: Option<&str>,
) -> Result<(), CliError> {
    let MoveSessionRequest { session, node } = request;
    let moved = owner == Some(node);
    if context.json {
        let reply = serde_json::json!({
            "session": session, "node": node, "owner": owner, "moved": moved,
        });
        return render::print_json(&reply);
    }
    render::print_line(render_reply(&render::render_one_line(session), node, owner))
}

fn render_reply(session: &str, node: &str, owner: Option<&str>) -> String {
    match owner {
        Some(owner) if owner == node => format!("{node} owns {session}"),
        Some(owner) => format!("{session} moves to {node} when nothing of it runs on {owner}"),
        None => format!("{session} moves to {node}"),
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::Time;

    use super::*;

    fn session(node: Option<&str>) -> SessionInfo {
        SessionInfo {
            name: "kitchen".to_owned(),
            id: String::new(),
            state: "open".to_owned(),
            opened_at: 1,
            alive_tasks: 1,
            uncollected_tasks: 0,
            node: node.map(str::to_owned),
            required_labels: Vec::new(),
        }
    }

    fn node(state: &str) -> NodeBody {
        NodeBody {
            name: "two".to_owned(),
            host: "rack-7".to_owned(),
            state: state.to_owned(),
            lease_remaining_ms: 8_400,
            owned_sessions: 1,
            running_tasks: 0,
            clock_skew_ms: 0,
            clock_skew_warning: false,
            version: "0.1.0".to_owned(),
            labels: Vec::new(),
            capacity: None,
            joined_at: Time(1).into(),
            own: false,
        }
    }

    #[test]
    fn a_move_lasts_until_the_node_owns_the_session() {
        let request = MoveSessionRequest { session: "kitchen".to_owned(), node: "two".to_owned() };
        let at =
            |owner: Option<&str>, state: &str| observe(&[session(owner)], &[node(state)], &request);
        assert_eq!(at(Some("two"), "running"), MoveProgress::Done);
        assert_eq!(at(Some("one"), "running"), MoveProgress::Pending(Some("one".to_owned())));
        assert_eq!(at(None, "running"), MoveProgress::Pending(None));
        assert_eq!(at(Some("one"), "draining"), MoveProgress::NodeUnavailable);
        assert_eq!(at(None, "ended"), MoveProgress::NodeUnavailable);
        assert_eq!(observe(&[], &[node("running")], &request), MoveProgress::SessionClosed);
    }

    #[test]
    fn a_reply_says_who_owns_the_session() {
        assert_eq!(render_reply("kitchen", "two", Some("two")), "two owns kitchen");
        assert_eq!(
            render_reply("kitchen", "two", Some("one")),
            "kitchen moves to two when nothing of it runs on one"
        );
        assert_eq!(render_reply("kitchen", "two", None), "kitchen moves to two");
    }
}
