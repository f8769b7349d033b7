//! `brigade ps`: lists tasks.

use brigade_protocol::TaskInfo;
use brigade_protocol::requests::ListTasksRequest;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};

/// List tasks of this workspace
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PsArgs {
    /// All workspaces; with --ended, closed ones too
    #[arg(long, short)]
    all: bool,
    /// Include ended tasks
    #[arg(long, short)]
    ended: bool,
    /// Only the N newest
    #[arg(short = 'n', long = "newest", value_name = "N")]
    newest: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  brigade ps
  brigade ps --ended -n 20
  brigade ps --all --json | jq '.[].address'";

impl PsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let session = if self.all { None } else { Some(context.session_name()?) };
        let list = ListTasksRequest { session, include_ended: self.ended, limit: self.newest };
        let tasks = context.list_tasks(list).await?;
        if context.json {
            render::print_json(&tasks)?;
        } else {
            build_table(&tasks, self.all).print()?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// Renders the time since the last activity of an alive task. The silence of a process means
/// nothing.
fn render_last_activity(task: &TaskInfo) -> Option<String> {
    (task.alive && !task.is_process()).then(|| render::render_age(task.last_activity_at))
}

fn build_table(tasks: &[TaskInfo], all: bool) -> TextTable {
    let has_activity = tasks.iter().any(|task| render_last_activity(task).is_some());
    let mut heading = vec!["TASK", "NAME", "STATE", "AGE", "DESCRIPTION"];
    if has_activity {
        heading.insert(4, "ACTIVE");
    }
    if all {
        heading.insert(0, "WORKSPACE");
    }
    let mut table = TextTable::new(&heading).never_truncate("TASK");
    for task in tasks {
        let mut row = vec![
            task.address.as_str().into(),
            task.name.as_deref().unwrap_or("-").into(),
            render::TableCell::for_state(task),
            render::render_age(task.spawned_at).into(),
            render::render_description(task).into(),
        ];
        if has_activity {
            row.insert(4, render_last_activity(task).unwrap_or_else(|| "-".to_owned()).into());
        }
        if all {
            row.insert(0, task.session.as_str().into());
        }
        table.add_row(row);
    }
    table
}
