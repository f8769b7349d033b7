//! Descendants of the root task as tool calls and as entries of the plan.

use std::collections::HashMap;

use agent_client_protocol::v1::schema::{
    Cost, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate, ToolCall,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use brigade_model::limits::Usage;
use brigade_model::plain_text::PlainText;
use brigade_model::truncate::truncate_chars;
use brigade_protocol::TaskInfo;

/// The maximum number of entries of a plan. Further tasks are tool calls only.
const PLAN_ENTRIES_MAX: usize = 100;
const TITLE_CHARS: usize = 200;

/// The descendants as the editor has them.
#[derive(Debug, Default)]
pub(crate) struct TaskTracker {
    sent: HashMap<String, SentTask>,
    plan: Vec<PlanEntry>,
    usage: Usage,
}

#[derive(Debug, PartialEq, Eq)]
struct SentTask {
    title: String,
    status: ToolCallStatus,
}

impl TaskTracker {
    /// Returns the updates of a subtree: each descendant that has changed, the plan and the cost.
    /// The first task is the root. The program of an agent is a part of it and not shown.
    pub(crate) fn update(&mut self, tasks: &[TaskInfo]) -> Vec<SessionUpdate> {
        let Some((root, descendants)) = tasks.split_first() else { return Vec::new() };
        let descendants = || descendants.iter().filter(|task| !task.part_of_parent);
        let mut updates: Vec<SessionUpdate> =
            descendants().filter_map(|task| self.update_task(task)).collect();
        let plan: Vec<PlanEntry> = descendants().take(PLAN_ENTRIES_MAX).map(plan_entry).collect();
        if plan != self.plan {
            self.plan.clone_from(&plan);
            updates.push(SessionUpdate::Plan(Plan::new(plan)));
        }
        if root.usage != self.usage {
            self.usage = root.usage;
            updates.push(usage_update(root.usage));
        }
        updates
    }

    fn update_task(&mut self, task: &TaskInfo) -> Option<SessionUpdate> {
        let status = task_status(task);
        let title = render_title(task);
        let id = format!("task-{}", task.address);
        let next = SentTask { title: title.clone(), status };
        let last = self.sent.get(&id);
        if last == Some(&next) {
            return None;
        }
        let is_new = last.is_none();
        self.sent.insert(id.clone(), next);
        if is_new {
            let call = ToolCall::new(id, title).kind(ToolKind::Other).status(status);
            return Some(SessionUpdate::ToolCall(call));
        }
        let fields = ToolCallUpdateFields::new().title(title).status(status);
        Some(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields)))
    }
}

/// Returns the cost so far. The protocol wants the tokens in the context and its size, which are
/// not known here: both are zero.
fn usage_update(usage: Usage) -> SessionUpdate {
    let dollars = usage.money.0 as f64 / 1e6;
    SessionUpdate::UsageUpdate(UsageUpdate::new(0, 0).cost(Cost::new(dollars, "USD")))
}

fn task_status(task: &TaskInfo) -> ToolCallStatus {
    match task.state.as_str() {
        "queued" => ToolCallStatus::Pending,
        "succeeded" => ToolCallStatus::Completed,
        "failed" | "cancelled" => ToolCallStatus::Failed,
        _ => ToolCallStatus::InProgress,
    }
}

fn render_title(task: &TaskInfo) -> String {
    let kind = task.kind.as_str();
    let label = task.label();
    let label = if label.starts_with(kind) { label.to_owned() } else { format!("{kind} {label}") };
    let title = format!("{label}: {}", task.state);
    truncate_chars(PlainText::line(&title).as_str(), TITLE_CHARS)
}

fn plan_entry(task: &TaskInfo) -> PlanEntry {
    let status = match task_status(task) {
        ToolCallStatus::Pending => PlanEntryStatus::Pending,
        ToolCallStatus::Completed | ToolCallStatus::Failed => PlanEntryStatus::Completed,
        _ => PlanEntryStatus::InProgress,
    };
    let end = match task.state.as_str() {
        "failed" | "cancelled" => format!(" ({})", task.state),
        _ => String::new(),
    };
    let content = format!("{}: {}{end}", task.label(), task.description);
    let content = truncate_chars(PlainText::line(&content).as_str(), TITLE_CHARS);
    PlanEntry::new(content, PlanEntryPriority::Medium, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(address: &str, state: &str) -> TaskInfo {
        let info = serde_json::json!({
            "address": address, "kind": "agent", "session": "here", "description": "cook",
            "state": state, "alive": state == "running", "run": 1, "attempt": 1, "spawned_at": 0,
            "last_activity_at": 0,
        });
        serde_json::from_value(info).expect("a task")
    }

    #[test]
    fn a_change_of_a_descendant_is_sent_once() {
        let mut tracker = TaskTracker::default();
        let root = task("agent:1", "running");
        assert!(tracker.update(std::slice::from_ref(&root)).is_empty());
        let running = [root.clone(), task("agent:2", "running")];
        let updates = tracker.update(&running);
        assert!(matches!(&updates[0], SessionUpdate::ToolCall(call)
            if call.title == "agent:2: running" && call.status == ToolCallStatus::InProgress));
        assert!(matches!(&updates[1], SessionUpdate::Plan(plan) if plan.entries.len() == 1));
        assert!(tracker.update(&running).is_empty());
        let updates = tracker.update(&[root, task("agent:2", "failed")]);
        assert!(matches!(&updates[0], SessionUpdate::ToolCallUpdate(update)
            if update.fields.status == Some(ToolCallStatus::Failed)));
        assert!(matches!(&updates[1], SessionUpdate::Plan(plan)
            if plan.entries[0].content == "agent:2: cook (failed)"));
    }

    #[test]
    fn the_program_of_an_agent_is_not_shown() {
        let mut tracker = TaskTracker::default();
        let program = TaskInfo { part_of_parent: true, ..task("process:2", "running") };
        assert!(tracker.update(&[task("agent:1", "running"), program]).is_empty());
    }
}
