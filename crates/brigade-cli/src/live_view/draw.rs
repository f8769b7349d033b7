//! How a tree of tasks looks on a terminal, in the room that there is. Nothing here touches one.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use brigade_server::TaskInfo;

use crate::{duration, render};

/// The most that a task's place and name take of a line, in hundredths.
const LABEL_PERCENT: usize = 40;
/// The longest of the usual states, so that nothing moves when one comes.
const STATE_WIDTH_MIN: usize = "succeeded".len();
/// The same for how long it takes.
const TOOK_WIDTH_MIN: usize = 3;
/// The least of what a task is at that is worth showing.
const ACTIVITY_WIDTH_MIN: usize = 8;

/// A task in its place in the tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeLine {
    pub(crate) depth: usize,
    pub(crate) task: TaskInfo,
    /// What it is at.
    pub(crate) activity: String,
}

/// In the order of the tree, each with how deep it is. The first is the root.
pub(crate) fn tree_order(tasks: &[TaskInfo]) -> Vec<(usize, &TaskInfo)> {
    let mut children: BTreeMap<&str, Vec<&TaskInfo>> = BTreeMap::new();
    for task in tasks.iter().skip(1) {
        children.entry(task.parent.as_deref().unwrap_or_default()).or_default().push(task);
    }
    let mut ordered = Vec::new();
    let mut left: Vec<(usize, &TaskInfo)> =
        tasks.first().map(|root| (0, root)).into_iter().collect();
    while let Some((depth, task)) = left.pop() {
        ordered.push((depth, task));
        let below = children.remove(task_number(&task.address)).unwrap_or_default();
        left.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
    ordered
}

fn task_number(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or(address)
}

/// Those that there is room for, and what is to be said of the others. What has ended gives way first,
/// the oldest before the newest, each with all below it; then the last that live.
pub(crate) fn fit_rows(
    ordered: Vec<(usize, &TaskInfo)>,
    most: usize,
) -> (Vec<(usize, &TaskInfo)>, Option<String>) {
    if ordered.len() <= most {
        return (ordered, None);
    }
    let room = most.saturating_sub(1).max(1);
    let mut kept = vec![true; ordered.len()];
    let mut left = ordered.len();
    let mut at = 1;
    while at < ordered.len() && left > room {
        let end = subtree_end(&ordered, at);
        if ordered[at..end].iter().all(|(_, task)| !task.alive) {
            kept[at..end].fill(false);
            left -= end - at;
            at = end;
        } else {
            at += 1;
        }
    }
    for at in (1..ordered.len()).rev() {
        if left > room && kept[at] {
            kept[at] = false;
            left -= 1;
        }
    }
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut shown, mut hidden) = (Vec::new(), 0);
    for (line, kept) in ordered.into_iter().zip(kept) {
        if kept {
            shown.push(line);
        } else {
            *states.entry(&line.1.state).or_default() += 1;
            hidden += 1;
        }
    }
    let states: Vec<String> =
        states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    (shown, Some(format!("… {hidden} more: {}", states.join(", "))))
}

/// Where what is below a task ends.
fn subtree_end(ordered: &[(usize, &TaskInfo)], at: usize) -> usize {
    let depth = ordered[at].0;
    let below = ordered[at + 1..].iter().take_while(|(below, _)| *below > depth);
    at + 1 + below.count()
}

/// The lines, coloured, none longer than the terminal is wide.
pub(crate) fn render_frame(lines: &[TreeLine], more: Option<&str>, columns: usize) -> Vec<String> {
    let forks = render_branches(lines);
    let labels: Vec<String> = lines
        .iter()
        .zip(forks)
        .map(|(line, fork)| format!("{fork}{}", render_label(&line.task)))
        .collect();
    let states: Vec<String> = lines
        .iter()
        .map(|line| render::render_one_line(&render::render_state(&line.task)))
        .collect();
    let widest =
        |texts: &[String]| texts.iter().map(|text| render::display_width(text)).max().unwrap_or(0);
    let state_width = widest(&states).max(STATE_WIDTH_MIN);
    let beside = |label: usize| columns.saturating_sub(label + 2 + state_width + 2);
    let label_most = match columns * LABEL_PERCENT / 100 {
        most if beside(most) >= ACTIVITY_WIDTH_MIN => most,
        // Where there is no room for anything else, it is theirs.
        _ => columns.saturating_sub(2 + state_width).max(1),
    };
    let label_width = widest(&labels).min(label_most);
    let mut frame = Vec::new();
    for ((line, label), state) in lines.iter().zip(&labels).zip(&states) {
        let label =
            render::pad_to_width(&render::truncate_to_width(label, label_width), label_width);
        let style = render::state_style(&line.task.state);
        let mut text = format!("{label}  {style}{state}{style:#}");
        let rest = render::render_one_line(&render_details(line));
        let room = beside(label_width);
        if !rest.is_empty() && room >= ACTIVITY_WIDTH_MIN {
            let gap = " ".repeat(state_width - render::display_width(state) + 2);
            let style = activity_style(&line.task);
            text.push_str(&format!(
                "{gap}{style}{}{style:#}",
                render::truncate_to_width(&rest, room)
            ));
        } else if label_width + 2 + render::display_width(state) > columns {
            text = render::truncate_to_width(&format!("{label}  {state}"), columns);
        }
        frame.push(text);
    }
    if let Some(more) = more {
        let style = Style::new().dimmed();
        frame.push(format!(
            "{style}{}{style:#}",
            render::truncate_to_width(&render::render_one_line(more), columns)
        ));
    }
    frame
}

/// What leads from a parent to each of its children.
fn render_branches(lines: &[TreeLine]) -> Vec<String> {
    let mut forks = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        let follows = |depth: usize| {
            let rest = lines[at + 1..].iter().take_while(|later| later.depth >= depth);
            rest.into_iter().any(|later| later.depth == depth)
        };
        let fork: String = (1..=line.depth)
            .map(|depth| match (depth == line.depth, follows(depth)) {
                (true, true) => "├─ ",
                (true, false) => "└─ ",
                (false, true) => "│  ",
                (false, false) => "   ",
            })
            .collect();
        forks.push(fork);
    }
    forks
}

fn render_label(task: &TaskInfo) -> String {
    render::render_one_line(&match &task.name {
        Some(name) => format!("{} {name}", task.address),
        None => task.address.clone(),
    })
}

fn render_details(line: &TreeLine) -> String {
    let task = &line.task;
    let took = task.ended_at.unwrap_or_else(render::now_millis).saturating_sub(task.spawned_at);
    // Nothing that flickers.
    let took = if took < 1_000 { "0s".to_owned() } else { duration::render_duration(took) };
    let parts = [
        Some(format!("{took:<TOOK_WIDTH_MIN$}")),
        render::render_usage(&task.usage),
        Some(line.activity.clone()),
    ];
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn activity_style(task: &TaskInfo) -> Style {
    if render::render_pending_input(task).is_none() {
        Style::new().dimmed()
    } else {
        Style::new().fg_color(Some(AnsiColor::Yellow.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top_view::state::tests::task;

    fn tree() -> Vec<TaskInfo> {
        let mut tasks = vec![
            task("agent:1", None, "waiting"),
            task("agent:2", Some("1"), "running"),
            task("process:4", Some("2"), "succeeded"),
            task("agent:3", Some("1"), "succeeded"),
        ];
        for (task, name) in tasks.iter_mut().zip(["Boss", "North", "", "A name rather long"]) {
            task.name = Some(name.to_owned()).filter(|name| !name.is_empty());
            task.alive = task.state != "succeeded";
            task.ended_at = Some(if task.alive { 65_000 } else { 3_000 });
        }
        tasks
    }

    fn drawn(tasks: &[TaskInfo], columns: usize, rows: usize) -> Vec<String> {
        let (shown, more) = fit_rows(tree_order(tasks), rows);
        let line = |(depth, task): (usize, &TaskInfo)| {
            let note = if task.alive { "step 2, thinking — I look around" } else { "" };
            TreeLine { depth, task: task.clone(), activity: note.to_owned() }
        };
        let lines: Vec<TreeLine> = shown.into_iter().map(line).collect();
        let frame = render_frame(&lines, more.as_deref(), columns);
        frame.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn a_tree_is_lined_up() {
        let expect = [
            "agent:1 Boss                   waiting    65s  step 2, thinking — I look around",
            "├─ agent:2 North               running    65s  step 2, thinking — I look around",
            "│  └─ process:4                succeeded  3s",
            "└─ agent:3 A name rather long  succeeded  3s",
        ];
        assert_eq!(drawn(&tree(), 80, 24), expect);
        let expect = [
            "agent:1 Boss      waiting    65s  step …",
            "├─ agent:2 North  running    65s  step …",
            "│  └─ process:4   succeeded  3s",
            "└─ agent:3 A na…  succeeded  3s",
        ];
        assert_eq!(drawn(&tree(), 40, 24), expect);
        for columns in 1..90 {
            let drawn = drawn(&tree(), columns, 24);
            assert!(
                drawn.iter().all(|line| render::display_width(line) <= columns),
                "{columns}: {drawn:?}"
            );
        }
    }

    #[test]
    fn wide_letters_take_their_room() {
        let mut tasks = tree();
        tasks[1].name = Some("日本語のテキスト".to_owned());
        tasks[1].usage.tokens = 12_345;
        for columns in 1..90 {
            let drawn = drawn(&tasks, columns, 24);
            assert!(
                drawn.iter().all(|line| render::display_width(line) <= columns),
                "{columns}: {drawn:?}"
            );
        }
        let shown = drawn(&tasks, 60, 24);
        assert_eq!(shown[1], "├─ agent:2 日本語のテキ…  running    65s  12k tokens  step …");
    }

    #[test]
    fn what_has_ended_gives_way_first() {
        let shown = drawn(&tree(), 80, 3);
        let first = |line: &String| line.split("  ").next().unwrap_or_default().to_owned();
        let labels: Vec<String> = shown.iter().map(first).collect();
        assert_eq!(labels, ["agent:1 Boss", "└─ agent:2 North", "… 2 more: 2 succeeded"]);
        let shown = drawn(&tree(), 80, 2);
        assert_eq!(shown[1], "… 3 more: 1 running, 2 succeeded");
        assert_eq!(drawn(&tree(), 80, 0).len(), 2, "the root is always there");
    }
}
