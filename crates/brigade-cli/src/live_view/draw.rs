//! Renders a task tree for a terminal of a given size. It does not write to the terminal.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use brigade_protocol::TaskInfo;

use crate::{duration, render};

/// The largest share of a line for the label of a task, in percent.
const LABEL_PERCENT: usize = 40;
/// The width of the longest usual state, so that the columns do not move.
const STATE_WIDTH_MIN: usize = "succeeded".len();
/// The least width of the duration.
const TOOK_WIDTH_MIN: usize = 3;
/// The least width of a useful activity.
const ACTIVITY_WIDTH_MIN: usize = 8;

/// A task at its depth in the tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeLine {
    pub(crate) depth: usize,
    pub(crate) task: TaskInfo,
    /// The current activity.
    pub(crate) activity: String,
}

/// A task and its depth in the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderedTask<'a> {
    pub(crate) depth: usize,
    pub(crate) task: &'a TaskInfo,
}

/// The rows that fit a terminal, and a summary of the others.
#[derive(Debug)]
pub(crate) struct FittedRows<'a> {
    pub(crate) rows: Vec<OrderedTask<'a>>,
    pub(crate) summary: Option<String>,
}

/// Orders tasks as a tree, the root first. The program of an agent is a part of it, and not shown.
pub(crate) fn tree_order(tasks: &[TaskInfo]) -> Vec<OrderedTask<'_>> {
    let mut children: BTreeMap<&str, Vec<&TaskInfo>> = BTreeMap::new();
    for task in tasks.iter().skip(1).filter(|task| !task.part_of_parent) {
        children.entry(task.parent.as_deref().unwrap_or_default()).or_default().push(task);
    }
    let mut ordered = Vec::new();
    let root = tasks.first().map(|task| OrderedTask { depth: 0, task });
    let mut pending: Vec<OrderedTask<'_>> = root.into_iter().collect();
    while let Some(next) = pending.pop() {
        ordered.push(next);
        let direct_children = children.remove(task_number(&next.task.address)).unwrap_or_default();
        let depth = next.depth + 1;
        pending.extend(direct_children.into_iter().rev().map(|task| OrderedTask { depth, task }));
    }
    ordered
}

pub(super) fn task_number(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or(address)
}

/// Selects the rows that fit. Ended subtrees are dropped first, the oldest before the newest. Then
/// the last alive tasks are dropped.
pub(crate) fn fit_rows(ordered: Vec<OrderedTask<'_>>, rows_max: usize) -> FittedRows<'_> {
    if ordered.len() <= rows_max {
        return FittedRows { rows: ordered, summary: None };
    }
    let task_rows = rows_max.saturating_sub(1).max(1);
    let mut kept = vec![true; ordered.len()];
    let mut kept_count = ordered.len();
    let mut at = 1;
    while at < ordered.len() && kept_count > task_rows {
        let end = subtree_end(&ordered, at);
        if ordered[at..end].iter().all(|line| !line.task.alive) {
            kept[at..end].fill(false);
            kept_count -= end - at;
            at = end;
        } else {
            at += 1;
        }
    }
    for at in (1..ordered.len()).rev() {
        if kept_count > task_rows && kept[at] {
            kept[at] = false;
            kept_count -= 1;
        }
    }
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    let mut hidden = 0;
    for (line, kept) in ordered.into_iter().zip(kept) {
        if kept {
            rows.push(line);
        } else {
            *states.entry(&line.task.state).or_default() += 1;
            hidden += 1;
        }
    }
    let states: Vec<String> =
        states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    FittedRows { rows, summary: Some(format!("… {hidden} more: {}", states.join(", "))) }
}

/// Returns the index after the subtree of a task.
fn subtree_end(ordered: &[OrderedTask<'_>], at: usize) -> usize {
    let depth = ordered[at].depth;
    let descendants = ordered[at + 1..].iter().take_while(|line| line.depth > depth);
    at + 1 + descendants.count()
}

/// Renders the lines with colours, none wider than the terminal.
pub(crate) fn render_frame(
    lines: &[TreeLine],
    summary: Option<&str>,
    columns: usize,
) -> Vec<String> {
    let branches = render_branches(lines);
    let labels: Vec<String> = lines
        .iter()
        .zip(branches)
        .map(|(line, branch)| format!("{branch}{}", render_label(&line.task)))
        .collect();
    let states: Vec<String> = lines
        .iter()
        .map(|line| render::render_one_line(&render::render_state(&line.task)))
        .collect();
    let widest =
        |texts: &[String]| texts.iter().map(|text| render::display_width(text)).max().unwrap_or(0);
    let state_width = widest(&states).max(STATE_WIDTH_MIN);
    let activity_width = |label: usize| columns.saturating_sub(label + 2 + state_width + 2);
    let label_max = match columns * LABEL_PERCENT / 100 {
        max if activity_width(max) >= ACTIVITY_WIDTH_MIN => max,
        // Without space for the activity, the label gets the rest.
        _ => columns.saturating_sub(2 + state_width).max(1),
    };
    let label_width = widest(&labels).min(label_max);
    let mut frame = Vec::new();
    for ((line, label), state) in lines.iter().zip(&labels).zip(&states) {
        let label =
            render::pad_to_width(&render::truncate_to_width(label, label_width), label_width);
        let style = render::state_style(&line.task.state);
        let mut text = format!("{label}  {style}{state}{style:#}");
        let details = render::render_one_line(&render_details(line));
        let details_width = activity_width(label_width);
        if !details.is_empty() && details_width >= ACTIVITY_WIDTH_MIN {
            let gap = " ".repeat(state_width - render::display_width(state) + 2);
            let style = activity_style(&line.task);
            text.push_str(&format!(
                "{gap}{style}{}{style:#}",
                render::truncate_to_width(&details, details_width)
            ));
        } else if label_width + 2 + render::display_width(state) > columns {
            text = render::truncate_to_width(&format!("{label}  {state}"), columns);
        }
        frame.push(text);
    }
    if let Some(summary) = summary {
        let style = Style::new().dimmed();
        frame.push(format!(
            "{style}{}{style:#}",
            render::truncate_to_width(&render::render_one_line(summary), columns)
        ));
    }
    frame
}

/// Renders the branches that lead from each parent to its children.
fn render_branches(lines: &[TreeLine]) -> Vec<String> {
    let mut branches = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        let follows = |depth: usize| {
            let later_lines = lines[at + 1..].iter().take_while(|later| later.depth >= depth);
            later_lines.into_iter().any(|later| later.depth == depth)
        };
        let branch: String = (1..=line.depth)
            .map(|depth| match (depth == line.depth, follows(depth)) {
                (true, true) => "├─ ",
                (true, false) => "└─ ",
                (false, true) => "│  ",
                (false, false) => "   ",
            })
            .collect();
        branches.push(branch);
    }
    branches
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
    // Milliseconds would flicker.
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
        let fitted = fit_rows(tree_order(tasks), rows);
        let line = |row: OrderedTask<'_>| {
            let activity = if row.task.alive { "step 2, thinking — I look around" } else { "" };
            TreeLine { depth: row.depth, task: row.task.clone(), activity: activity.to_owned() }
        };
        let lines: Vec<TreeLine> = fitted.rows.into_iter().map(line).collect();
        let frame = render_frame(&lines, fitted.summary.as_deref(), columns);
        frame.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn the_columns_of_a_tree_are_aligned() {
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
    fn wide_letters_count_as_two_columns() {
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
    fn ended_tasks_are_dropped_first() {
        let shown = drawn(&tree(), 80, 3);
        let first = |line: &String| line.split("  ").next().unwrap_or_default().to_owned();
        let labels: Vec<String> = shown.iter().map(first).collect();
        assert_eq!(labels, ["agent:1 Boss", "└─ agent:2 North", "… 2 more: 2 succeeded"]);
        let shown = drawn(&tree(), 80, 2);
        assert_eq!(shown[1], "… 3 more: 1 running, 2 succeeded");
        assert_eq!(drawn(&tree(), 80, 0).len(), 2, "the root is always there");
    }
}
