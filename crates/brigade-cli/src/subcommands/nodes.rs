//! `brigade nodes`: lists the nodes of the fleet.

use brigade_protocol::http::{NodeBody, NodeListBody};
use brigade_protocol::requests::ListNodesRequest;

use crate::context::CliContext;
use crate::duration::render_duration;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TableCell, TextTable};

/// List the nodes of the fleet: the daemons that share one store
///
/// `*` marks the node that answers. A node that has ended is listed for a day.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NodesArgs {}

const EXAMPLES: &str = "\
Examples:
  brigade nodes
  brigade nodes --json | jq -r '.items[] | select(.state == \"running\").name'";

impl NodesArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let NodeListBody { fleet, items } = context.call(ListNodesRequest {}).await?;
        if context.json {
            render::print_json(&NodeListBody { fleet, items })?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        if !fleet {
            render::print_note(
                "this daemon is no node of a fleet; `--store postgres://…` makes it one",
            );
            return Ok(CliExitCode::SUCCEEDED);
        }
        build_table(&items).print()?;
        for node in items.iter().filter(|node| node.clock_skew_warning && node.state != "ended") {
            render::print_note(&render_skew_warning(node));
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn build_table(nodes: &[NodeBody]) -> TextTable {
    let heading = [
        "NODE", "STATE", "SESSIONS", "RUNNING", "LEASE", "SKEW", "AGE", "VERSION", "MACHINE",
        "LABELS",
    ];
    let mut table = TextTable::new(&heading).never_truncate("NODE");
    for node in nodes {
        table.add_row([
            if node.own { format!("{} *", node.name) } else { node.name.clone() }.into(),
            TableCell::with_state_style(&node.state),
            render_sessions(node).into(),
            node.running_tasks.to_string().into(),
            render_lease(node).into(),
            render_skew(node.clock_skew_ms).into(),
            render::render_age(node.joined_at.0.0).into(),
            node.version.as_str().into(),
            machine_of(&node.host).into(),
            render_labels(node).into(),
        ]);
    }
    table
}

/// Returns the machine of a host. Behind it, a host has the id of a state directory.
fn machine_of(host: &str) -> &str {
    host.split('/').next().unwrap_or(host)
}

/// Renders the number of owned sessions, with the most that the node claims.
fn render_sessions(node: &NodeBody) -> String {
    match node.capacity {
        Some(capacity) => format!("{}/{capacity}", node.owned_sessions),
        None => node.owned_sessions.to_string(),
    }
}

/// Renders the remaining time of the lease. A node that has ended has none.
fn render_lease(node: &NodeBody) -> String {
    match &*node.state {
        "ended" => "-".to_owned(),
        _ => render_duration(node.lease_remaining_ms),
    }
}

/// Renders the labels, except those that every node has: its name and its host are columns.
fn render_labels(node: &NodeBody) -> String {
    let common = [format!("node={}", node.name), format!("host={}", node.host)];
    let labels = node.labels.iter().filter(|label| !common.contains(label));
    let labels: Vec<&str> = labels.map(String::as_str).collect();
    match labels.as_slice() {
        [] => "-".to_owned(),
        labels => labels.join(","),
    }
}

/// Renders the difference of a clock, with its sign.
fn render_skew(skew_ms: i64) -> String {
    let sign = match skew_ms {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", render_duration(skew_ms.unsigned_abs()))
}

fn render_skew_warning(node: &NodeBody) -> String {
    let skew = render_skew(node.clock_skew_ms);
    format!("the clock of {} differs by {skew} from the store's; synchronize it", node.name)
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::Time;

    use super::*;

    fn node(name: &str) -> NodeBody {
        NodeBody {
            name: name.to_owned(),
            host: "rack-7/01a1f036".to_owned(),
            state: "running".to_owned(),
            lease_remaining_ms: 8_400,
            owned_sessions: 12,
            running_tasks: 3,
            clock_skew_ms: -2,
            clock_skew_warning: false,
            version: "0.1.0".to_owned(),
            labels: vec!["gpu".to_owned(), "eu".to_owned()],
            capacity: None,
            joined_at: Time(render::now_millis().saturating_sub(3_000_000)).into(),
            own: false,
        }
    }

    #[test]
    fn a_node_is_a_row() {
        let own = NodeBody { own: true, capacity: Some(100), ..node("one") };
        let labels = vec!["node=two".to_owned(), "host=rack-7/01a1f036".to_owned()];
        let other = NodeBody { state: "draining".to_owned(), labels, ..node("two") };
        let lines = build_table(&[own, other]).render_plain();
        let expected = "\
NODE   STATE     SESSIONS  RUNNING  LEASE  SKEW  AGE  VERSION  MACHINE  LABELS
one *  running   12/100    3        8s     -2ms  50m  0.1.0    rack-7   gpu,eu
two    draining  12        3        8s     -2ms  50m  0.1.0    rack-7   -
";
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_sign_of_a_skew_is_shown() {
        assert_eq!([0, 7, -1_500].map(render_skew), ["0ms", "+7ms", "-1s"]);
        let node = NodeBody { clock_skew_ms: 4_000, ..node("one") };
        assert_eq!(
            render_skew_warning(&node),
            "the clock of one differs by +4s from the store's; synchronize it"
        );
    }
}
