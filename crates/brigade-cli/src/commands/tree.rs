//! Shows who started whom.

use std::collections::{HashMap, HashSet};

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
    /// Only the newest so many; one whose parent is not among them stands at the top
    #[arg(short = 'n', long = "newest", value_name = "N")]
    newest: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  brigade tree
  brigade tree --all --ended
  brigade tree --ended -n 20";

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
        let list = List { session, ended: self.ended, most: self.newest };
        let tasks = context.list(list).await?;
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

/// Per session, in the order in which these came. A task whose parent is not listed stands at the top.
fn grow(tasks: Vec<TaskInfo>) -> Vec<(String, Vec<Branch>)> {
    let mut sessions: Vec<(String, Vec<TaskInfo>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for task in tasks {
        // The newest of several sessions come by their age.
        let place = *places.entry(task.session.clone()).or_insert_with(|| {
            sessions.push((task.session.clone(), Vec::new()));
            sessions.len() - 1
        });
        sessions[place].1.push(task);
    }
    sessions.into_iter().map(|(session, tasks)| (session, branches(tasks))).collect()
}

fn branches(tasks: Vec<TaskInfo>) -> Vec<Branch> {
    let listed: HashSet<String> = tasks.iter().map(|task| number(task).to_owned()).collect();
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    fn task(session: &str, no: u32, parent: Option<u32>) -> TaskInfo {
        let parent = parent.map(|parent| parent.to_string());
        let value = json!({
            "address": format!("job:{no}"), "kind": "job", "session": session, "parent": parent,
            "what": "job", "state": "succeeded", "living": false, "spawned": no,
            "moved": no, "run": 1, "attempt": 1,
        });
        serde_json::from_value(value).expect("a task")
    }

    #[test]
    fn a_task_stands_below_its_parent_and_at_the_top_without_it() {
        let tasks = vec![task("a", 2, Some(1)), task("b", 1, None), task("a", 3, Some(2))];
        let sessions = grow(tasks);
        let names: Vec<&str> = sessions.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "each session once, though they came mixed");
        let top = &sessions[0].1;
        assert_eq!((top.len(), top[0].children.len()), (1, 1));
        assert_eq!(top[0].children[0].task.address, "job:3");
    }

    #[test]
    fn many_tasks_grow_in_a_moment() {
        let tasks = (1..=20_000).map(|no| task("a", no, (no > 1).then_some(1))).collect();
        let began = Instant::now();
        let sessions = grow(tasks);
        assert_eq!(sessions[0].1[0].children.len(), 19_999);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
