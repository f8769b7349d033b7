//! The delegation tools, defined once: arguments, schemas, descriptions, bounds and replies.
//!
//! ```text
//!   agents (brigade-runtime) ────┐              ┌── arguments: strict, checked against the schema
//!                                ├── Audience ──┤
//!   MCP clients (brigade-server) ┘              └── reply: as text, and as JSON
//! ```
//!
//! Agents and MCP clients have the same tools. The few differences are data: an [`Audience`]
//! selects the offered arguments, the bounds of a wait, and the descriptions. The two callers
//! execute the calls themselves.
//!
//! - [`audience`]: the callers of the tools, and the bounds of their waits.
//! - [`tool_args`]: a tool as an argument type, with its definition and the parsing of its
//!   arguments.
//! - The tools, one file each: [`spawn_agent`], [`run_process`], [`list_tasks`], [`wait_tasks`],
//!   [`send_message`], [`stop_task`], [`read_output`], [`ask_parent`].
//! - [`task_summary`], [`agent_task_summary`]: a task for a model, as a line of text and as JSON.
//! - [`delegation_reply`]: a reply as text and as JSON, each complete. [`ended_task`],
//!   [`background_task`], [`task_note`] and [`user_approval`] are parts of replies.
//! - [`output_tail`]: the end of a process's output, truncated for a reply.
//! - [`short_text`]: durations as text.

pub mod agent_task_summary;
pub mod ask_parent;
pub mod audience;
pub mod background_task;
pub mod delegation_reply;
pub mod ended_task;
pub mod list_tasks;
pub mod output_tail;
pub mod read_output;
pub mod run_process;
pub mod send_message;
pub mod short_text;
pub mod spawn_agent;
pub mod stop_task;
pub mod task_note;
pub mod task_summary;
pub mod tool_args;
pub mod user_approval;
pub mod wait_tasks;

pub use agent_task_summary::{AgentTaskSummary, ApprovalSummary, OpenQuestion, UsageSummary};
pub use ask_parent::AskParent;
pub use audience::{Audience, ClientProfile, WaitBounds};
pub use background_task::{BackgroundReason, BackgroundTask};
pub use delegation_reply::DelegationReply;
pub use ended_task::{EndedResult, EndedTask};
pub use list_tasks::{ListTasks, ListTasksReply, TaskFilter};
pub use output_tail::OutputTail;
pub use read_output::{OutputMatches, OutputPart, OutputStream, ReadOutput};
pub use run_process::RunProcess;
pub use send_message::{SendMessage, SendMessageReply};
pub use short_text::render_away;
pub use spawn_agent::{BudgetArgs, SpawnAgent};
pub use stop_task::{StopTask, StopTaskReply};
pub use task_note::TaskNote;

pub use task_summary::{TaskSummary, WorktreeSummary};
pub use tool_args::{ToolArgs, ToolDefinition, ToolHints, define_tool, read_args};
pub use user_approval::UserApproval;
pub use wait_tasks::{WaitEnd, WaitTasks, WaitTasksReply};

/// The names of the tools.
pub const TOOL_NAMES: [&str; 8] = [
    SpawnAgent::NAME,
    RunProcess::NAME,
    ListTasks::NAME,
    WaitTasks::NAME,
    SendMessage::NAME,
    StopTask::NAME,
    ReadOutput::NAME,
    AskParent::NAME,
];

#[cfg(test)]
mod tests;
