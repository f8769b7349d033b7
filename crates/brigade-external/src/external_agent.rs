//! The agent of another vendor: its command line, and the conversation with its program.
//!
//! A conversation does no input and no output. It turns lines of the program into events and into
//! bytes for the program's input. Its state can be saved after every line, so that the next attempt
//! goes on with the same program.

use std::fmt::Debug;

use brigade_agent::agent_program::ProgramSpec;
use brigade_model::refusal::Refusal;
use serde_json::Value;

use crate::adapter::{AccessLevel, PermissionDecision, SessionIdSource, TurnStart, TurnStartError};
use crate::event_reader::LineContent;
use crate::login_marks::LoginMarks;
use crate::turn_events::TurnEvent;
use crate::turn_outcome::ClosingMark;

/// An agent whose turns are executed by a program.
pub trait ExternalAgent: Debug + Send + Sync + 'static {
    /// Returns the name by which definitions refer to it.
    fn name(&self) -> &str;

    /// Returns its name for people.
    fn title(&self) -> &str;

    /// Returns the protocol that Brigade speaks with the program.
    fn protocol(&self) -> ProgramProtocol {
        ProgramProtocol::Adapter
    }

    /// Returns the marks of a login, if they are known.
    fn login(&self) -> Option<&LoginMarks> {
        None
    }

    /// Returns the name of the program, to look for it in the search path.
    fn program(&self) -> &str;

    fn session_id_source(&self) -> SessionIdSource;

    fn closing_mark(&self) -> ClosingMark;

    /// Checks that the program asks for permissions, so that rules and approvals reach its calls.
    fn asks_permission(&self) -> bool;

    /// Checks that a later program can go on with the session of an earlier one.
    fn resumes_sessions(&self) -> bool;

    /// Checks that the program may go on after its turn, as a server. It is stopped then, and only
    /// the closing event tells whether the turn succeeded.
    fn outlives_turn(&self) -> bool {
        false
    }

    /// Checks that the program reports what it costs.
    fn reports_cost(&self) -> bool;

    /// Checks that the program can be limited to this access.
    fn check_access(&self, access: AccessLevel) -> Result<(), TurnStartError>;

    /// Returns the program of a turn. `is_set` checks that a variable exists in the environment of
    /// the runtime.
    fn program_spec(
        &self,
        turn: &TurnStart<'_>,
        is_set: &dyn Fn(&str) -> bool,
    ) -> Result<ProgramSpec, TurnStartError>;

    /// Begins the conversation of a turn.
    fn begin_turn(&self, turn: &TurnStart<'_>) -> TurnOpening;

    /// Continues a conversation from its saved state.
    fn restore_conversation(&self, saved: &Value) -> Result<Box<dyn TurnConversation>, Refusal>;
}

/// The protocol between Brigade and a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramProtocol {
    /// The program's own events, which an adapter describes.
    Adapter,
    /// The Agent Client Protocol.
    Acp,
}

/// The conversation of a turn, and its first input.
#[derive(Debug)]
pub struct TurnOpening {
    pub conversation: Box<dyn TurnConversation>,
    pub input: ProgramInput,
}

/// The conversation with the program of one turn.
pub trait TurnConversation: Debug + Send + Sync {
    /// Processes the next line of the standard output.
    fn read_line(&mut self, line: &LineContent) -> ConversationStep;

    /// Answers a permission request.
    fn decide_permission(
        &mut self,
        request_id: &str,
        decision: PermissionDecision<'_>,
    ) -> ProgramInput;

    /// Answers a question. `None` declines it.
    fn answer_question(&mut self, _question_id: &str, _answer: Option<&str>) -> ProgramInput {
        ProgramInput::default()
    }

    /// Returns the state, from which [`ExternalAgent::restore_conversation`] continues.
    fn save(&self) -> Value;
}

/// The result of one line: events, and input that is written after they are stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationStep {
    pub events: Vec<TurnEvent>,
    pub input: ProgramInput,
}

/// The next bytes of the program's input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramInput {
    pub bytes: Vec<u8>,
    /// True if the input ends with these bytes.
    pub ends: bool,
}
