//! Plays the messages of a program to an ACP agent.

use std::path::Path;

use brigade_external::acp::AcpAgent;
use brigade_external::adapter::{AccessLevel, PermissionDecision, SessionStart, TurnStart};
use brigade_external::built_in::parse_built_in_acp_agents;
use brigade_external::event_reader::EventReader;
use brigade_external::external_agent::{ExternalAgent, ProgramInput, TurnConversation};
use brigade_external::turn_events::TurnEvent;
use brigade_external::turn_outcome::TurnEnd;
use brigade_external::turn_progress::TurnProgress;
use serde_json::{Value, json};

use crate::support::{exit, render_event, render_outcome};

pub(crate) const SESSION: &str = "s-1";

pub(crate) fn acp_agent(name: &str) -> AcpAgent {
    let agents = parse_built_in_acp_agents().unwrap();
    agents.into_iter().find(|agent| agent.name() == name).unwrap()
}

pub(crate) fn new_turn(prompt: &str) -> TurnStart<'_> {
    TurnStart {
        prompt,
        session: SessionStart::New { id: "" },
        model: None,
        access: AccessLevel::Full,
        directory: "/kitchen",
        brigade: None,
        budget: None,
    }
}

/// The moment at which the state of a conversation is saved and restored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Restart {
    Never,
    AfterEachStep,
}

/// A turn in progress.
pub(crate) struct AcpTurn {
    agent: AcpAgent,
    conversation: Box<dyn TurnConversation>,
    restart: Restart,
    pub(crate) events: Vec<TurnEvent>,
    pub(crate) progress: TurnProgress,
    pub(crate) input: Vec<u8>,
    pub(crate) has_ended: bool,
}

impl AcpTurn {
    pub(crate) fn begin(agent: AcpAgent, turn: &TurnStart<'_>, restart: Restart) -> Self {
        let opening = agent.begin_turn(turn);
        let mut turn = Self {
            agent,
            conversation: opening.conversation,
            restart,
            events: Vec::new(),
            progress: TurnProgress::default(),
            input: Vec::new(),
            has_ended: false,
        };
        turn.write(opening.input);
        turn
    }

    /// Begins a turn whose prompt was sent in the session `s-1`.
    pub(crate) fn prompted(agent: AcpAgent) -> Self {
        let mut turn = Self::begin(agent, &new_turn("count the plates"), Restart::Never);
        turn.read_value(&initialized());
        turn.read_value(&json!({ "jsonrpc": "2.0", "id": 2, "result": { "sessionId": SESSION } }));
        turn.events.clear();
        turn.input.clear();
        turn
    }

    pub(crate) fn read_value(&mut self, message: &Value) {
        self.read(&message.to_string());
    }

    /// Reads an update of the session.
    pub(crate) fn update(&mut self, update: Value) {
        let params = json!({ "sessionId": SESSION, "update": update });
        self.read_value(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    pub(crate) fn read(&mut self, line: &str) {
        let mut reader = EventReader::default();
        for line in reader.push(0, format!("{line}\n").as_bytes()).unwrap() {
            self.progress.observe_line(&line.content);
            let step = self.conversation.read_line(&line.content);
            step.events.iter().for_each(|event| self.progress.observe_event(event));
            self.events.extend(step.events);
            self.write(step.input);
        }
    }

    pub(crate) fn decide(&mut self, request_id: &str, decision: PermissionDecision<'_>) {
        let input = self.conversation.decide_permission(request_id, decision);
        self.write(input);
    }

    /// Returns the size of the saved state in bytes.
    pub(crate) fn saved_size(&self) -> usize {
        self.conversation.save().to_string().len()
    }

    fn write(&mut self, input: ProgramInput) {
        assert!(!self.has_ended || input == ProgramInput::default(), "input after its end");
        self.input.extend(input.bytes);
        self.has_ended |= input.ends;
        if self.restart == Restart::AfterEachStep {
            let saved = self.conversation.save().to_string();
            let saved: Value = serde_json::from_str(&saved).unwrap();
            self.conversation = self.agent.restore_conversation(&saved).unwrap();
        }
    }

    /// Returns the messages that were written.
    pub(crate) fn written(&self) -> Vec<Value> {
        let text = String::from_utf8(self.input.clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn rendered_events(&self) -> Vec<String> {
        self.events.iter().map(render_event).collect()
    }

    /// Returns the outcome in one line, if the program exits with code 0.
    pub(crate) fn outcome(&self) -> String {
        let program = exit(0);
        let end = TurnEnd { program: &program, stderr: "", unread_output: None };
        render_outcome(self.agent.closing_mark(), &self.progress, &end)
    }
}

/// An answer to `initialize` of an agent that can resume and load sessions.
pub(crate) fn initialized() -> Value {
    let capabilities = json!({ "loadSession": true, "sessionCapabilities": { "resume": {} } });
    let result = json!({ "protocolVersion": 1, "agentCapabilities": capabilities });
    json!({ "jsonrpc": "2.0", "id": 1, "result": result })
}

/// Plays a fixture, such as `claude_permission`, and checks that exactly its answers are written.
/// Each permission is given.
pub(crate) fn play_acp(fixture: &str, agent: AcpAgent, restart: Restart) -> AcpTurn {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/acp");
    let text = std::fs::read_to_string(dir.join(format!("{fixture}.txt"))).unwrap();
    let expected: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let session = expected.first().and_then(|opening| opening["params"]["sessionId"].as_str());
    let mut start = new_turn("count the plates");
    if let Some(id) = session {
        start = TurnStart { session: SessionStart::Resumed { id }, ..new_turn("count again") };
    }
    let mut turn = AcpTurn::begin(agent, &start, restart);
    for line in text.lines().filter_map(|line| line.strip_prefix("< ")) {
        let count = turn.events.len();
        turn.read(line);
        let requests: Vec<String> = turn.events[count..]
            .iter()
            .filter_map(|event| match event {
                TurnEvent::PermissionRequest(request) => Some(request.id.clone()),
                _ => None,
            })
            .collect();
        for id in requests {
            turn.decide(&id, PermissionDecision::Allow { arguments: &Value::Null });
        }
    }
    assert_eq!(turn.written()[1..], expected, "{fixture}");
    assert!(turn.has_ended, "{fixture}");
    turn
}
