//! Adapters for agents that run as a command-line program without a terminal.
//!
//! An adapter is a TOML file. It describes the command line of a new and of a resumed session, the
//! form in which the prompt is passed, the environment, and rules that turn the program's events
//! into [`TurnEvent`]s. In a command line, a list of words is omitted if one of its placeholders
//! has no value. `{brigade}` is the path of the `brigade` program as a JSON text, `{budget}` the
//! money that remains for the turn in dollars.
//!
//! ```
//! use brigade_external::adapter::CliAdapter;
//! use brigade_external::external_agent::ExternalAgent;
//!
//! let adapter = CliAdapter::parse(
//!     r#"
//!     name = "cook"
//!     title = "Cook"
//!     format = "json_lines"
//!     program = "cook"
//!     start = ["run", "{access}", ["--model", "{model}"], "{prompt}"]
//!     resume = ["run", "{access}", "--session", "{session_id}", "{prompt}"]
//!     session_id = "reported"      # or "chosen", with {session_id} in `start`
//!     prompt = "argument"          # or "stdin_text", or "stdin_json" with lines in `input`
//!     closing = "event"            # or "end_of_output"
//!
//!     [access]
//!     read = ["--read-only"]
//!     full = []
//!
//!     [environment]
//!     set = { COOK_UPDATES = "off" }
//!     pass = ["COOK_API_KEY"]
//!
//!     [login]                      # for `brigade agents`
//!     files = ["~/.cook/auth.json"]
//!     variables = ["COOK_API_KEY"]
//!     hint = "run `cook login`"
//!
//!     [tools.names]                # for rules of definitions; only if it asks for permissions
//!     Shell = { same_as = "run_process", subject = "command", kind = "shell" }
//!
//!     [[events]]
//!     match = { type = "start" }
//!     session = { id = "session" }
//!
//!     [[events]]
//!     match = { type = "message" }
//!     each = "content[]"
//!     where = { type = "text" }
//!     text = { text = "text" }
//!
//!     [[events]]
//!     match = { type = "end" }
//!     closed = { success = { status = "ok" }, result = "answer", error = "reason" }
//!     usage = { input = "tokens.in", output = "tokens.out", cost = "dollars", cumulative = true }
//!     "#,
//! );
//! assert_eq!(adapter.map(|adapter| adapter.name().to_owned()), Ok("cook".to_owned()));
//! ```

use std::collections::BTreeMap;
use std::fmt;

use brigade_agent::agent_program::ProgramSpec;
use brigade_model::limits::Money;
use brigade_model::refusal::Refusal;
use brigade_model::work::EnvValue;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::agent_file::parse_toml;
use crate::cli_conversation::CliConversation;
use crate::event_rules::EventRule;
use crate::external_agent::{ExternalAgent, ProgramInput, TurnConversation, TurnOpening};
use crate::login_marks::LoginMarks;
use crate::placeholders::{JsonTemplate, PlaceholderValues, WordList, expand_word};
use crate::tool_names::ToolNames;
use crate::turn_events::TurnEvent;
use crate::turn_outcome::ClosingMark;

pub(crate) mod validate;

/// The longest prompt that Linux accepts as one argument, in bytes.
pub const ARGUMENT_MAX: usize = 128 * 1024 - 1;

/// The word of a command line that stands for the arguments of the access.
const ACCESS_WORD: &str = "{access}";

/// An adapter for the command line of an agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CliAdapter {
    name: String,
    title: String,
    format: EventFormat,
    program: String,
    start: WordList,
    resume: WordList,
    session_id: SessionIdSource,
    prompt: PromptChannel,
    closing: ClosingMark,
    /// The lines that are written to the program if the prompt is one of them.
    #[serde(default)]
    input: Vec<JsonTemplate>,
    access: Option<AccessArguments>,
    #[serde(default)]
    environment: AdapterEnvironment,
    login: Option<LoginMarks>,
    answers: Option<AnswerTemplates>,
    #[serde(default)]
    tools: ToolNames,
    events: Vec<EventRule>,
}

/// The format of the program's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EventFormat {
    JsonLines,
}

/// The origin of the id of an agent's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionIdSource {
    /// Brigade chooses the id and stores it before the program starts.
    Chosen,
    /// The program reports the id in an event.
    Reported,
}

/// The form in which a program gets its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptChannel {
    /// An argument. The standard input is empty.
    Argument,
    /// The text of the standard input, which then ends.
    StdinText,
    /// JSON lines of the standard input, which ends after the turn.
    StdinJson,
}

/// The access of a program that does not ask for permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLevel {
    /// It reads files and changes nothing.
    Read,
    /// It also edits files of its directory.
    Edit,
    /// It does everything that its process can do.
    Full,
}

impl fmt::Display for AccessLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read files",
            Self::Edit => "read and edit files",
            Self::Full => "do everything",
        })
    }
}

/// The arguments of each access that the program can be limited to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessArguments {
    read: Option<Vec<String>>,
    edit: Option<Vec<String>>,
    full: Option<Vec<String>>,
}

/// The environment of a program, in addition to the one that every process has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdapterEnvironment {
    /// Variables with fixed values.
    set: BTreeMap<String, String>,
    /// Variables that are passed on from the environment of the runtime, if they are set there.
    pass: Vec<String>,
}

/// The lines that answer requests of the program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerTemplates {
    allow: JsonTemplate,
    deny: JsonTemplate,
    /// The answer to a request that the adapter does not know.
    unsupported: JsonTemplate,
}

/// The start of one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnStart<'a> {
    pub prompt: &'a str,
    pub session: SessionStart<'a>,
    pub model: Option<&'a str>,
    pub access: AccessLevel,
    /// The working directory.
    pub directory: &'a str,
    /// The path of the `brigade` program, which serves Brigade's tools to the agent.
    pub brigade: Option<&'a str>,
    /// The money that remains for the turn.
    pub budget: Option<Money>,
}

/// The agent's session in which a turn takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStart<'a> {
    /// A new session. The id is used if Brigade chooses the ids.
    New {
        id: &'a str,
    },
    Resumed {
        id: &'a str,
    },
}

/// A decision about a permission request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PermissionDecision<'a> {
    /// Allows the call with these arguments, which are those of the request.
    Allow {
        arguments: &'a Value,
    },
    Deny {
        reason: &'a str,
    },
}

/// A fault of an adapter file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct AdapterFault {
    /// The path of the field, such as `events[3].tool_call.id`. It is `.` if the file is not TOML.
    pub field: String,
    pub problem: String,
}

/// A turn that the adapter cannot start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TurnStartError {
    #[error("the prompt has {length} bytes; {title} takes at most {ARGUMENT_MAX}")]
    PromptTooLong { title: String, length: usize },
    #[error("the prompt has a NUL character; remove it")]
    PromptWithNul,
    #[error(
        "the rules allow {title} only to {access}, and it cannot be limited to that; allow \
         `run_process`, or choose another agent"
    )]
    NoSuchAccess { title: String, access: AccessLevel },
    #[error("the command line of {title} needs a value for {{{placeholder}}}")]
    MissingValue { title: String, placeholder: String },
}

impl CliAdapter {
    /// Parses an adapter file.
    pub fn parse(text: &str) -> Result<Self, AdapterFault> {
        let adapter: Self = parse_toml(text)?;
        adapter.validate()?;
        Ok(adapter)
    }

    fn arguments(&self, turn: &TurnStart<'_>) -> Result<Vec<String>, TurnStartError> {
        let mut values = turn.placeholder_values();
        let list = match turn.session {
            SessionStart::New { id } => {
                values.insert("session_id", id.into());
                &self.start
            }
            SessionStart::Resumed { id } => {
                values.insert("session_id", id.into());
                &self.resume
            }
        };
        if self.prompt == PromptChannel::Argument {
            values.insert("prompt", self.prompt_argument(turn.prompt)?.into());
        }
        let list = list.splice(ACCESS_WORD, self.access_arguments(turn.access)?);
        let title = || self.title.clone();
        list.expand(&values)
            .map_err(|placeholder| TurnStartError::MissingValue { title: title(), placeholder })
    }

    /// Returns the prompt as an argument. A space before a `-` prevents that the program takes it
    /// for an option.
    fn prompt_argument(&self, prompt: &str) -> Result<String, TurnStartError> {
        if prompt.contains('\0') {
            return Err(TurnStartError::PromptWithNul);
        }
        let space = if prompt.starts_with('-') { " " } else { "" };
        let argument = format!("{space}{prompt}");
        let length = argument.len();
        if length > ARGUMENT_MAX {
            return Err(TurnStartError::PromptTooLong { title: self.title.clone(), length });
        }
        Ok(argument)
    }

    fn access_arguments(&self, access: AccessLevel) -> Result<&[String], TurnStartError> {
        let Some(arguments) = &self.access else { return Ok(&[]) };
        let arguments = match access {
            AccessLevel::Read => &arguments.read,
            AccessLevel::Edit => &arguments.edit,
            AccessLevel::Full => &arguments.full,
        };
        let title = || self.title.clone();
        let arguments = arguments.as_deref();
        arguments.ok_or_else(|| TurnStartError::NoSuchAccess { title: title(), access })
    }

    /// Returns the input at the start of a turn. Without its end it stays open for answers, until the
    /// turn is closed.
    pub fn turn_input(&self, prompt: &str) -> ProgramInput {
        match self.prompt {
            PromptChannel::Argument => ProgramInput { bytes: Vec::new(), ends: true },
            PromptChannel::StdinText => ProgramInput { bytes: prompt.into(), ends: true },
            PromptChannel::StdinJson => {
                let values = BTreeMap::from([("prompt", json!(prompt))]);
                let lines = self.input.iter().flat_map(|line| line.render_line(&values));
                ProgramInput { bytes: lines.collect(), ends: false }
            }
        }
    }

    /// Checks that the input stays open until the turn is closed.
    pub(crate) fn keeps_input_open(&self) -> bool {
        self.prompt == PromptChannel::StdinJson
    }

    /// Returns the line that answers a permission request, if the program asks for permissions.
    pub fn permission_answer(
        &self,
        request_id: &str,
        decision: PermissionDecision<'_>,
    ) -> Option<Vec<u8>> {
        let answers = self.answers.as_ref()?;
        let mut values = BTreeMap::from([("request_id", json!(request_id))]);
        let template = match decision {
            PermissionDecision::Allow { arguments } => {
                values.insert("arguments", arguments.clone());
                &answers.allow
            }
            PermissionDecision::Deny { reason } => {
                values.insert("reason", json!(reason));
                &answers.deny
            }
        };
        Some(template.render_line(&values))
    }

    /// Returns the line that refuses a request that the adapter does not know.
    pub fn refuse_request(&self, request_id: &str) -> Option<Vec<u8>> {
        let reason = "this request is not supported";
        let values = BTreeMap::from([("request_id", json!(request_id)), ("reason", json!(reason))]);
        Some(self.answers.as_ref()?.unsupported.render_line(&values))
    }

    /// Turns an event of the program into events of the turn, in the order of the rules.
    pub fn read_event(&self, event: &Value) -> Vec<TurnEvent> {
        let mut found = Vec::new();
        self.events.iter().for_each(|rule| rule.apply(event, &mut found));
        for event in &mut found {
            if let TurnEvent::PermissionRequest(request) = event {
                request.call = self.tools.translate(&request.tool, &request.arguments);
            }
        }
        found
    }
}

impl ExternalAgent for CliAdapter {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn login(&self) -> Option<&LoginMarks> {
        self.login.as_ref()
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn session_id_source(&self) -> SessionIdSource {
        self.session_id
    }

    fn closing_mark(&self) -> ClosingMark {
        self.closing
    }

    fn asks_permission(&self) -> bool {
        self.answers.is_some()
    }

    fn resumes_sessions(&self) -> bool {
        true
    }

    fn reports_cost(&self) -> bool {
        self.events.iter().any(EventRule::has_cost)
    }

    fn check_access(&self, access: AccessLevel) -> Result<(), TurnStartError> {
        self.access_arguments(access).map(|_| ())
    }

    fn program_spec(
        &self,
        turn: &TurnStart<'_>,
        is_set: &dyn Fn(&str) -> bool,
    ) -> Result<ProgramSpec, TurnStartError> {
        let mut command_line = vec![self.program.clone()];
        command_line.extend(self.arguments(turn)?);
        let env = self.environment.resolve(turn, is_set);
        Ok(ProgramSpec { command_line, cwd: None, env, grace: None })
    }

    fn begin_turn(&self, turn: &TurnStart<'_>) -> TurnOpening {
        let conversation = Box::new(CliConversation::new(self.clone()));
        TurnOpening { conversation, input: self.turn_input(turn.prompt) }
    }

    fn restore_conversation(&self, saved: &Value) -> Result<Box<dyn TurnConversation>, Refusal> {
        Ok(Box::new(CliConversation::restore(self.clone(), saved)?))
    }
}

impl AdapterEnvironment {
    /// Returns the variables of a turn. A fixed value is omitted if one of its placeholders has no
    /// value.
    pub(crate) fn resolve(
        &self,
        turn: &TurnStart<'_>,
        is_set: &dyn Fn(&str) -> bool,
    ) -> BTreeMap<String, EnvValue> {
        let values = turn.placeholder_values();
        let fixed = self.set.iter().filter_map(|(name, value)| {
            let value = expand_word(value, &values).ok()?;
            Some((name.clone(), EnvValue::from(value.as_str())))
        });
        let mut env: BTreeMap<String, EnvValue> = fixed.collect();
        let passed = self.pass.iter().filter(|name| is_set(name.as_str()));
        env.extend(passed.map(|name| (name.clone(), EnvValue::FromEnv(name.as_str().into()))));
        env
    }
}

impl TurnStart<'_> {
    /// Returns the values of the placeholders that every command line may have.
    fn placeholder_values(&self) -> PlaceholderValues<'_> {
        let mut values = PlaceholderValues::new();
        if let Some(model) = self.model {
            values.insert("model", model.into());
        }
        if let Some(brigade) = self.brigade {
            values.insert("brigade", json!(brigade).to_string().into());
        }
        if let Some(Money(millionths)) = self.budget {
            let dollars = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
            values.insert("budget", dollars.into());
        }
        values
    }
}
