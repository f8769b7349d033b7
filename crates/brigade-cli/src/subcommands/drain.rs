//! `brigade drain`: lets a node of the fleet give up its sessions.

use std::time::Duration;

use brigade_model::duration::parse_duration;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::http::NodeBody;
use brigade_protocol::requests::{DrainNodeRequest, ListNodesRequest, ListSessionsRequest};
use tokio::time::Instant;

use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The most names of sessions in a note.
const NAMES_MAX: usize = 5;

/// Let a node claim no more sessions and give up those at rest
///
/// A session is at rest when all its tasks wait or have ended. Tasks that run on the node finish
/// there. The node keeps running, and its own clients can still start tasks on it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DrainArgs {
    /// Node, as `brigade nodes` names it
    node: String,
    /// Let the node claim sessions again
    #[arg(long, conflicts_with = "wait")]
    undo: bool,
    /// Wait until the node owns no session, and print those that it still owns
    #[arg(long)]
    wait: bool,
    /// Wait at most this long; then the exit code is 124, and the node keeps draining
    #[arg(long, short, value_name = "TIME", value_parser = parse_duration, requires = "wait")]
    timeout: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  brigade drain kitchen-1
  brigade drain kitchen-1 --wait --timeout 10m && ssh kitchen-1 reboot
  brigade drain kitchen-1 --undo";

/// The end of a wait.
struct DrainResult {
    node: NodeBody,
    /// The names of the sessions that the node owns.
    sessions: Vec<String>,
    timed_out: bool,
}

/// The progress of a drain, by the list of nodes.
#[derive(Debug, PartialEq, Eq)]
enum DrainProgress<'a> {
    /// The node has ended.
    Ended,
    Draining(&'a NodeBody),
    Undone,
}

impl DrainArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let client = context.connect_daemon().await?;
        let request = DrainNodeRequest { node: self.node, draining: !self.undo };
        let node = call_over(&client, request)
            .await
            .map_err(|error| error.hint_if_not_found("`brigade nodes` lists the nodes"))?;
        if !self.wait {
            print_node(context, &node)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let result = wait_until_drained(&client, node, deadline).await?;
        print_result(context, &result)?;
        Ok(match result.timed_out {
            true => CliExitCode::TIMED_OUT,
            false => CliExitCode::SUCCEEDED,
        })
    }
}

/// Waits until the node owns no session. A note says which ones it owns, whenever they change.
async fn wait_until_drained(
    client: &DaemonClient,
    drained: NodeBody,
    deadline: Option<Instant>,
) -> Result<DrainResult, CliError> {
    let mut node = drained;
    let mut noted = Vec::new();
    // The node learns of the drain when it renews its lease. Until then it may claim sessions.
    let mut has_renewed = false;
    loop {
        let listed = call_over(client, ListNodesRequest {}).await?;
        node = match observe(&listed.items, &node) {
            DrainProgress::Undone => {
                let text = format!("the drain of {} was undone", node.name);
                return Err(CliError::new(CliExitCode::FAILED, text));
            }
            DrainProgress::Ended => {
                let node = NodeBody { state: "ended".to_owned(), ..node };
                return Ok(DrainResult { node, sessions: Vec::new(), timed_out: false });
            }
            DrainProgress::Draining(now) => {
                has_renewed |= now.lease_remaining_ms > node.lease_remaining_ms;
                now.clone()
            }
        };
        if has_renewed && node.owned_sessions == 0 {
            return Ok(DrainResult { node, sessions: Vec::new(), timed_out: false });
        }
        let sessions = list_owned(client, &node.name).await?;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(DrainResult { node, sessions, timed_out: true });
        }
        if sessions != noted && !sessions.is_empty() {
            render::print_note(&render_remaining(&node.name, &sessions));
        }
        noted = sessions;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Finds the node again that was drained. A later node can have its name.
fn observe<'a>(nodes: &'a [NodeBody], drained: &NodeBody) -> DrainProgress<'a> {
    let is_same =
        |node: &&NodeBody| node.name == drained.name && node.joined_at == drained.joined_at;
    match nodes.iter().find(is_same) {
        None => DrainProgress::Ended,
        Some(node) => match &*node.state {
            "ended" => DrainProgress::Ended,
            "running" => DrainProgress::Undone,
            _ => DrainProgress::Draining(node),
        },
    }
}

/// Lists the names of the sessions that a node owns.
async fn list_owned(client: &DaemonClient, node: &str) -> Result<Vec<String>, CliError> {
    let sessions = call_over(client, ListSessionsRequest { include_closed: false }).await?;
    let owned = sessions.into_iter().filter(|session| session.node.as_deref() == Some(node));
    Ok(owned.map(|session| session.name).collect())
}

fn render_remaining(node: &str, sessions: &[String]) -> String {
    let count = render::render_count(sessions.len() as u64, "session");
    let names = sessions.iter().take(NAMES_MAX).map(|name| render::render_one_line(name));
    let names = names.collect::<Vec<_>>().join(", ");
    let more = if sessions.len() > NAMES_MAX { ", …" } else { "" };
    format!("{node} still owns {count}: {names}{more}")
}

fn print_node(context: &CliContext, node: &NodeBody) -> Result<(), CliError> {
    if context.json {
        return render::print_json(node);
    }
    let name = render::render_one_line(&node.name);
    render::print_line(match &*node.state {
        "running" => format!("{name} claims sessions again"),
        state => {
            let count = render::render_count(node.owned_sessions, "session");
            format!("{name} is {state} and owns {count}")
        }
    })
}

fn print_result(context: &CliContext, result: &DrainResult) -> Result<(), CliError> {
    let DrainResult { node, sessions, timed_out } = result;
    if context.json {
        let reply =
            serde_json::json!({ "node": node, "sessions": sessions, "timed_out": timed_out });
        return render::print_json(&reply);
    }
    if *timed_out {
        render::print_note(&render_remaining(&node.name, sessions));
        return Ok(());
    }
    let name = render::render_one_line(&node.name);
    render::print_line(match &*node.state {
        "ended" => format!("{name} has ended"),
        _ => format!("{name} is drained: it owns no session"),
    })
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::Time;

    use super::*;

    fn node(name: &str, state: &str, joined_at: u64) -> NodeBody {
        NodeBody {
            name: name.to_owned(),
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
            joined_at: Time(joined_at).into(),
            own: false,
        }
    }

    #[test]
    fn a_drain_lasts_until_the_node_ends_or_it_is_undone() {
        let drained = node("one", "draining", 7);
        let other = node("two", "running", 7);
        let later = node("one", "running", 9);
        let nodes = [other.clone(), drained.clone()];
        assert_eq!(observe(&nodes, &drained), DrainProgress::Draining(&drained));
        let expired = node("one", "expired", 7);
        let nodes = [expired.clone()];
        assert_eq!(observe(&nodes, &drained), DrainProgress::Draining(&expired));
        assert_eq!(observe(&[node("one", "running", 7)], &drained), DrainProgress::Undone);
        assert_eq!(observe(&[node("one", "ended", 7), later], &drained), DrainProgress::Ended);
        assert_eq!(observe(&[other], &drained), DrainProgress::Ended);
    }

    #[test]
    fn a_note_names_the_first_sessions() {
        let names = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        assert_eq!(render_remaining("one", &names[..1]), "one still owns 1 session: a");
        assert_eq!(render_remaining("one", &names), "one still owns 6 sessions: a, b, c, d, e, …");
    }
}
