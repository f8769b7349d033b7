//! Agents that speak the Agent Client Protocol (ACP) over their standard input and output.
//!
//! A file describes the program. The protocol itself is the same for all of them.
//!
//! ```
//! use brigade_external::acp::AcpAgent;
//! use brigade_external::external_agent::ExternalAgent;
//!
//! let agent = AcpAgent::parse(
//!     r#"
//!     protocol = "acp"
//!     name = "cook-acp"
//!     title = "Cook"
//!     program = "cook"
//!     arguments = ["acp"]
//!     resume = "resume"            # or "load", "none", "declared"
//!     reports_cost = true
//!
//!     [login]                      # for `brigade agents`, and for the error of a missing login
//!     files = ["~/.cook/auth.json"]
//!     hint = "run `cook login`"
//!
//!     [environment]
//!     pass = ["COOK_API_KEY"]
//!     "#,
//! );
//! assert_eq!(agent.map(|agent| agent.name().to_owned()), Ok("cook-acp".to_owned()));
//! ```
//!
//! Only this module knows the crate `agent-client-protocol-schema`. It uses the types of messages,
//! and nothing else. `conversation` decides the next message, `messages` reads and writes JSON-RPC,
//! `session_updates` turns updates into events, `tool_calls` follows each call, `permissions`
//! chooses answers, and `turn_status` finds failures that a program does not report in its answer.

use std::path::Path;

use brigade_agent::agent_program::ProgramSpec;
use brigade_model::refusal::Refusal;
use serde::Deserialize;
use serde_json::Value;

use crate::adapter::validate::{AgentNames, NAME_MAX, fault, is_name_char, validate_login};
use crate::adapter::{
    AccessLevel, AdapterEnvironment, AdapterFault, SessionIdSource, TurnStart, TurnStartError,
};
use crate::agent_file::parse_toml;
use crate::external_agent::{ExternalAgent, ProgramProtocol, TurnConversation, TurnOpening};
use crate::login_marks::LoginMarks;
use crate::tool_names::ToolNames;
use crate::turn_outcome::ClosingMark;

use self::conversation::AcpConversation;
use self::turn_status::TurnStatus;

mod conversation;
mod messages;
mod permissions;
mod questions;
mod session_options;
mod session_updates;
mod token_usage;
mod tool_calls;
mod turn_status;

/// An agent that speaks ACP.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcpAgent {
    /// Tells the file of an ACP agent from an adapter.
    protocol: AgentProtocol,
    name: String,
    title: String,
    program: String,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    resume: SessionResume,
    login: Option<LoginMarks>,
    /// False if the program makes calls without a question, so that no rule reaches them.
    #[serde(default = "default_asks_permission")]
    asks_permission: bool,
    #[serde(default)]
    reports_cost: bool,
    /// True if the title of a call that executes a command is that command.
    #[serde(default)]
    command_in_title: bool,
    /// True if a text without the id of a message is one of the program, not of the model.
    #[serde(default)]
    needs_message_id: bool,
    /// The status of a program that ends a failed turn like every other one.
    turn_status: Option<TurnStatus>,
    #[serde(default)]
    environment: AdapterEnvironment,
    #[serde(default)]
    tools: ToolNames,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AgentProtocol {
    Acp,
}

/// The request with which a later program continues the session of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionResume {
    /// `session/resume`. A program that does not declare it fails the turn.
    Resume,
    /// `session/load`. A program that does not declare it fails the turn.
    Load,
    /// None: each turn is a session of its own.
    None,
    /// `session/resume` if the program declares it. Otherwise its sessions have no id for later
    /// turns, and each turn is a session of its own.
    #[default]
    Declared,
}

fn default_asks_permission() -> bool {
    true
}

impl AcpAgent {
    /// Parses the file of an ACP agent.
    pub fn parse(text: &str) -> Result<Self, AdapterFault> {
        let agent: Self = parse_toml(text)?;
        AgentNames { name: &agent.name, title: &agent.title, program: &agent.program }
            .validate()?;
        if agent.arguments.iter().any(|argument| argument.contains('\0')) {
            fault("arguments", "remove the NUL character")?;
        }
        agent.environment.validate()?;
        validate_login(agent.login.as_ref())?;
        Ok(agent)
    }

    /// Returns the agent of a command line. Its name is that of the program.
    pub fn from_command_line(command_line: &[String]) -> Result<Self, AdapterFault> {
        let program = command_line.first().cloned().unwrap_or_default();
        let title = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        let agent = Self {
            protocol: AgentProtocol::Acp,
            name: derive_name(&title),
            title: title.into_owned(),
            program,
            arguments: command_line.iter().skip(1).cloned().collect(),
            resume: SessionResume::Declared,
            login: None,
            asks_permission: true,
            reports_cost: false,
            command_in_title: false,
            needs_message_id: false,
            turn_status: None,
            environment: AdapterEnvironment::default(),
            tools: ToolNames::default(),
        };
        if agent.title.trim().is_empty() {
            fault("acp", "write the program and its arguments")?;
        }
        if command_line.iter().any(|word| word.contains('\0')) {
            fault("acp", "remove the NUL character")?;
        }
        Ok(agent)
    }

    /// Returns the action of a person who is not logged in.
    fn login_hint(&self) -> String {
        let hint = self.login.as_ref().and_then(|login| login.hint.clone());
        hint.unwrap_or_else(|| format!("run `{}` and log in", self.program))
    }
}

/// Returns a valid name that resembles the file name of a program.
fn derive_name(file_name: &str) -> String {
    let lower = file_name.to_ascii_lowercase();
    let stem = lower.split('.').find(|part| !part.is_empty()).unwrap_or_default();
    let chars = stem.chars().map(|c| if is_name_char(c) { c } else { '-' });
    let name: String = chars.take(NAME_MAX).collect();
    match name.is_empty() {
        true => "acp".to_owned(),
        false => name,
    }
}

impl ExternalAgent for AcpAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn protocol(&self) -> ProgramProtocol {
        ProgramProtocol::Acp
    }

    fn login(&self) -> Option<&LoginMarks> {
        self.login.as_ref()
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn session_id_source(&self) -> SessionIdSource {
        SessionIdSource::Reported
    }

    fn closing_mark(&self) -> ClosingMark {
        ClosingMark::Event
    }

    fn asks_permission(&self) -> bool {
        self.asks_permission
    }

    fn resumes_sessions(&self) -> bool {
        self.resume != SessionResume::None
    }

    /// Gemini CLI does not exit at the end of its input while it has an MCP server.
    fn outlives_turn(&self) -> bool {
        true
    }

    fn reports_cost(&self) -> bool {
        self.reports_cost
    }

    fn check_access(&self, access: AccessLevel) -> Result<(), TurnStartError> {
        // Nothing limits a program that does not ask.
        match self.asks_permission || access == AccessLevel::Full {
            true => Ok(()),
            false => Err(TurnStartError::NoSuchAccess { title: self.title.clone(), access }),
        }
    }

    fn program_spec(
        &self,
        turn: &TurnStart<'_>,
        is_set: &dyn Fn(&str) -> bool,
    ) -> Result<ProgramSpec, TurnStartError> {
        self.check_access(turn.access)?;
        let mut command_line = vec![self.program.clone()];
        command_line.extend(self.arguments.iter().cloned());
        let env = self.environment.resolve(turn, is_set);
        Ok(ProgramSpec { command_line, cwd: None, env, grace: None })
    }

    fn begin_turn(&self, turn: &TurnStart<'_>) -> TurnOpening {
        AcpConversation::begin(self.clone(), turn)
    }

    fn restore_conversation(&self, saved: &Value) -> Result<Box<dyn TurnConversation>, Refusal> {
        Ok(Box::new(AcpConversation::restore(self.clone(), saved)?))
    }
}
