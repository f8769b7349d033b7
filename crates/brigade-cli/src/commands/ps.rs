//! Lists tasks.

use brigade_server::TaskInfo;
use brigade_server::requests::List;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show::{self, Table};

/// List what runs here
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ps {
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

impl Ps {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let session = if self.all { None } else { Some(context.session()?) };
        let list = List { session, ended: self.ended, most: self.newest };
        let tasks = context.list(list).await?;
        if context.json {
            show::json(&tasks)?;
        } else {
            table(&tasks, self.all).print()?;
        }
        Ok(Exit::SUCCEEDED)
    }
}

/// How long ago something happened to what lives. What a command does in silence nobody knows.
fn moved(task: &TaskInfo) -> Option<String> {
    (task.living && !task.is_command()).then(|| show::age(task.moved))
}

fn table(tasks: &[TaskInfo], all: bool) -> Table {
    let moves = tasks.iter().any(|task| moved(task).is_some());
    let mut heading = vec!["TASK", "NAME", "STATE", "AGE", "COMMAND"];
    if moves {
        heading.insert(4, "MOVED");
    }
    if all {
        heading.insert(0, "WORKSPACE");
    }
    let mut table = Table::new(&heading).whole("TASK");
    for task in tasks {
        let mut row = vec![
            task.address.as_str().into(),
            task.name.as_deref().unwrap_or("-").into(),
            show::Cell::state(task),
            show::age(task.spawned).into(),
            show::asked_or_told(task).into(),
        ];
        if moves {
            row.insert(4, moved(task).unwrap_or_else(|| "-".to_owned()).into());
        }
        if all {
            row.insert(0, task.session.as_str().into());
        }
        table.row(row);
    }
    table
}
