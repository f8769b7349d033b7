//! Watches over one command from its start, or its adoption, to its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::{AttemptReport, EndReport, PushResult, WorkResult};
use brigade_model::ids::{Attempt, Time};
use brigade_model::json::Json;
use brigade_model::message::Message;
use brigade_model::outcome::{EndConfirmation, Failure, Outcome};
use brigade_model::task::TaskRow;
use brigade_process::shim::layout::{CLAIM, GRACE};
use brigade_process::{ProcessInput, Shim, ShimOrder, ShimPhase, ShimRecord, input_spool};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::execution_dirs::{ExecutionDirs, ProcessExecution};
use super::probe::{ExecutionProbe, ProbeResult};
use super::report::{CommandDescription, ProcessReport, SandboxPart, end_from_record};
use crate::clock::Clock;
use crate::performer::Reporter;

/// A command that lives longer than this is recorded as begun, so that a directory which is gone
/// later is not taken for one that never was.
const START_RECORD_DELAY: Duration = Duration::from_millis(50);

/// How often, and how long apart, it is tried to find out what became of a command.
const PROBE_TRIES: u32 = 60;
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// What a command is told while it runs.
#[derive(Debug)]
pub(crate) enum DriverRequest {
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
pub(crate) enum StartRecorded {
    No,
    Yes,
}

impl StartRecorded {
    pub(crate) fn of_row(row: &TaskRow) -> Self {
        let state = row.extras.as_ref().and_then(|extra| extra.state.as_ref());
        let begun = state.and_then(|state| state.decode::<StartedProcess>().ok());
        match begun {
            Some(begun) if begun.attempt == row.attempt => Self::Yes,
            _ => Self::No,
        }
    }
}

/// The stored state of a command's task.
#[derive(Serialize, Deserialize)]
struct StartedProcess {
    attempt: Attempt,
    shim_pid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sandbox: Vec<SandboxPart>,
}

/// The parts of its sandbox that hold for a command. Empty without one, and until they are known.
pub fn sandbox_parts(row: &TaskRow) -> Vec<SandboxPart> {
    let state = row.extras.as_ref().and_then(|extra| extra.state.as_ref());
    let begun = state.and_then(|state| state.decode::<StartedProcess>().ok());
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
pub(crate) struct ProcessDriver {
    pub(crate) execution: ProcessExecution,
    pub(crate) dir: PathBuf,
    pub(crate) boot_id: [u8; 16],
    pub(crate) reads_input: bool,
    pub(crate) names: CommandDescription,
    pub(crate) start_recorded: StartRecorded,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reporter: Reporter,
    /// Bounded by the task's inbox and by the two stages of a stop.
    pub(crate) requests: mpsc::UnboundedReceiver<DriverRequest>,
}

impl ProcessDriver {
    /// Follows the shim until it is gone, and says how the command ended.
    pub(crate) async fn follow_shim(mut self, shim: Shim) {
        self.serve_requests(&shim).await;
        let end = match read_finished_record(&self.dir) {
            Some(record) => end_from_record(&record, &self.dir, &self.names, &record.survivors),
            None => None,
        };
        let end = match end {
            Some(end) => end,
            None => self.probe_until_known().await,
        };
        let dir = self.dir.clone();
        let _ = tokio::task::spawn_blocking(move || ExecutionDirs::remove_scratch_dir(&dir)).await;
        self.reporter.post(AttemptReport::Ended(end)).await;
    }

    /// Hands over what the command is told until its shim is gone.
    async fn serve_requests(&mut self, shim: &Shim) {
        let (lines, mut waiting) = mpsc::unbounded_channel();
        let writer =
            InputWriter { reads_input: self.reads_input, shim, reporter: self.reporter.clone() };
        let mut writing = pin!(writer.run(ProcessInput::new(&self.dir), &mut waiting));
        let mut gone = pin!(shim.wait_exit());
        // A runtime may have died between bringing bytes and saying so.
        if self.reads_input && input_spool::has_input(&self.dir) {
            send_order(shim, ShimOrder::ReadInput);
        }
        let mut begun = tokio::time::interval(START_RECORD_DELAY);
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
                Some(told) = self.requests.recv() => match told {
                    // The writer is there as long as this is.
                    DriverRequest::Message(message) => drop(lines.send(message)),
                    DriverRequest::Input => send_order(shim, ShimOrder::ReadInput),
                    DriverRequest::Stop { deadline } => self.request_stop(shim, deadline),
                    DriverRequest::Kill => send_order(shim, ShimOrder::Kill),
                },
                () = &mut writing => {}
                _ = begun.tick(), if self.start_recorded == StartRecorded::No => self.record_start(shim).await,
            }
        }
    }

    /// Records that it was executed, once the shim says so.
    async fn record_start(&mut self, shim: &Shim) {
        let Some(record) =
            read_record(&self.dir).filter(|record| record.phase >= ShimPhase::Running)
        else {
            return;
        };
        let sandbox = SandboxPart::all_of(record.sandbox);
        let begun =
            StartedProcess { attempt: self.execution.attempt, shim_pid: shim.pid(), sandbox };
        if let Ok(state) = Json::of(&begun) {
            self.start_recorded = StartRecorded::Yes;
            self.reporter.post(AttemptReport::State(state)).await;
        }
    }

    fn request_stop(&self, shim: &Shim, deadline: Time) {
        let grace = deadline.since(self.clock.now()).0;
        // Without the file the shim uses the grace that it was started with.
        if let Err(error) = fs::write(self.dir.join(GRACE), grace.to_string()) {
            tracing::warn!(%error, "a stop could not say how long it stays kind");
        }
        send_order(shim, ShimOrder::Stop);
    }

    /// The shim is gone and has left no ending: somebody killed it. What cannot be looked at, for want
    /// of descriptors perhaps, is looked at again.
    async fn probe_until_known(&self) -> EndReport {
        let (execution, dir, boot) = (self.execution, self.dir.clone(), self.boot_id);
        let was_begun = self.start_recorded == StartRecorded::Yes;
        let names = self.names.clone();
        let sought = ExecutionProbe {
            execution,
            dir,
            boot_id: boot,
            names,
            was_started: was_begun,
            saw_shim_die: true,
        };
        let mut tried = 0;
        loop {
            let sought = sought.clone();
            let looked = tokio::task::spawn_blocking(move || sought.probe()).await;
            let problem = match looked.map_err(io::Error::other).and_then(|looked| looked) {
                Ok(ProbeResult::Ended(end)) => return end,
                Ok(ProbeResult::NeverStarted) => {
                    return failed_end(Failure::Error(
                        "its shim ended before the command began".into(),
                    ));
                }
                Ok(ProbeResult::Alive(_)) => "its shim is out of sight".to_owned(),
                Err(error) => format!("it cannot be looked for: {error}"),
            };
            if tried == PROBE_TRIES {
                let (by, evidence) = ("the runtime".into(), problem.into());
                let lost = failed_end(Failure::Lost { by, evidence });
                return EndReport { confirmation: EndConfirmation::Unconfirmed, ..lost };
            }
            tried += 1;
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }
}

fn failed_end(failure: Failure) -> EndReport {
    WorkResult::Failed { failure, partial: None }.into()
}

/// The record of a shim that finished its work.
fn read_finished_record(dir: &Path) -> Option<ShimRecord> {
    read_record(dir).filter(|record| record.phase == ShimPhase::Done)
}

fn read_record(dir: &Path) -> Option<ShimRecord> {
    ShimRecord::read_from(&fs::File::open(dir.join(CLAIM)).ok()?).ok()
}

fn send_order(shim: &Shim, order: ShimOrder) {
    if let Err(error) = shim.send_order(order) {
        tracing::error!(%error, ?order, pid = shim.pid(), "a shim cannot be reached");
    }
}

/// Writes messages to the command, a line each, and says which arrived.
struct InputWriter<'a> {
    reads_input: bool,
    shim: &'a Shim,
    reporter: Reporter,
}

impl InputWriter<'_> {
    async fn run(
        &self,
        mut input: ProcessInput,
        messages: &mut mpsc::UnboundedReceiver<Arc<Message>>,
    ) {
        let mut open = self.reads_input;
        while let Some(message) = messages.recv().await {
            let arrival = if open {
                self.write(&mut input, &message).await
            } else {
                let closed = if self.reads_input { "its input was closed" } else { NO_INPUT };
                PushResult::Refused { reason: closed.into() }
            };
            if message.closes_input && open {
                open = false;
                input.close();
                send_order(self.shim, ShimOrder::CloseInput);
            }
            self.reporter
                .post(AttemptReport::Pushed { message: message.no, result: arrival })
                .await;
        }
    }

    async fn write(&self, input: &mut ProcessInput, message: &Message) -> PushResult {
        let Some(line) = render_line(message) else { return PushResult::Delivered };
        let written = input.write(line.as_bytes()).await;
        // Not held on to: the end of bytes that are brought beside messages must reach the command.
        input.close();
        match written {
            Ok(()) => PushResult::Delivered,
            Err(error) => PushResult::Refused { reason: error.to_string().into() },
        }
    }
}

const NO_INPUT: &str = "it was started without an input";

/// Text as it is, anything else as JSON. Nothing, when the message only says that it is the last.
fn render_line(message: &Message) -> Option<String> {
    if message.closes_input && message.body == Json::null() {
        return None;
    }
    let text = message.body.decode::<String>();
    let mut line = text.unwrap_or_else(|_| message.body.as_str().to_owned());
    line.push('\n');
    Some(line)
}
