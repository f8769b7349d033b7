//! Shows who started whom.

use std::collections::HashMap;

use brigade_server::TaskInfo;
use brigade_server::requests::List;
use serde::Serialize;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;
use crate::styled_line::StyledLine;

/// Show what runs here as a tree: each task below the one that started it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tree {
    /// Of every workspace; with --ended of closed ones too
    #[arg(long, short)]
    all: bool,
    /// What has ended too
    #[arg(long, short)]
    ended: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade tree
  brigade tree --all --ended";

/// A task with those that it started.
#[derive(Debug, Serialize)]
struct Branch {
    #[serde(flatten)]
    task: TaskInfo,
    children: Vec<Branch>,
}

impl Tree {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let session = if self.all { None } else { Some(context.session()?) };
        let list = List { session, ended: self.ended, most: None };
        let tasks = context.ask(list).await?;
        let sessions = grow(tasks);
        if context.json {
            let branches: Vec<Branch> = sessions.into_iter().flat_map(|(_, tops)| tops).collect();
            show::json(&branches)?;
            return Ok(Exit::SUCCEEDED);
        }
        if sessions.is_empty() {
            show::note("nothing runs here");
        }
        for (session, tops) in &sessions {
            show::line(show::one_line(session))?;
            draw(tops, "")?;
        }
        Ok(Exit::SUCCEEDED)
    }
}

/// Per session, in the order in which they came. A task whose parent is not listed stands at the top.
fn grow(tasks: Vec<TaskInfo>) -> Vec<(String, Vec<Branch>)> {
    let mut sessions: Vec<(String, Vec<TaskInfo>)> = Vec::new();
    for task in tasks {
        match sessions.last_mut() {
            Some((session, tasks)) if *session == task.session => tasks.push(task),
            _ => sessions.push((task.session.clone(), vec![task])),
        }
    }
    sessions.into_iter().map(|(session, tasks)| (session, branches(tasks))).collect()
}

fn branches(tasks: Vec<TaskInfo>) -> Vec<Branch> {
    let listed: Vec<String> = tasks.iter().map(|task| number(task).to_owned()).collect();
    let mut below: HashMap<Option<String>, Vec<TaskInfo>> = HashMap::new();
    for task in tasks {
        let parent = task.parent.clone().filter(|parent| listed.contains(parent));
        below.entry(parent).or_default().push(task);
    }
    gather(None, &mut below)
}

fn gather(of: Option<String>, below: &mut HashMap<Option<String>, Vec<TaskInfo>>) -> Vec<Branch> {
    let tasks = below.remove(&of).unwrap_or_default();
    let branch = |task: TaskInfo| {
        let children = gather(Some(number(&task).to_owned()), below);
        Branch { task, children }
    };
    tasks.into_iter().map(branch).collect()
}

fn number(task: &TaskInfo) -> &str {
    task.address.rsplit(':').next().unwrap_or_default()
}

fn draw(branches: &[Branch], before: &str) -> Result<(), Failure> {
    for (at, branch) in branches.iter().enumerate() {
        let last = at + 1 == branches.len();
        let (fork, on) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let task = &branch.task;
        let name = task.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let age = show::age(task.spawned);
        let spent = show::spent(&task.usage).map(|spent| format!("{spent}  ")).unwrap_or_default();
        let line = StyledLine::from(format!("{before}{fork}{}{name}  ", task.address))
            .painted(show::style(&task.state), show::state(task))
            .text(format!("  {age}  {spent}"));
        let what = show::one_line(&show::asked_or_told(task));
        let what = show::to_the_edge(&line, &what);
        show::line(line.text(what))?;
        draw(&branch.children, &format!("{before}{on}"))?;
    }
    Ok(())
}
