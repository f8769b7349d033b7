//! Shows one task.

use brigade_server::TaskInfo;
use brigade_server::requests;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::{show, span};

/// Show all there is to know of a task
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// A number, kind:number, a name or its beginning, or any of them after WORKSPACE/
    #[arg(value_name = "ADDRESS")]
    address: String,
}

const EXAMPLES: &str = "\
Examples:
  brigade show 3
  brigade show Tests
  brigade show /home/me/project/process:3 --json";

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let target = context.target(&self.address)?;
        let task = context.ask(requests::Show { target }).await?;
        if context.json {
            show::json(&task)?;
        } else {
            for (what, text) in lines(&task) {
                show::line(&format!("{what:<10} {text}"))?;
            }
        }
        Ok(Exit::SUCCEEDED)
    }
}

fn lines(task: &TaskInfo) -> Vec<(&'static str, String)> {
    let mut lines = vec![("task", task.address.clone())];
    if let Some(name) = &task.name {
        lines.push(("name", name.clone()));
    }
    lines.push(("workspace", task.session.clone()));
    lines.push(("command", task.what.clone()));
    lines.push(("state", show::painted(task)));
    if let Some(detail) = task.detail.as_ref().filter(|detail| **detail != task.state) {
        lines.push(("detail", detail.clone()));
    }
    if let Some(parent) = &task.parent {
        lines.push(("parent", parent.clone()));
    }
    lines.push(("started", since(task.spawned)));
    if let Some(ended) = task.ended {
        lines.push(("ended", since(ended)));
        lines.push(("took", span::short(ended.saturating_sub(task.spawned))));
    }
    if task.run > 1 || task.attempt > 1 {
        lines.push(("run", format!("{}, attempt {}", task.run, task.attempt)));
    }
    if let Some(progress) = &task.progress {
        lines.push(("progress", progress.as_str().to_owned()));
    }
    if let Some(result) = &task.result {
        lines.push(("result", result.as_str().to_owned()));
    }
    lines
}

fn since(millis: u64) -> String {
    format!("{} ({} ago)", span::date(millis), show::age(millis))
}
