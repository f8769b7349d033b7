//! The tasks of the workspace.

use brigade_model::refusal::Refusal;
use rmcp::model::ToolAnnotations;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::{Answer, Call, LOOKED_THROUGH, Tool};
use super::{agents, text};
use crate::info::TaskInfo;

/// The newest so many are shown.
const SHOWN: usize = 50;

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTasks {
    /// Only tasks in this state. Default: living ones, and ended ones whose result nobody took.
    #[serde(default)]
    state: Option<Wanted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    All,
    Living,
    Ended,
    Queued,
    Running,
    Waiting,
    Stopping,
    Closing,
    Succeeded,
    Failed,
    Cancelled,
}

impl Tool for ListTasks {
    const NAME: &'static str = "list_tasks";
    const TITLE: &'static str = "List tasks";
    const DESCRIPTION: &'static str = "List the workspace's tasks with address, name, state, age and \
        exit code, what sub-agents are at, say, ask and have used, also those of other and earlier \
        conversations: wait_tasks takes their results by name. Use it to find work whose address you no longer know. Not for waiting: wait_tasks does that without polling.";

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false)
    }

    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let ended = self.state.is_some_and(Wanted::includes_ended);
        let mut tasks = call.list(ended).await?;
        let all_seen = tasks.len() < LOOKED_THROUGH;
        tasks.retain(|info| self.state.is_none_or(|wanted| wanted.fits(info)));
        let total = tasks.len();
        let shown = tasks.split_off(total.saturating_sub(SHOWN));
        let mut text = as_text(call, &shown, total);
        if !all_seen {
            text.push_str(&format!(
                "\n[only the newest {LOOKED_THROUGH} tasks were looked through]"
            ));
        }
        let mut structured = json!({ "tasks": as_values(call, &shown), "total": total });
        // Only looked at: wait_tasks takes them.
        let (lines, notes) = agents::notes(&call.notes(false).await);
        if !lines.is_empty() {
            text.push_str(&format!("\n{}", lines.join("\n")));
            structured["notes"] = notes;
        }
        Ok(Answer::Said { text, structured })
    }
}

impl Wanted {
    fn includes_ended(self) -> bool {
        matches!(self, Self::All | Self::Ended | Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    fn fits(self, info: &TaskInfo) -> bool {
        match self {
            Self::All => true,
            Self::Living => info.living,
            Self::Ended => !info.living,
            state => info.state.eq_ignore_ascii_case(&format!("{state:?}")),
        }
    }
}

fn as_values(call: &Call, shown: &[TaskInfo]) -> Vec<Value> {
    shown.iter().map(|info| text::structured(call, info)).collect()
}

fn as_text(call: &Call, shown: &[TaskInfo], total: usize) -> String {
    if shown.is_empty() {
        return "no such tasks".to_owned();
    }
    let mut lines: Vec<String> = shown.iter().map(|info| text::listed(call, info)).collect();
    if total > shown.len() {
        let older = total - shown.len();
        lines.insert(0, format!("[... {older} older ones left out: ask for one state ...]"));
    }
    lines.join("\n")
}
