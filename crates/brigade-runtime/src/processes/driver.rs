//! The driver of one process, which follows it from its start or adoption to its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::{AttemptReport, EndReport, PushResult, WorkResult};
use brigade_model::ids::Time;
use brigade_model::json::Json;
use brigade_model::message::Message;
use brigade_model::outcome::{EndConfirmation, Failure};
use brigade_model::process_report::StartedProcess;
use brigade_model::task::TaskRow;
use brigade_process::shim::layout::{CLAIM, GRACE};
use brigade_process::{
    BootId, ProcessId, ProcessInput, Shim, ShimOrder, ShimPhase, ShimRecord, input_spool,
};
use tokio::sync::mpsc;

use super::execution_dirs::{ExecutionDirs, ProcessExecution};
use super::probe::{ExecutionProbe, ProbeResult};
use super::readiness::ReadinessWatch;
use super::report::{CommandDescription, end_from_record, parts_in_effect};
use super::watched_processes::Watch;
use crate::clock::Clock;
use crate::performer::Reporter;

/// The time after which a running process is recorded as started. A directory that disappears later
/// is then not taken for one that never existed.
const START_RECORD_DELAY: Duration = Duration::from_millis(50);

/// The number of probes of an execution whose shim died, and the pause between them.
const PROBE_TRIES: u32 = 60;
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// The time in which the last output of a process that has ended is searched.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// A request to a running process.
#[derive(Debug)]
pub(crate) enum DriverRequest {
    Message(Arc<Message>),
    /// A notice that bytes were stored for its input.
    Input,
    Stop {
        deadline: Time,
    },
    Kill,
}

/// The knowledge in the store about the start of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartRecorded {
    No,
    Yes,
}

impl StartRecorded {
    pub(crate) fn of_row(row: &TaskRow) -> Self {
        let state = row.extras.as_ref().and_then(|extra| extra.state.as_ref());
        let started = state.and_then(|state| state.decode::<StartedProcess>().ok());
        match started {
            Some(started) if started.attempt == row.attempt => Self::Yes,
            _ => Self::No,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ProcessDriver {
    pub(crate) execution: ProcessExecution,
    pub(crate) dir: PathBuf,
    pub(crate) boot_id: BootId,
    pub(crate) reads_input: bool,
    pub(crate) names: CommandDescription,
    pub(crate) start_recorded: StartRecorded,
    /// The watch of a process that is not ready yet.
    pub(crate) readiness: Option<ReadinessWatch>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reporter: Reporter,
    pub(super) watch: Watch,
}

impl ProcessDriver {
    /// Follows the shim until it exits, and reports the end of the process.
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

    /// Serves requests until the shim exits.
    async fn serve_requests(&mut self, shim: &Shim) {
        let (lines, mut waiting) = mpsc::unbounded_channel();
        let writer =
            InputWriter { reads_input: self.reads_input, shim, reporter: self.reporter.clone() };
        let mut writing = pin!(writer.run(ProcessInput::new(&self.dir), &mut waiting));
        let mut exited = pin!(shim.wait_exit());
        let readiness = self.readiness.take();
        let mut is_awaited = readiness.is_some();
        let reads_output = readiness.as_ref().is_some_and(ReadinessWatch::reads_output);
        let mut ready =
            pin!(report_readiness(readiness, self.dir.clone(), shim.id(), self.reporter.clone()));
        // A runtime may have died between storing bytes and notifying the shim.
        if self.reads_input && input_spool::has_input(&self.dir) {
            send_order(shim, ShimOrder::ReadInput);
        }
        let mut start_check = tokio::time::interval(START_RECORD_DELAY);
        // The first tick comes at once.
        start_check.tick().await;
        loop {
            tokio::select! {
                biased;
                result = &mut exited => {
                    if let Err(error) = result {
                        tracing::error!(%error, dir = %self.dir.display(), "lost track of a shim");
                    }
                    if is_awaited && reads_output {
                        let _ = tokio::time::timeout(LAST_OUTPUT_TIMEOUT, ready).await;
                    }
                    return;
                }
                Some(request) = self.watch.requests.recv() => match request {
                // The writer exists as long as this loop.
                    DriverRequest::Message(message) => drop(lines.send(message)),
                    DriverRequest::Input => send_order(shim, ShimOrder::ReadInput),
                    DriverRequest::Stop { deadline } => {
                        is_awaited = false;
                        self.request_stop(shim, deadline);
                    }
                    DriverRequest::Kill => {
                        is_awaited = false;
                        send_order(shim, ShimOrder::Kill);
                    }
                },
                () = &mut writing => {}
                () = &mut ready, if is_awaited => is_awaited = false,
                _ = start_check.tick(), if self.start_recorded == StartRecorded::No => self.record_start(shim).await,
            }
        }
    }

    /// Records the start of the process, once the shim has recorded it.
    async fn record_start(&mut self, shim: &Shim) {
        let Some(record) =
            read_record(&self.dir).filter(|record| record.phase >= ShimPhase::Running)
        else {
            return;
        };
        let sandbox = parts_in_effect(record.sandbox);
        let started =
            StartedProcess { attempt: self.execution.attempt, shim_pid: shim.pid(), sandbox };
        if let Ok(state) = Json::of(&started) {
            self.start_recorded = StartRecorded::Yes;
            self.reporter.post(AttemptReport::State(state)).await;
        }
    }

    fn request_stop(&self, shim: &Shim, deadline: Time) {
        let grace = deadline.since(self.clock.now()).0;
        // Without the file the shim uses the grace period that it was started with.
        if let Err(error) = fs::write(self.dir.join(GRACE), grace.to_string()) {
            tracing::warn!(%error, "the grace period of a stop could not be written");
        }
        send_order(shim, ShimOrder::Stop);
    }

    /// Finds out how the process of a killed shim ended. A probe that fails, perhaps for want of
    /// file descriptors, is repeated.
    async fn probe_until_known(&self) -> EndReport {
        let probe = ExecutionProbe {
            execution: self.execution,
            dir: self.dir.clone(),
            boot_id: self.boot_id,
            names: self.names.clone(),
            was_started: self.start_recorded == StartRecorded::Yes,
            saw_shim_die: true,
        };
        let mut tried = 0;
        loop {
            let probe = probe.clone();
            let problem = match run_blocking(move || probe.probe()).await {
                Ok(ProbeResult::Ended(end)) => return end,
                Ok(ProbeResult::NeverStarted) => {
                    return failed_end(Failure::error("its shim ended before the process started"));
                }
                Ok(ProbeResult::Alive(_)) => "the runtime lost track of its shim".to_owned(),
                Err(error) => format!("it could not be probed: {error}"),
            };
            if tried == PROBE_TRIES {
                let by = "the runtime".into();
                let evidence = problem.into();
                let lost = failed_end(Failure::Lost { by, evidence });
                return EndReport { confirmation: EndConfirmation::Unconfirmed, ..lost };
            }
            tried += 1;
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }
}

/// Reports that a process is ready, once it is.
async fn report_readiness(
    watch: Option<ReadinessWatch>,
    dir: PathBuf,
    shim: ProcessId,
    reporter: Reporter,
) {
    let Some(watch) = watch else { return };
    if watch.wait(&dir, shim).await {
        reporter.post(AttemptReport::Ready).await;
    }
}

fn failed_end(failure: Failure) -> EndReport {
    WorkResult::Failed { failure, partial: None }.into()
}

/// Returns the record of a shim that finished its work.
fn read_finished_record(dir: &Path) -> Option<ShimRecord> {
    read_record(dir).filter(|record| record.phase == ShimPhase::Done)
}

fn read_record(dir: &Path) -> Option<ShimRecord> {
    ShimRecord::read_from(&fs::File::open(dir.join(CLAIM)).ok()?).ok()
}

/// Runs blocking file operations on a thread for them.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn send_order(shim: &Shim, order: ShimOrder) {
    if let Err(error) = shim.send_order(order) {
        tracing::error!(%error, ?order, pid = shim.pid(), "a shim cannot be reached");
    }
}

/// A writer of messages to a process, one line each, which reports their delivery.
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
            let result = if open {
                self.write(&mut input, &message).await
            } else {
                let reason = if self.reads_input { "its input was closed" } else { NO_INPUT };
                PushResult::Refused { reason: reason.into() }
            };
            if message.closes_input && open {
                open = false;
                input.close();
                send_order(self.shim, ShimOrder::CloseInput);
            }
            self.reporter.post(AttemptReport::Pushed { message: message.no, result }).await;
        }
    }

    async fn write(&self, input: &mut ProcessInput, message: &Message) -> PushResult {
        let Some(line) = render_line(message) else { return PushResult::Delivered };
        let written = input.write(line.as_bytes()).await;
        // Closed after each message, so that the end of bytes from another writer reaches the
        // process.
        input.close();
        match written {
            Ok(()) => PushResult::Delivered,
            Err(error) => PushResult::Refused { reason: error.to_string().into() },
        }
    }
}

pub(crate) const NO_INPUT: &str = "it was started without an input";

/// Renders a text as it is and any other body as JSON. Returns `None` for a message that only
/// closes the input.
pub(crate) fn render_line(message: &Message) -> Option<String> {
    if message.closes_input && message.body == Json::null() {
        return None;
    }
    let text = message.body.decode::<String>();
    let mut line = text.unwrap_or_else(|_| message.body.as_str().to_owned());
    line.push('\n');
    Some(line)
}
