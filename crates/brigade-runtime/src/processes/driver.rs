//! Watches over one command from its start, or its adoption, to its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::{Arrival, End, EndedHow, Reported};
use brigade_model::ids::{Attempt, Time};
use brigade_model::json::Json;
use brigade_model::message::Message;
use brigade_model::outcome::{Failure, Outcome, Verified};
use brigade_model::task::TaskRow;
use brigade_process::shim::layout::{CLAIM, GRACE};
use brigade_process::{Input, Order, Phase, Record, Shim, spool};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::places::{Execution, Places};
use super::report::{CommandNames, ProcessReport, SandboxPart, end_of};
use super::settle::{Settled, Sought};
use crate::clock::Clock;
use crate::performer::Reporter;

/// A command that lives longer than this is recorded as begun, so that a directory which is gone
/// later is not taken for one that never was.
const BEGUN_AFTER: Duration = Duration::from_millis(50);

/// How often, and how long apart, it is tried to find out what became of a command.
const LOOKS: u32 = 60;
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// What a command is told while it runs.
#[derive(Debug)]
pub(crate) enum Told {
    Message(Arc<Message>),
    /// Bytes were brought for its input.
    Input,
    Stop {
        deadline: Time,
    },
    Kill,
}

/// What is known of the execution in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    No,
    Begun,
}

impl Known {
    pub(crate) fn of(row: &TaskRow) -> Self {
        let state = row.extra.as_ref().and_then(|extra| extra.state.as_ref());
        let begun = state.and_then(|state| state.decode::<Begun>().ok());
        match begun {
            Some(begun) if begun.attempt == row.attempt => Self::Begun,
            _ => Self::No,
        }
    }
}

/// The stored state of a command's task.
#[derive(Serialize, Deserialize)]
struct Begun {
    attempt: Attempt,
    shim_pid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sandbox: Vec<SandboxPart>,
}

/// The parts of its sandbox that hold for a command. Empty without one, and until they are known.
pub fn sandbox_of(row: &TaskRow) -> Vec<SandboxPart> {
    let state = row.extra.as_ref().and_then(|extra| extra.state.as_ref());
    let begun = state.and_then(|state| state.decode::<Begun>().ok());
    if let Some(begun) = begun.filter(|begun| begun.attempt == row.attempt) {
        return begun.sandbox;
    }
    let report = row.ended().and_then(|ended| match &*ended.outcome {
        Outcome::Succeeded { result } => Some(result),
        Outcome::Failed(failed) => failed.partial.as_ref(),
        Outcome::Cancelled(cancelled) => cancelled.partial.as_ref(),
    });
    let report = report.and_then(|report| report.decode::<ProcessReport>().ok());
    report.map(|report| report.sandbox).unwrap_or_default()
}

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) execution: Execution,
    pub(crate) dir: PathBuf,
    pub(crate) boot: [u8; 16],
    pub(crate) takes_input: bool,
    pub(crate) names: CommandNames,
    pub(crate) known: Known,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reporter: Reporter,
    /// Bounded by the task's inbox and by the two stages of a stop.
    pub(crate) told: mpsc::UnboundedReceiver<Told>,
}

impl Driver {
    /// Follows the shim until it is gone, and says how the command ended.
    pub(crate) async fn follow(mut self, shim: Shim) {
        self.attend(&shim).await;
        let end = match finished(&self.dir) {
            Some(record) => end_of(&record, &self.dir, &self.names, &record.survivors),
            None => None,
        };
        let end = match end {
            Some(end) => end,
            None => self.look_again().await,
        };
        let dir = self.dir.clone();
        let _ = tokio::task::spawn_blocking(move || Places::remove_scratch(&dir)).await;
        self.reporter.post(Reported::Ended(end)).await;
    }

    /// Hands over what the command is told until its shim is gone.
    async fn attend(&mut self, shim: &Shim) {
        let (lines, mut waiting) = mpsc::unbounded_channel();
        let writer =
            Writer { takes_input: self.takes_input, shim, reporter: self.reporter.clone() };
        let mut writing = pin!(writer.run(Input::new(&self.dir), &mut waiting));
        let mut gone = pin!(shim.gone());
        // A runtime may have died between bringing bytes and saying so.
        if self.takes_input && spool::is_used(&self.dir) {
            ask(shim, Order::ReadInput);
        }
        let mut begun = tokio::time::interval(BEGUN_AFTER);
        // The first tick comes at once.
        begun.tick().await;
        loop {
            tokio::select! {
                biased;
                result = &mut gone => {
                    if let Err(error) = result {
                        tracing::error!(%error, dir = %self.dir.display(), "a shim is out of sight");
                    }
                    return;
                }
                Some(told) = self.told.recv() => match told {
                    // The writer is there as long as this is.
                    Told::Message(message) => drop(lines.send(message)),
                    Told::Input => ask(shim, Order::ReadInput),
                    Told::Stop { deadline } => self.stop(shim, deadline),
                    Told::Kill => ask(shim, Order::Kill),
                },
                () = &mut writing => {}
                _ = begun.tick(), if self.known == Known::No => self.note_begun(shim).await,
            }
        }
    }

    /// Records that it was executed, once the shim says so.
    async fn note_begun(&mut self, shim: &Shim) {
        let Some(record) = record(&self.dir).filter(|record| record.phase >= Phase::Running) else {
            return;
        };
        let sandbox = SandboxPart::all_of(record.sandbox);
        let begun = Begun { attempt: self.execution.attempt, shim_pid: shim.pid(), sandbox };
        if let Ok(state) = Json::of(&begun) {
            self.known = Known::Begun;
            self.reporter.post(Reported::State(state)).await;
        }
    }

    fn stop(&self, shim: &Shim, deadline: Time) {
        let grace = deadline.since(self.clock.now()).0;
        // Without the file the shim uses the grace that it was started with.
        if let Err(error) = fs::write(self.dir.join(GRACE), grace.to_string()) {
            tracing::warn!(%error, "a stop could not say how long it stays kind");
        }
        ask(shim, Order::Stop);
    }

    /// The shim is gone and has left no ending: somebody killed it. What cannot be looked at, for want
    /// of descriptors perhaps, is looked at again.
    async fn look_again(&self) -> End {
        let (execution, dir, boot) = (self.execution, self.dir.clone(), self.boot);
        let was_begun = self.known == Known::Begun;
        let names = self.names.clone();
        let sought = Sought { execution, dir, boot, names, was_begun, saw_it_die: true };
        let mut tried = 0;
        loop {
            let sought = sought.clone();
            let looked = tokio::task::spawn_blocking(move || sought.settle()).await;
            let problem = match looked.map_err(io::Error::other).and_then(|looked| looked) {
                Ok(Settled::Ended(end)) => return end,
                Ok(Settled::NeverBegan) => {
                    return failed(Failure::Error(
                        "its shim ended before the command began".into(),
                    ));
                }
                Ok(Settled::Alive(_)) => "its shim is out of sight".to_owned(),
                Err(error) => format!("it cannot be looked for: {error}"),
            };
            if tried == LOOKS {
                let (by, evidence) = ("the runtime".into(), problem.into());
                let lost = failed(Failure::Lost { by, evidence });
                return End { verified: Verified::Unconfirmed, ..lost };
            }
            tried += 1;
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}

fn failed(failure: Failure) -> End {
    EndedHow::Failed { failure, partial: None }.into()
}

/// The record of a shim that finished its work.
fn finished(dir: &Path) -> Option<Record> {
    record(dir).filter(|record| record.phase == Phase::Done)
}

fn record(dir: &Path) -> Option<Record> {
    Record::read_from(&fs::File::open(dir.join(CLAIM)).ok()?).ok()
}

fn ask(shim: &Shim, order: Order) {
    if let Err(error) = shim.ask(order) {
        tracing::error!(%error, ?order, pid = shim.pid(), "a shim cannot be reached");
    }
}

/// Writes messages to the command, a line each, and says which arrived.
struct Writer<'a> {
    takes_input: bool,
    shim: &'a Shim,
    reporter: Reporter,
}

impl Writer<'_> {
    async fn run(&self, mut input: Input, messages: &mut mpsc::UnboundedReceiver<Arc<Message>>) {
        let mut open = self.takes_input;
        while let Some(message) = messages.recv().await {
            let arrival = if open {
                self.write(&mut input, &message).await
            } else {
                let closed = if self.takes_input { "its input was closed" } else { NO_INPUT };
                Arrival::Refused { reason: closed.into() }
            };
            if message.last && open {
                open = false;
                input.close();
                ask(self.shim, Order::CloseInput);
            }
            self.reporter.post(Reported::Pushed { message: message.no, arrival }).await;
        }
    }

    async fn write(&self, input: &mut Input, message: &Message) -> Arrival {
        let Some(line) = line(message) else { return Arrival::Arrived };
        let written = input.write(line.as_bytes()).await;
        // Not held on to: the end of bytes that are brought beside messages must reach the command.
        input.close();
        match written {
            Ok(()) => Arrival::Arrived,
            Err(error) => Arrival::Refused { reason: error.to_string().into() },
        }
    }
}

const NO_INPUT: &str = "it was started without an input";

/// Text as it is, anything else as JSON. Nothing, when the message only says that it is the last.
fn line(message: &Message) -> Option<String> {
    if message.last && message.body == Json::null() {
        return None;
    }
    let text = message.body.decode::<String>();
    let mut line = text.unwrap_or_else(|_| message.body.as_str().to_owned());
    line.push('\n');
    Some(line)
}
