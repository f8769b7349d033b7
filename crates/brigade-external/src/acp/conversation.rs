//! The conversation of one turn with an ACP agent.
//!
//! ```text
//! initialize ─> session/new | resume | load ─> [session/set_config_option] ─> session/prompt
//! ```
//!
//! Each phase has one open request of Brigade with a fixed id. An answer with another id is
//! ignored, and so is a second answer. Updates count from the prompt on: before it they are the
//! replay of a loaded session.

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    ClientCapabilities, ElicitationCapabilities, ElicitationFormCapabilities, Error, ErrorCode,
    Implementation, InitializeRequest, InitializeResponse, LoadSessionRequest, McpServer,
    McpServerStdio, NewSessionRequest, PromptRequest, PromptResponse, RequestId,
    RequestPermissionRequest, ResumeSessionRequest, SessionConfigOptionValue, SessionNotification,
    SetSessionConfigOptionRequest, StopReason,
};
use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_end;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::adapter::{PermissionDecision, SessionStart, TurnStart};
use crate::event_reader::LineContent;
use crate::external_agent::{ConversationStep, ProgramInput, TurnConversation, TurnOpening};
use crate::turn_events::{
    NoticeLevel, PermissionRequest, TurnClosing, TurnEvent, TurnNotice, TurnQuestion,
};

use super::messages::{
    ID_MAX, IncomingAnswer, IncomingMessage, render_error, render_error_text, render_request,
    render_result,
};
use super::permissions::{
    OpenPermission, PermissionAnswers, read_permission_request, request_key, translate_options,
};
use super::questions::{OpenQuestion, ReadQuestion};
use super::session_options::find_model_option;
use super::session_updates::{UpdateContext, UpdateReader};
use super::tool_calls::CallContext;
use super::{AcpAgent, SessionResume};

const INITIALIZE_ID: i64 = 1;
const SESSION_ID: i64 = 2;
const MODEL_ID: i64 = 3;
const PROMPT_ID: i64 = 4;

/// The maximum number of permission requests that wait at the same time.
const PERMISSIONS_MAX: usize = 64;
/// The maximum number of questions that wait at the same time.
const QUESTIONS_MAX: usize = 16;
/// The bytes of a declined question that a notice shows.
const QUESTION_SHOWN: usize = 400;

#[derive(Debug)]
pub(super) struct AcpConversation {
    agent: AcpAgent,
    state: ConversationState,
}

/// The state that is saved with each commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ConversationState {
    phase: TurnPhase,
    directory: String,
    updates: UpdateReader,
    permissions: Vec<OpenPermission>,
    questions: Vec<OpenQuestion>,
}

/// The request of Brigade that has no answer yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TurnPhase {
    Initializing(SessionPlan),
    OpeningSession { opening: SessionOpening, prompt: PromptPlan },
    ChoosingModel { session_id: String, prompt: String },
    Prompting { session_id: String },
    Closed,
}

/// The session that the turn needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SessionPlan {
    resumed: Option<String>,
    /// The path of the program that serves Brigade's tools.
    brigade: Option<String>,
    prompt: PromptPlan,
}

/// The request that opens the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SessionOpening {
    New,
    Resume { id: String },
    Load { id: String },
}

/// The prompt, and the model that answers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PromptPlan {
    text: String,
    model: Option<String>,
}

impl AcpConversation {
    /// Begins a turn.
    pub(super) fn begin(agent: AcpAgent, turn: &TurnStart<'_>) -> TurnOpening {
        let resumed = match turn.session {
            SessionStart::New { .. } => None,
            SessionStart::Resumed { id } => Some(id.to_owned()),
        };
        let prompt =
            PromptPlan { text: turn.prompt.to_owned(), model: turn.model.map(str::to_owned) };
        let plan = SessionPlan { resumed, brigade: turn.brigade.map(str::to_owned), prompt };
        let state = ConversationState {
            phase: TurnPhase::Initializing(plan),
            directory: turn.directory.to_owned(),
            updates: UpdateReader::default(),
            permissions: Vec::new(),
            questions: Vec::new(),
        };
        let client = Implementation::new("brigade", env!("CARGO_PKG_VERSION"));
        // Without capabilities for files and terminals, an agent uses its own.
        let mut questions = ElicitationCapabilities::new();
        questions.form = Some(ElicitationFormCapabilities::new());
        let request = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::default().elicitation(questions))
            .client_info(client);
        let bytes = render_request(INITIALIZE_ID, "initialize", request);
        let conversation = Box::new(Self { agent, state });
        TurnOpening { conversation, input: ProgramInput { bytes, ends: false } }
    }

    /// Continues a turn.
    pub(super) fn restore(agent: AcpAgent, saved: &Value) -> Result<Self, Refusal> {
        let state = ConversationState::deserialize(saved).map_err(|error| {
            Refusal::internal(format!("the saved state of a conversation is unreadable: {error}"))
        })?;
        Ok(Self { agent, state })
    }

    /// Processes the answer to the open request, and enters the next phase.
    fn read_answer(&mut self, id: &RequestId, answer: IncomingAnswer<'_>) -> ConversationStep {
        let open = self.state.phase.open_request();
        let Some(open) = open.filter(|open| *id == RequestId::Number(open.id)) else {
            return ConversationStep::default();
        };
        let result = match answer {
            IncomingAnswer::Result(result) => result,
            IncomingAnswer::Error(error) => return self.fail_with(&error),
            IncomingAnswer::Unreadable => return self.fail_unreadable(open.method),
        };
        match std::mem::replace(&mut self.state.phase, TurnPhase::Closed) {
            TurnPhase::Initializing(plan) => match InitializeResponse::deserialize(result) {
                Ok(response) => self.open_session(&response, plan),
                Err(_) => self.fail_unreadable(open.method),
            },
            TurnPhase::OpeningSession { opening, prompt } => {
                match opening.into_session_id(result) {
                    Some(session_id) => self.enter_session(session_id, result, prompt),
                    None => self.fail_unreadable(open.method),
                }
            }
            TurnPhase::ChoosingModel { session_id, prompt } => {
                ConversationStep { events: Vec::new(), input: self.send_prompt(session_id, prompt) }
            }
            TurnPhase::Prompting { .. } => match PromptResponse::deserialize(result) {
                Ok(response) => self.close(&response),
                Err(_) => self.fail_unreadable(open.method),
            },
            TurnPhase::Closed => ConversationStep::default(),
        }
    }

    fn open_session(
        &mut self,
        response: &InitializeResponse,
        plan: SessionPlan,
    ) -> ConversationStep {
        if response.protocol_version != ProtocolVersion::V1 {
            let version = response.protocol_version;
            return self.fail(format!(
                "{} speaks version {version} of the Agent Client Protocol; Brigade needs version 1",
                self.agent.title
            ));
        }
        let capabilities = &response.agent_capabilities;
        let can_resume = capabilities.session_capabilities.resume.is_some();
        let opening = match (plan.resumed, self.agent.resume) {
            (None, _) => SessionOpening::New,
            (Some(id), SessionResume::Resume | SessionResume::Declared) if can_resume => {
                SessionOpening::Resume { id }
            }
            (Some(id), SessionResume::Load) if capabilities.load_session => {
                SessionOpening::Load { id }
            }
            (Some(_), _) => {
                let title = &self.agent.title;
                return self.fail(format!(
                    "{title} does not declare that it can continue a session, which it needs here"
                ));
            }
        };
        // Without the id of this session, the next turn starts again and says so in its prompt.
        let is_known = self.agent.resume != SessionResume::Declared || can_resume;
        self.state.updates.usage.is_session_known = is_known;
        let bytes = opening.render(&self.state.directory, brigade_server(plan.brigade));
        self.state.phase = TurnPhase::OpeningSession { opening, prompt: plan.prompt };
        let input = ProgramInput { bytes, ends: false };
        ConversationStep { events: Vec::new(), input }
    }

    /// Reports the session, and chooses the model or sends the prompt. The session is stored before
    /// the input is written.
    fn enter_session(
        &mut self,
        session_id: String,
        session: &Value,
        prompt: PromptPlan,
    ) -> ConversationStep {
        let is_known = self.state.updates.usage.is_session_known;
        let started = is_known.then(|| TurnEvent::SessionStarted { id: session_id.clone() });
        let mut events: Vec<TurnEvent> = started.into_iter().collect();
        let Some(model) = prompt.model else {
            let input = self.send_prompt(session_id, prompt.text);
            return ConversationStep { events, input };
        };
        let Some(option) = find_model_option(session, &model) else {
            let title = &self.agent.title;
            let step = self.fail(format!(
                "{title} does not offer the model `{model}`; choose another one or none"
            ));
            events.extend(step.events);
            return ConversationStep { events, input: step.input };
        };
        let value = SessionConfigOptionValue::value_id(model);
        let request = SetSessionConfigOptionRequest::new(session_id.clone(), option, value);
        let bytes = render_request(MODEL_ID, "session/set_config_option", request);
        self.state.phase = TurnPhase::ChoosingModel { session_id, prompt: prompt.text };
        ConversationStep { events, input: ProgramInput { bytes, ends: false } }
    }

    fn send_prompt(&mut self, session_id: String, prompt: String) -> ProgramInput {
        let request = PromptRequest::new(session_id.clone(), vec![prompt.into()]);
        let bytes = render_request(PROMPT_ID, "session/prompt", request);
        self.state.phase = TurnPhase::Prompting { session_id };
        ProgramInput { bytes, ends: false }
    }

    fn close(&mut self, response: &PromptResponse) -> ConversationStep {
        let error = match response.stop_reason {
            StopReason::EndTurn => None,
            StopReason::MaxTokens => Some("it reached its limit of tokens"),
            StopReason::MaxTurnRequests => Some("it reached its limit of model calls"),
            StopReason::Refusal => Some("it refused to go on"),
            StopReason::Cancelled => Some("it cancelled the turn"),
            _ => Some("it stopped for an unknown reason"),
        };
        let usage = self.state.updates.usage.read_turn(response);
        // The reason of a failure is a notice, which comes before the answer.
        let success = error.is_none() && !self.state.updates.has_failed;
        let error = error.map(str::to_owned);
        self.end_turn(usage, TurnClosing { success, error, ..TurnClosing::default() })
    }

    /// Ends the turn with an error of the program.
    fn fail_with(&mut self, error: &Error) -> ConversationStep {
        let text = render_error_text(error);
        let text = match error.code {
            ErrorCode::AuthRequired => format!(
                "{} is not logged in; {}, then try again: {text}",
                self.agent.title,
                self.agent.login_hint(),
            ),
            _ => text,
        };
        self.fail(text)
    }

    fn fail_unreadable(&mut self, method: &str) -> ConversationStep {
        self.fail(format!("{} sent an unreadable answer to `{method}`", self.agent.title))
    }

    fn fail(&mut self, error: String) -> ConversationStep {
        self.end_turn(None, TurnClosing { error: Some(error), ..TurnClosing::default() })
    }

    fn end_turn(&mut self, usage: Option<TurnEvent>, closing: TurnClosing) -> ConversationStep {
        let mut events: Vec<TurnEvent> = self.state.updates.take_reasoning().into_iter().collect();
        events.extend(usage);
        events.push(TurnEvent::Closed(closing));
        self.state.phase = TurnPhase::Closed;
        self.state.permissions.clear();
        self.state.questions.clear();
        self.state.updates = UpdateReader::default();
        ConversationStep { events, input: ProgramInput { bytes: Vec::new(), ends: true } }
    }

    fn read_request(&mut self, id: RequestId, method: &str, params: &Value) -> ConversationStep {
        match method {
            "session/request_permission" => self.ask_permission(id, params),
            "elicitation/create" => self.ask_question(id, params),
            _ => refuse(&id, Error::method_not_found()),
        }
    }

    fn ask_permission(&mut self, id: RequestId, params: &Value) -> ConversationStep {
        let key = request_key(&id);
        // An answer would be one to the first request with this id.
        if self.state.permissions.iter().any(|open| open.key() == key) {
            return ConversationStep::default();
        }
        let request = match self.check_permission_request(params) {
            Ok(request) => request,
            Err(error) => return refuse(&id, error),
        };
        let directory = self.state.directory.as_str();
        let calls = &mut self.state.updates.calls;
        let Some(call) = calls.open_for_permission(&request.tool_call, directory) else {
            return refuse(&id, Error::invalid_params());
        };
        let context =
            CallContext { tools: &self.agent.tools, command_in_title: self.agent.command_in_title };
        let shown = call.show();
        let tool = call.name();
        let event = PermissionRequest {
            id: key,
            tool: tool.clone(),
            arguments: call.arguments(),
            call: call.requested_call(&context),
            options: translate_options(&request.options),
        };
        call.release_arguments();
        self.state.updates.end_message();
        let mut events: Vec<TurnEvent> = self.state.updates.take_reasoning().into_iter().collect();
        events.extend(shown);
        let answers = PermissionAnswers::choose(&request.options);
        let can_allow = answers.can_allow();
        let open = OpenPermission::new(id, answers);
        if !can_allow {
            events.push(warn(&format!(
                "the call of `{tool}` was denied, since it cannot be allowed only once"
            )));
            let bytes = open.render_answer(PermissionDecision::Deny { reason: "" });
            return ConversationStep { events, input: ProgramInput { bytes, ends: false } };
        }
        events.push(TurnEvent::PermissionRequest(event));
        self.state.permissions.push(open);
        ConversationStep { events, input: ProgramInput::default() }
    }

    fn ask_question(&mut self, id: RequestId, params: &Value) -> ConversationStep {
        let session_id = match &self.state.phase {
            TurnPhase::Prompting { session_id } => Some(session_id.as_str()),
            _ => None,
        };
        let is_session = params.get("sessionId").and_then(Value::as_str) == session_id;
        let read = OpenQuestion::read(id.clone(), params);
        let read = read.filter(|_| is_session && self.state.questions.len() < QUESTIONS_MAX);
        let Some(ReadQuestion { open, text }) = read else {
            let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
            let message = truncate_end(message, QUESTION_SHOWN);
            let events = vec![warn(&format!("its question was declined: {message}"))];
            let bytes = render_result(&id, json!({ "action": "decline" }));
            return ConversationStep { events, input: ProgramInput { bytes, ends: false } };
        };
        // An answer would be one to the first question with this id.
        if self.state.questions.iter().any(|other| other.key() == open.key()) {
            return ConversationStep::default();
        }
        let question = TurnQuestion { id: open.key(), text };
        self.state.questions.push(open);
        self.state.updates.end_message();
        let mut events: Vec<TurnEvent> = self.state.updates.take_reasoning().into_iter().collect();
        events.push(TurnEvent::Question(question));
        ConversationStep { events, input: ProgramInput::default() }
    }

    fn check_permission_request(&self, params: &Value) -> Result<RequestPermissionRequest, Error> {
        let request = read_permission_request(params).ok_or_else(Error::invalid_params)?;
        let TurnPhase::Prompting { session_id } = &self.state.phase else {
            return Err(Error::invalid_request());
        };
        if *request.session_id.0 != **session_id {
            return Err(Error::session_not_found(request.session_id));
        }
        match self.state.permissions.len() < PERMISSIONS_MAX {
            true => Ok(request),
            false => Err(Error::internal_error()),
        }
    }

    fn read_update(&mut self, params: &Value) -> ConversationStep {
        let TurnPhase::Prompting { session_id } = &self.state.phase else {
            return ConversationStep::default();
        };
        let is_session = params.get("sessionId").and_then(Value::as_str) == Some(session_id);
        // Kinds of updates that this version does not know are ignored.
        let Some(update) = SessionNotification::deserialize(params).ok().filter(|_| is_session)
        else {
            return ConversationStep::default();
        };
        let status = self.agent.turn_status.as_ref();
        if let Some(failed) = status.and_then(|status| status.has_failed(params.get("update")?)) {
            self.state.updates.has_failed = failed;
        }
        let context = UpdateContext {
            directory: &self.state.directory,
            needs_message_id: self.agent.needs_message_id,
        };
        let events = self.state.updates.read(update.update, &context);
        ConversationStep { events, input: ProgramInput::default() }
    }
}

impl TurnConversation for AcpConversation {
    fn read_line(&mut self, line: &LineContent) -> ConversationStep {
        let LineContent::Event(line) = line else { return ConversationStep::default() };
        // The input has ended: nothing can be answered.
        if self.state.phase == TurnPhase::Closed {
            return ConversationStep::default();
        }
        match IncomingMessage::read(line) {
            None => ConversationStep::default(),
            Some(IncomingMessage::Response { id, answer }) => self.read_answer(&id, answer),
            Some(IncomingMessage::Request { id, method, params }) => {
                self.read_request(id, method, params)
            }
            Some(IncomingMessage::BadRequest) => refuse(&RequestId::Null, Error::invalid_request()),
            Some(IncomingMessage::Notification { method: "session/update", params }) => {
                self.read_update(params)
            }
            Some(IncomingMessage::Notification { .. }) => ConversationStep::default(),
        }
    }

    fn answer_question(&mut self, question_id: &str, answer: Option<&str>) -> ProgramInput {
        let questions = &mut self.state.questions;
        let Some(at) = questions.iter().position(|open| open.key() == question_id) else {
            return ProgramInput::default();
        };
        let bytes = questions.remove(at).render_answer(answer);
        ProgramInput { bytes, ends: false }
    }

    fn decide_permission(
        &mut self,
        request_id: &str,
        decision: PermissionDecision<'_>,
    ) -> ProgramInput {
        let permissions = &mut self.state.permissions;
        let Some(position) = permissions.iter().position(|open| open.key() == request_id) else {
            return ProgramInput::default();
        };
        let open = permissions.remove(position);
        ProgramInput { bytes: open.render_answer(decision), ends: false }
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.state).unwrap_or_default()
    }
}

/// A request of Brigade that has no answer yet.
struct OpenRequest {
    id: i64,
    method: &'static str,
}

impl TurnPhase {
    fn open_request(&self) -> Option<OpenRequest> {
        let request = |id, method| Some(OpenRequest { id, method });
        match self {
            Self::Initializing(_) => request(INITIALIZE_ID, "initialize"),
            Self::OpeningSession { opening, .. } => request(SESSION_ID, opening.method()),
            Self::ChoosingModel { .. } => request(MODEL_ID, "session/set_config_option"),
            Self::Prompting { .. } => request(PROMPT_ID, "session/prompt"),
            Self::Closed => None,
        }
    }
}

impl SessionOpening {
    fn method(&self) -> &'static str {
        match self {
            Self::New => "session/new",
            Self::Resume { .. } => "session/resume",
            Self::Load { .. } => "session/load",
        }
    }

    fn render(&self, directory: &str, servers: Vec<McpServer>) -> Vec<u8> {
        let method = self.method();
        match self {
            Self::New => {
                let request = NewSessionRequest::new(directory).mcp_servers(servers);
                render_request(SESSION_ID, method, request)
            }
            Self::Resume { id } => {
                let request = ResumeSessionRequest::new(id.clone(), directory).mcp_servers(servers);
                render_request(SESSION_ID, method, request)
            }
            Self::Load { id } => {
                let request = LoadSessionRequest::new(id.clone(), directory).mcp_servers(servers);
                render_request(SESSION_ID, method, request)
            }
        }
    }

    /// Returns the id of the session. A new session has the one in the answer.
    fn into_session_id(self, answer: &Value) -> Option<String> {
        match self {
            Self::Resume { id } | Self::Load { id } => Some(id),
            Self::New => {
                let id = answer.get("sessionId").and_then(Value::as_str);
                id.filter(|id| !id.is_empty() && id.len() <= ID_MAX).map(str::to_owned)
            }
        }
    }
}

fn refuse(id: &RequestId, error: Error) -> ConversationStep {
    let input = ProgramInput { bytes: render_error(id, &error), ends: false };
    ConversationStep { events: Vec::new(), input }
}

fn brigade_server(program: Option<String>) -> Vec<McpServer> {
    let server = |program: String| {
        McpServer::Stdio(McpServerStdio::new("brigade", program).args(vec!["mcp".to_owned()]))
    };
    program.map(server).into_iter().collect()
}

fn warn(text: &str) -> TurnEvent {
    TurnEvent::Notice(TurnNotice { level: NoticeLevel::Warning, text: text.to_owned() })
}
