//! A table of all ends of a turn.

use serde_json::json;

use super::*;
use crate::event_reader::LineContent;
use crate::turn_events::{NoticeLevel, TextPart, TurnClosing, TurnEvent, TurnNotice};

fn exit(code: i32) -> ProgramEnd {
    ProgramEnd {
        exit_code: Some(code),
        signal: None,
        outcome: String::new(),
        tail: String::new(),
        is_success: code == 0,
    }
}

fn killed(signal: i32) -> ProgramEnd {
    ProgramEnd { exit_code: None, signal: Some(signal), is_success: false, ..exit(0) }
}

/// The program's task was stopped, and the program exited with code 0.
fn stopped_program() -> ProgramEnd {
    ProgramEnd { is_success: false, ..exit(0) }
}

fn lost_program() -> ProgramEnd {
    ProgramEnd { exit_code: None, ..stopped_program() }
}

fn text(text: &str) -> TurnEvent {
    TurnEvent::Text(TextPart { text: text.into(), is_delta: false })
}

fn error(text: &str) -> TurnEvent {
    TurnEvent::Notice(TurnNotice { level: NoticeLevel::Error, text: text.into() })
}

fn closed(success: bool, result: Option<&str>, error: Option<&str>) -> TurnEvent {
    let result = result.map(str::to_owned);
    let error = error.map(str::to_owned);
    TurnEvent::Closed(TurnClosing { success, result, error, budget_spent: false })
}

fn step(is_last: bool) -> TurnEvent {
    TurnEvent::Step { is_last }
}

fn observe(events: &[TurnEvent]) -> TurnProgress {
    let mut progress = TurnProgress::default();
    for event in events {
        progress.observe_line(&LineContent::Event(json!({})));
        progress.observe_event(event);
    }
    progress
}

fn decide(mark: ClosingMark, events: &[TurnEvent], program: ProgramEnd, stderr: &str) -> String {
    let end = TurnEnd { program: &program, stderr, unread_output: None };
    decide_and_render(mark, &observe(events), &end)
}

fn decide_and_render(mark: ClosingMark, progress: &TurnProgress, end: &TurnEnd<'_>) -> String {
    match TurnOutcome::decide(mark, progress, end) {
        TurnOutcome::Succeeded => format!("succeeded: {}", progress.answer()),
        TurnOutcome::Failed(failure) => format!("failed: {failure}"),
    }
}

#[test]
fn a_turn_with_a_closing_event() {
    let good = || closed(true, Some("done"), None);
    let bad = || closed(false, Some("text"), Some("API error 400"));
    let cases: Vec<(Vec<TurnEvent>, ProgramEnd, &str, &str)> = vec![
        (vec![text("a"), good()], exit(0), "", "succeeded: done"),
        (vec![text("a"), closed(true, None, None)], exit(0), "", "succeeded: a"),
        (vec![error("retry"), good()], exit(0), "warning", "succeeded: done"),
        (vec![bad(), good()], exit(0), "", "succeeded: done"),
        (vec![good()], exit(1), "oops", "failed: its program exited with code 1: oops"),
        (vec![good()], killed(9), "", "failed: its program was killed by signal 9"),
        (vec![good()], stopped_program(), "", "failed: its program was stopped"),
        (vec![good()], lost_program(), "", "failed: the end of its program is not known"),
        (vec![bad()], exit(0), "", "failed: the agent reported an error: API error 400"),
        (vec![bad()], exit(1), "", "failed: the agent reported an error: API error 400"),
        (
            vec![error("retry"), closed(false, None, None)],
            exit(1),
            "",
            "failed: the agent reported an error: retry",
        ),
        (vec![good(), bad()], exit(0), "", "failed: the agent reported an error: API error 400"),
        (vec![text("a")], exit(0), "", "failed: its program ended without a closing event"),
        (vec![], exit(0), "", "failed: its program printed no event"),
        (
            vec![],
            exit(1),
            "no such session",
            "failed: its program exited with code 1: no such session",
        ),
        (vec![error("last")], killed(15), "x", "failed: its program was killed by signal 15: last"),
    ];
    for (events, program, stderr, expected) in cases {
        let outcome = decide(ClosingMark::Event, &events, program, stderr);
        assert_eq!(outcome, expected, "{events:?}");
    }
}

#[test]
fn a_turn_that_ends_with_its_output() {
    let last = || vec![step(false), text("done"), step(true)];
    let cases: Vec<(Vec<TurnEvent>, ProgramEnd, &str, &str)> = vec![
        (last(), exit(0), "", "succeeded: done"),
        (vec![text("done")], exit(0), "", "succeeded: done"),
        (last(), exit(1), "oops", "failed: its program exited with code 1: oops"),
        (last(), killed(2), "", "failed: its program was killed by signal 2"),
        (last(), stopped_program(), "", "failed: its program was stopped"),
        (
            vec![step(false), text("half"), step(false)],
            exit(0),
            "",
            "failed: its program ended before its last step",
        ),
        (
            vec![step(true), step(false)],
            exit(0),
            "",
            "failed: its program ended before its last step",
        ),
        (vec![error("no model")], exit(0), "", "failed: the agent reported an error: no model"),
        (vec![], exit(0), "", "failed: its program printed no event"),
    ];
    for (events, program, stderr, expected) in cases {
        let outcome = decide(ClosingMark::EndOfOutput, &events, program, stderr);
        assert_eq!(outcome, expected, "{events:?}");
    }
}

#[test]
fn only_lines_that_are_not_events_are_a_failure() {
    for mark in [ClosingMark::Event, ClosingMark::EndOfOutput] {
        let mut progress = TurnProgress::default();
        progress.observe_line(&LineContent::Text("usage: agent [options]".into()));
        let program = exit(0);
        let end = TurnEnd { program: &program, stderr: "", unread_output: None };
        let outcome = decide_and_render(mark, &progress, &end);
        let expected = "failed: its program printed no event: usage: agent [options]";
        assert_eq!(outcome, expected);
    }
}

#[test]
fn output_that_was_not_read_to_its_end_is_a_failure() {
    let progress = observe(&[closed(true, Some("done"), None)]);
    let program = exit(0);
    let unread_output = Some(LineTooLong { line_max: 4 });
    let end = TurnEnd { program: &program, stderr: "", unread_output };
    let outcome = decide_and_render(ClosingMark::Event, &progress, &end);
    assert_eq!(outcome, "failed: it printed a line of more than 4 bytes");
}
