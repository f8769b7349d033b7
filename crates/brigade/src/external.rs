//! Agents of other vendors, such as Claude Code and Codex, as agents of this program.
//!
//! ```
//! use std::sync::Arc;
//!
//! use brigade::agent::Definition;
//! use brigade::external::{ExternalBackend, parse_agent_file};
//! use brigade::{AgentOptions, NewTask, OneModel, ProcessOptions, Runtime};
//! # use brigade::llm::{Script, ScriptedModel};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = ScriptedModel::new(Script::parse("never", "agent *\nturn\n  say Never.\n")?);
//! # let models = OneModel(Arc::new(model));
//! # let state = tempfile::tempdir()?;
//! // Built-in programs are in `AgentCatalog::load(None)`. This one is a shell script.
//! let cook = parse_agent_file(
//!     r#"
//!     name = "cook"
//!     title = "Cook"
//!     format = "json_lines"
//!     program = "sh"
//!     start = ["-c", 'echo "{\"type\":\"end\",\"answer\":\"Soup.\"}"', "{access}", "{prompt}"]
//!     resume = ["-c", "exit 1", "{access}", "{session_id}", "{prompt}"]
//!     session_id = "reported"
//!     prompt = "argument"
//!     closing = "event"
//!
//!     [access]
//!     full = []
//!
//!     [[events]]
//!     match = { type = "end" }
//!     session = { id = "session" }
//!     closed = { success = { type = "end" }, result = "answer" }
//!     "#,
//! )?;
//! let agents = AgentOptions::new(models)
//!     .backend("cook", ExternalBackend::new(cook))
//!     .definition(Definition::new("chef").description("Cooks.").backend("cook"))?;
//! let processes = ProcessOptions::new(state.path());
//! let runtime = Runtime::builder().processes(processes).agents(agents).start().await?;
//! let session = runtime.session("today").await?;
//! let chef = session.spawn(NewTask::agent("What do we eat?").definition("chef")).await?;
//! assert_eq!(chef.result().await?, "Soup.");
//! # runtime.shutdown().await?;
//! # Ok(())
//! # }
//! ```

pub use brigade_external::a2a_backend::A2aBackend;
pub use brigade_external::acp::{AcpAgent, SessionResume};
pub use brigade_external::adapter::{
    AccessLevel, AdapterFault, CliAdapter, PermissionDecision, SessionIdSource, SessionStart,
    TurnStart, TurnStartError,
};
pub use brigade_external::agent_catalog::{
    AdapterFileFault, AgentCatalog, AgentLookupError, CatalogEntry,
};
pub use brigade_external::agent_file::parse_agent_file;
pub use brigade_external::event_reader::LineContent;
pub use brigade_external::external_agent::{
    ConversationStep, ExternalAgent, ProgramInput, ProgramProtocol, TurnConversation, TurnOpening,
};
pub use brigade_external::external_backend::ExternalBackend;
pub use brigade_external::login_marks::{LoginMarks, LoginState};
pub use brigade_external::turn_events::{
    NoticeLevel, PermissionOption, PermissionOptionKind, PermissionRequest, RequestedCall,
    SubjectKind, TextPart, TurnClosing, TurnEvent, TurnNotice, TurnQuestion,
};
pub use brigade_external::turn_outcome::ClosingMark;
pub use brigade_external::usage::{ReportedUsage, UsageReport, UsageScope};
