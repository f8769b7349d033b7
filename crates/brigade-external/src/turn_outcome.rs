//! The outcome of a turn.
//!
//! Programs exit with code 0 after an interrupt, and call an API error a success. Therefore a turn
//! succeeded only if its closing event says so, the program exited with code 0 and nobody stopped
//! it. A program without a closing event must also have printed no error and no unfinished step.

use std::fmt;

use brigade_agent::agent_program::ProgramEnd;
use brigade_model::truncate::tail_bytes;
use serde::Deserialize;

use crate::event_reader::LineTooLong;
use crate::turn_progress::{LAST_TEXT_MAX, TurnProgress};

/// The mark with which a program shows that its turn is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosingMark {
    /// An event that says whether the turn succeeded.
    Event,
    /// The end of the output.
    EndOfOutput,
}

/// The end of a turn, as seen from outside of the program.
#[derive(Clone, Copy, Debug)]
pub struct TurnEnd<'a> {
    pub program: &'a ProgramEnd,
    /// The last lines of the program's standard error.
    pub stderr: &'a str,
    /// The reason why the output was not read to its end.
    pub unread_output: Option<LineTooLong>,
}

/// The outcome of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// Its result is the answer of the [`TurnProgress`].
    Succeeded,
    Failed(TurnFailure),
}

/// The failure of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnFailure {
    pub cause: FailureCause,
    /// The error of the closing event, the last error event, or the last lines of the standard
    /// error.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The agent reported an error.
    Reported,
    ExitCode(i32),
    Signal(i32),
    /// The program was stopped, but not its task.
    ProgramStopped,
    /// Nobody knows how the program ended.
    UnknownEnd,
    /// The program exited with code 0 without its closing event.
    NoClosingEvent,
    /// The program exited with code 0 between two steps, or in one.
    UnfinishedStep,
    /// The program printed no event.
    NoEvents,
    LineTooLong(LineTooLong),
}

impl TurnOutcome {
    /// Decides the outcome of a turn whose program has ended.
    pub fn decide(mark: ClosingMark, progress: &TurnProgress, end: &TurnEnd<'_>) -> Self {
        match find_cause(mark, progress, end) {
            Some(cause) => {
                let message = find_message(progress, end);
                Self::Failed(TurnFailure { cause, message })
            }
            None => Self::Succeeded,
        }
    }
}

fn find_cause(
    mark: ClosingMark,
    progress: &TurnProgress,
    end: &TurnEnd<'_>,
) -> Option<FailureCause> {
    if let Some(error) = end.unread_output {
        return Some(FailureCause::LineTooLong(error));
    }
    let reported = match mark {
        ClosingMark::Event => progress.closing.as_ref().is_some_and(|closing| !closing.success),
        ClosingMark::EndOfOutput => progress.last_error.is_some(),
    };
    if reported {
        return Some(FailureCause::Reported);
    }
    let program = end.program;
    match (program.signal, program.exit_code) {
        (Some(signal), _) => return Some(FailureCause::Signal(signal)),
        (None, Some(0)) if program.is_success => {}
        (None, Some(0)) => return Some(FailureCause::ProgramStopped),
        (None, None) => return Some(FailureCause::UnknownEnd),
        (None, Some(code)) => return Some(FailureCause::ExitCode(code)),
    }
    if progress.event_lines == 0 {
        return Some(FailureCause::NoEvents);
    }
    match mark {
        ClosingMark::Event => progress.closing.is_none().then_some(FailureCause::NoClosingEvent),
        ClosingMark::EndOfOutput => progress.has_open_step.then_some(FailureCause::UnfinishedStep),
    }
}

fn find_message(progress: &TurnProgress, end: &TurnEnd<'_>) -> String {
    let failed_closing = progress.closing.as_ref().filter(|closing| !closing.success);
    let closing_error = failed_closing.and_then(|closing| closing.error.as_deref());
    let candidates = [
        closing_error,
        progress.last_error.as_deref(),
        Some(end.stderr),
        Some(progress.text_tail.as_str()),
    ];
    let texts = candidates.into_iter().flatten().map(str::trim);
    let message = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    tail_bytes(message, LAST_TEXT_MAX).to_owned()
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported => f.write_str("the agent reported an error"),
            Self::ExitCode(code) => write!(f, "its program exited with code {code}"),
            Self::Signal(signal) => write!(f, "its program was killed by signal {signal}"),
            Self::ProgramStopped => f.write_str("its program was stopped"),
            Self::UnknownEnd => f.write_str("the end of its program is not known"),
            Self::NoClosingEvent => f.write_str("its program ended without a closing event"),
            Self::UnfinishedStep => f.write_str("its program ended before its last step"),
            Self::NoEvents => f.write_str("its program printed no event"),
            Self::LineTooLong(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for TurnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
