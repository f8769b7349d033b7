//! A program that is a part of an agent, for backends that drive the agent of another vendor.
//!
//! The program outlives an attempt. Its input and output have offsets, so that the next attempt goes
//! on where the last one was: bytes that are written again arrive once, and output is read again from
//! any offset that was not released.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::ids::{CallIndex, Millis};
use brigade_model::outcome::Outcome;
use brigade_model::process_report::ProcessReport;
use brigade_model::refusal::Refusal;
use brigade_model::work::EnvValue;

use crate::tool::BoxFuture;

/// The host's access to programs.
pub trait ProgramHost: Debug + Send + Sync {
    /// Starts a program under a journal entry, or finds the one that an earlier attempt started.
    fn start_program(
        &self,
        start: ProgramStart,
    ) -> BoxFuture<'_, Result<Arc<dyn AgentProgram>, Refusal>>;

    /// Returns the working directory of the agent.
    fn directory(&self) -> Option<Arc<str>>;

    /// Returns a new UUID, for a session of the vendor whose id Brigade chooses.
    fn new_session_id(&self) -> String;
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct ProgramStart {
    /// The journal entry that records the start.
    pub index: CallIndex,
    /// The entry, if the journal has it.
    pub recorded: Option<Arc<CallCompletion>>,
    pub spec: ProgramSpec,
}

/// The command line and the surroundings of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// The program and its arguments.
    pub command_line: Vec<String>,
    /// The working directory, instead of the agent's.
    pub cwd: Option<PathBuf>,
    pub env: BTreeMap<String, EnvValue>,
    /// The time between a graceful and a forced stop.
    pub grace: Option<Millis>,
}

/// A program that was started.
pub trait AgentProgram: Debug + Send + Sync {
    /// Returns the address of the program's own task.
    fn address(&self) -> String;

    /// Writes bytes to its input. `offset` is the number of bytes that were written before. Returns
    /// when the bytes are stored, so that they arrive also if the host is gone.
    fn write(&self, offset: u64, bytes: Arc<[u8]>) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Closes its input after this many bytes.
    fn close_input(&self, offset: u64) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Returns a reader of its output, both streams in the order of arrival, from this offset. The
    /// program waits for its reader instead of losing output.
    fn read_output(&self, offset: u64) -> BoxFuture<'_, Result<Box<dyn ProgramOutput>, Refusal>>;

    /// Stops the program and all its descendants: gracefully, and forced after the grace period.
    fn stop(&self) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Returns the condition that the program and all its descendants have ended. A call that parks
    /// on it completes with [`ProgramEnd::of`].
    fn end_condition(&self) -> ConditionRequest;
}

/// A reader of a program's output.
pub trait ProgramOutput: Debug + Send {
    /// Returns the next bytes. `None` is the end of the output.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<OutputPiece>, Refusal>>;

    /// Releases output up to this offset, which is not read again.
    fn release(&mut self, offset: u64);
}

/// Bytes of one of the two streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPiece {
    pub stream: ProgramStream,
    /// The offset of the first byte, in both streams together.
    pub offset: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramStream {
    Stdout,
    Stderr,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramEnd {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// The outcome of its task, or the error of a program that could not be started.
    pub outcome: String,
    /// The last lines of its output, both streams in order.
    pub tail: String,
    /// True if it exited with code 0 and nobody stopped it.
    pub is_success: bool,
}

impl ProgramEnd {
    /// Returns the end of the program that a call waited for.
    pub fn of(completion: &CallCompletion) -> Option<Self> {
        let CallCompletion::Results(results) = completion else { return None };
        let outcome = &results.first()?.outcome;
        let report = match &**outcome {
            Outcome::Succeeded { result } => Some(result),
            Outcome::Failed(failed) => failed.partial.as_ref(),
            Outcome::Cancelled(cancelled) => cancelled.partial.as_ref(),
        };
        let report = report.and_then(|report| report.decode::<ProcessReport>().ok());
        let ProcessReport { exit_code, signal, tail, .. } = report.unwrap_or_default();
        let is_success = matches!(**outcome, Outcome::Succeeded { .. });
        let outcome = match &**outcome {
            Outcome::Failed(failed) => match failed.failure.error_details() {
                Some(error) => error.to_string(),
                None => outcome.to_string(),
            },
            _ => outcome.to_string(),
        };
        Some(Self { exit_code, signal, outcome, tail, is_success })
    }
}
