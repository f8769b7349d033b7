//! `brigade sessions`: lists sessions.

use brigade_protocol::requests::{ListSessionsRequest, SessionInfo};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TableCell, TextTable};

/// List sessions, in a fleet with the nodes that own them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionsArgs {
    /// Include closed sessions
    #[arg(long, short)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade sessions
  brigade sessions --all --json";

impl SessionsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let request = ListSessionsRequest { include_closed: self.all };
        let sessions = context.call(request).await?;
        if context.json {
            render::print_json(&sessions)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        build_table(&sessions).print()?;
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// Returns the table, with columns of nodes and required labels if a session has one.
fn build_table(sessions: &[SessionInfo]) -> TextTable {
    let has_nodes = sessions.iter().any(|session| session.node.is_some());
    let has_labels = sessions.iter().any(|session| !session.required_labels.is_empty());
    let mut heading = vec!["STATE", "TASKS", "AGE", "WORKSPACE"];
    if has_labels {
        heading.insert(3, "REQUIRES");
    }
    if has_nodes {
        heading.insert(3, "NODE");
    }
    let mut table = TextTable::new(&heading);
    for session in sessions {
        let mut row: Vec<TableCell> = vec![
            session.state.as_str().into(),
            session.alive_tasks.to_string().into(),
            render::render_age(session.opened_at).into(),
            session.name.as_str().into(),
        ];
        if has_labels {
            let labels = match session.required_labels.as_slice() {
                [] => "-".to_owned(),
                labels => labels.join(","),
            };
            row.insert(3, labels.into());
        }
        if has_nodes {
            row.insert(3, session.node.as_deref().unwrap_or("-").into());
        }
        table.add_row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str, node: Option<&str>) -> SessionInfo {
        SessionInfo {
            name: name.to_owned(),
            id: String::new(),
            state: "open".to_owned(),
            opened_at: render::now_millis().saturating_sub(3_000_000),
            alive_tasks: 2,
            uncollected_tasks: 0,
            node: node.map(str::to_owned),
            required_labels: Vec::new(),
        }
    }

    #[test]
    fn nodes_are_listed_in_a_fleet_only() {
        let plain = build_table(&[session("/kitchen", None)]).render_plain();
        assert_eq!(plain, "STATE  TASKS  AGE  WORKSPACE\nopen   2      50m  /kitchen\n");
        let owned = [session("/kitchen", Some("one")), session("/cellar", None)];
        let expected = "\
STATE  TASKS  AGE  NODE  WORKSPACE
open   2      50m  one   /kitchen
open   2      50m  -     /cellar
";
        assert_eq!(build_table(&owned).render_plain(), expected);
        let [kitchen, cellar] = owned;
        let required_labels = vec!["gpu".to_owned(), "eu".to_owned()];
        let expected = "\
STATE  TASKS  AGE  NODE  REQUIRES  WORKSPACE
open   2      50m  one   gpu,eu    /kitchen
open   2      50m  -     -         /cellar
";
        let labelled = SessionInfo { required_labels, ..kitchen };
        assert_eq!(build_table(&[labelled, cellar]).render_plain(), expected);
    }
}
