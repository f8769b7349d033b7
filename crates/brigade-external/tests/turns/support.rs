//! Plays the output of a program to its adapter.

use std::path::Path;

use brigade_agent::agent_program::ProgramEnd;
use brigade_external::adapter::CliAdapter;
use brigade_external::built_in::parse_built_in_adapters;
use brigade_external::event_reader::{EventLine, EventReader, LineContent};
use brigade_external::external_agent::ExternalAgent;
use brigade_external::turn_events::TurnEvent;
use brigade_external::turn_outcome::{ClosingMark, TurnEnd, TurnOutcome};
use brigade_external::turn_progress::TurnProgress;
use brigade_external::usage::{
    CountedUsage, ReportPosition, ReportedUsage, UsageLedger, UsageScope,
};
use brigade_model::limits::Money;

/// The size of the pieces in which output arrives: no line fits into one.
const PIECE: usize = 7;

pub(crate) fn adapter(name: &str) -> CliAdapter {
    let adapters = parse_built_in_adapters().unwrap();
    adapters.into_iter().find(|adapter| adapter.name() == name).unwrap()
}

/// A turn that was played.
pub(crate) struct PlayedTurn {
    adapter: CliAdapter,
    pub(crate) events: Vec<TurnEvent>,
    pub(crate) progress: TurnProgress,
}

/// Plays a fixture, such as `claude/tool_use`.
pub(crate) fn play(fixture: &str) -> PlayedTurn {
    play_with_ledger(fixture, 1, &mut UsageLedger::default())
}

/// Plays a fixture as a turn with this number. Its usage reports are replaced by the amounts that
/// the ledger counts.
pub(crate) fn play_with_ledger(fixture: &str, turn: u64, ledger: &mut UsageLedger) -> PlayedTurn {
    let name = fixture.split('/').next().unwrap();
    let mut played = PlayedTurn {
        adapter: adapter(name),
        events: Vec::new(),
        progress: TurnProgress::default(),
    };
    for line in read_lines(fixture) {
        played.progress.observe_line(&line.content);
        let LineContent::Event(event) = &line.content else { continue };
        for (index, event) in (0..).zip(played.adapter.read_event(event)) {
            played.progress.observe_event(&event);
            let event = match event {
                TurnEvent::Usage(mut report) => {
                    let position = ReportPosition { turn, offset: line.end, index };
                    let session_id = played.progress.session_id().unwrap_or_default();
                    let counted = ledger.count(position, session_id, &report, |_| Money(0));
                    report.amount = ReportedUsage {
                        tokens: report.amount.tokens.map(|_| counted.tokens),
                        cost: report.amount.cost.map(|_| counted.money),
                    };
                    // A reply is reported with each of its lines.
                    let is_call = matches!(report.scope, UsageScope::ModelCall { .. });
                    if is_call && counted == CountedUsage::default() {
                        continue;
                    }
                    TurnEvent::Usage(report)
                }
                other => other,
            };
            played.events.push(event);
        }
    }
    played
}

fn read_lines(fixture: &str) -> Vec<EventLine> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let bytes = std::fs::read(dir.join(format!("{fixture}.jsonl"))).unwrap();
    let mut reader = EventReader::default();
    let mut lines = Vec::new();
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        lines.extend(reader.push((index * PIECE) as u64, piece).unwrap());
    }
    lines.extend(reader.finish().unwrap());
    lines
}

pub(crate) fn exit(code: i32) -> ProgramEnd {
    ProgramEnd {
        exit_code: Some(code),
        signal: None,
        outcome: String::new(),
        tail: String::new(),
        is_success: code == 0,
    }
}

pub(crate) fn killed(signal: i32) -> ProgramEnd {
    ProgramEnd { exit_code: None, signal: Some(signal), is_success: false, ..exit(0) }
}

impl PlayedTurn {
    /// Returns the outcome in one line, if the program ends in this form.
    pub(crate) fn outcome(&self, program: &ProgramEnd, stderr: &str) -> String {
        let end = TurnEnd { program, stderr, unread_output: None };
        render_outcome(self.adapter.closing_mark(), &self.progress, &end)
    }

    /// Returns the events, one per line.
    pub(crate) fn rendered_events(&self) -> Vec<String> {
        self.events.iter().map(render_event).collect()
    }

    /// Returns the amounts of all usage reports.
    pub(crate) fn usage(&self) -> Vec<String> {
        let is_usage = |event: &&TurnEvent| matches!(event, TurnEvent::Usage(_));
        self.events.iter().filter(is_usage).map(render_event).collect()
    }
}

pub(crate) fn render_outcome(
    mark: ClosingMark,
    progress: &TurnProgress,
    end: &TurnEnd<'_>,
) -> String {
    match TurnOutcome::decide(mark, progress, end) {
        TurnOutcome::Succeeded => format!("succeeded: {}", progress.answer()),
        TurnOutcome::Failed(failure) => format!("failed: {failure}"),
    }
}

pub(crate) fn render_event(event: &TurnEvent) -> String {
    match event {
        TurnEvent::SessionStarted { id } => format!("session {id}"),
        TurnEvent::Text(part) if part.is_delta => format!("delta {}", part.text),
        TurnEvent::Text(part) => format!("text {}", part.text),
        TurnEvent::Reasoning { text } => format!("reasoning {text}"),
        TurnEvent::ToolCall { id, name, arguments } => format!("call {id} {name} {arguments}"),
        TurnEvent::ToolResult { id, text, failed: false } => format!("result {id} {text}"),
        TurnEvent::ToolResult { id, text, failed: true } => format!("failed {id} {text}"),
        TurnEvent::PermissionRequest(request) => {
            let kinds: Vec<_> = request.options.iter().map(|option| option.kind).collect();
            format!("permission {} {} {} {kinds:?}", request.id, request.tool, request.arguments)
        }
        TurnEvent::Question(question) => format!("question {} {}", question.id, question.text),
        TurnEvent::RequestWithdrawn { id } => format!("withdrawn {id}"),
        TurnEvent::OtherRequest { id } => format!("request {id}"),
        TurnEvent::Usage(report) => format!("usage {}", render_amount(&report.amount)),
        TurnEvent::Step { is_last } => format!("step last={is_last}"),
        TurnEvent::Closed(closing) if closing.success => "closed with success".to_owned(),
        TurnEvent::Closed(closing) => {
            format!("closed with error {}", closing.error.as_deref().unwrap_or("-"))
        }
        TurnEvent::Notice(notice) => format!("{:?} {}", notice.level, notice.text),
    }
}

fn render_amount(amount: &ReportedUsage) -> String {
    let tokens = amount.tokens.map_or("-".to_owned(), |tokens| {
        let parts = [tokens.input, tokens.cached, tokens.cache_written, tokens.output];
        parts.map(|part| part.to_string()).join("/")
    });
    let cost = amount.cost.map_or("-".to_owned(), |cost| cost.to_string());
    format!("{tokens} {cost}")
}
