//! Lists tasks.

use brigade_server::TaskInfo;
use brigade_server::requests::ListTasksRequest;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};

/// List what runs here
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PsArgs {
    /// Of every workspace; with --ended of closed ones too
    #[arg(long, short)]
    all: bool,
    /// What has ended too
    #[arg(long, short)]
    ended: bool,
    /// Only the newest so many
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

/// How long ago something happened to what lives. What a command does in silence nobody knows.
fn render_last_activity(task: &TaskInfo) -> Option<String> {
    (task.alive && !task.is_process()).then(|| render::render_age(task.last_activity_at))
}

fn build_table(tasks: &[TaskInfo], all: bool) -> TextTable {
    let moves = tasks.iter().any(|task| render_last_activity(task).is_some());
    let mut heading = vec!["TASK", "NAME", "STATE", "AGE", "COMMAND"];
    if moves {
        heading.insert(4, "MOVED");
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
        if moves {
            row.insert(4, render_last_activity(task).unwrap_or_else(|| "-".to_owned()).into());
        }
        if all {
            row.insert(0, task.session.as_str().into());
        }
        table.add_row(row);
    }
    table
}
