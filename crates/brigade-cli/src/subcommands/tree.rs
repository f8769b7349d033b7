//! `brigade tree`: prints the task tree.

use std::collections::{HashMap, HashSet};

use brigade_protocol::TaskInfo;
use brigade_protocol::requests::ListTasksRequest;
use serde::Serialize;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

/// Show the task tree of this workspace
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TreeArgs {
    /// All workspaces; with --ended, closed ones too
    #[arg(long, short)]
    all: bool,
    /// Include ended tasks
    #[arg(long, short)]
    ended: bool,
    /// Only the N newest; a task without its parent among them stands at the top
    #[arg(short = 'n', long = "newest", value_name = "N")]
    newest: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  brigade tree
  brigade tree --all --ended
  brigade tree --ended -n 20";

/// A task with its children.
#[derive(Debug, Serialize)]
struct TaskBranch {
    #[serde(flatten)]
    task: TaskInfo,
    children: Vec<TaskBranch>,
}

impl TreeArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let session = if self.all { None } else { Some(context.session_name()?) };
        let list = ListTasksRequest { session, include_ended: self.ended, limit: self.newest };
        let tasks = context.list_tasks(list).await?;
        let sessions = group_by_session(tasks);
        if context.json {
            let branches: Vec<TaskBranch> =
                sessions.into_iter().flat_map(|session| session.branches).collect();
            render::print_json(&branches)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        if sessions.is_empty() {
            render::print_note("no tasks run here");
        }
        for session in &sessions {
            render::print_line(render::render_one_line(&session.name))?;
            print_branches(&session.branches, "")?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// The top-level tasks of one session.
struct SessionBranches {
    name: String,
    branches: Vec<TaskBranch>,
}

/// Groups tasks by session, in the order in which the sessions appear. A task whose parent is not
/// listed stands at the top.
fn group_by_session(tasks: Vec<TaskInfo>) -> Vec<SessionBranches> {
    let mut sessions: Vec<(String, Vec<TaskInfo>)> = Vec::new();
    let mut indexes: HashMap<String, usize> = HashMap::new();
    for task in tasks {
        // The tasks of several sessions are mixed, since they come by age.
        let index = *indexes.entry(task.session.clone()).or_insert_with(|| {
            sessions.push((task.session.clone(), Vec::new()));
            sessions.len() - 1
        });
        sessions[index].1.push(task);
    }
    let session = |(name, tasks)| SessionBranches { name, branches: build_branches(tasks) };
    sessions.into_iter().map(session).collect()
}

fn build_branches(tasks: Vec<TaskInfo>) -> Vec<TaskBranch> {
    let listed: HashSet<String> = tasks.iter().map(|task| task_number(task).to_owned()).collect();
    let mut children_of: HashMap<Option<String>, Vec<TaskInfo>> = HashMap::new();
    for task in tasks {
        let parent = task.parent.clone().filter(|parent| listed.contains(parent));
        children_of.entry(parent).or_default().push(task);
    }
    build_children(None, &mut children_of)
}

fn build_children(
    parent: Option<String>,
    children_of: &mut HashMap<Option<String>, Vec<TaskInfo>>,
) -> Vec<TaskBranch> {
    let tasks = children_of.remove(&parent).unwrap_or_default();
    let branch = |task: TaskInfo| {
        let children = build_children(Some(task_number(&task).to_owned()), children_of);
        TaskBranch { task, children }
    };
    tasks.into_iter().map(branch).collect()
}

fn task_number(task: &TaskInfo) -> &str {
    task.address.rsplit(':').next().unwrap_or_default()
}

fn print_branches(branches: &[TaskBranch], indent: &str) -> Result<(), CliError> {
    for (at, branch) in branches.iter().enumerate() {
        let last = at + 1 == branches.len();
        let (fork, continuation) =
            if last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let task = &branch.task;
        let name = task.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let age = render::render_age(task.spawned_at);
        let usage =
            render::render_usage(&task.usage).map(|usage| format!("{usage}  ")).unwrap_or_default();
        let line = StyledLine::from(format!("{indent}{fork}{}{name}  ", task.address))
            .styled(render::state_style(&task.state), render::render_state(task))
            .text(format!("  {age}  {usage}"));
        let description = render::render_one_line(&render::render_description(task));
        let description = render::truncate_to_terminal(&line, &description);
        render::print_line(line.text(description))?;
        print_branches(&branch.children, &format!("{indent}{continuation}"))?;
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
            "description": "job", "state": "succeeded", "alive": false, "spawned_at": no,
            "last_activity_at": no, "run": 1, "attempt": 1,
        });
        serde_json::from_value(value).expect("a task")
    }

    #[test]
    fn a_task_stands_below_its_parent_and_at_the_top_without_it() {
        let tasks = vec![task("a", 2, Some(1)), task("b", 1, None), task("a", 3, Some(2))];
        let sessions = group_by_session(tasks);
        let names: Vec<&str> = sessions.iter().map(|session| session.name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "each session once, though the tasks are mixed");
        let top = &sessions[0].branches;
        assert_eq!((top.len(), top[0].children.len()), (1, 1));
        assert_eq!(top[0].children[0].task.address, "job:3");
    }

    #[test]
    fn many_tasks_are_grouped_quickly() {
        let tasks = (1..=20_000).map(|no| task("a", no, (no > 1).then_some(1))).collect();
        let began = Instant::now();
        let sessions = group_by_session(tasks);
        assert_eq!(sessions[0].branches[0].children.len(), 19_999);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
