//! Answers the requests of other nodes about the processes of this host.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_process::input_spool::{self, InputBytes, StoreInputResult};
use brigade_process::output::{OutputSearch, SearchBounds};
use brigade_process::{
    FoundExecution, ProcessInput, ProcessOutput, ShimOrder, find_execution, lease,
};

use super::driver::run_blocking;
use super::execution_dirs::{ExecutionDirs, ProcessExecution};
use super::host_request::{
    FIND_ENDS_MAX, HostEnd, HostInput, HostLease, HostMessage, HostProcess, HostPushResult,
    HostRead, HostReply, HostRequest, HostSearch,
};
use super::performer::ProcessService;
use super::probe::{ExecutionProbe, ProbeResult};
use super::task_output::search_refusal;

/// The time and the bytes of one search.
const SEARCH_TIME: Duration = Duration::from_secs(5);
const SEARCH_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The time in which a process must read what a message does not find space for.
const PUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// The most lines of one search, and the most bytes of a line.
const MATCHES_MAX: usize = 1_000;
const LINE_BYTES_MAX: usize = 2_000;

impl ProcessService {
    /// Carries out a request of another node. The other node has checked the rights of its caller.
    pub(crate) async fn answer_host(
        self: &Arc<Self>,
        request: HostRequest,
    ) -> Result<HostReply, Refusal> {
        match request {
            HostRequest::ReadOutput(read) => self.read_for_host(read).await,
            HostRequest::SearchOutput(search) => self.search_for_host(search).await,
            HostRequest::WriteInput(input) => self.store_input_for_host(input).await,
            HostRequest::RenewLease(lease) => self.renew_lease_for_host(lease).await,
            HostRequest::Push(message) => self.push_for_host(message).await,
            HostRequest::FindEnds(running) => self.find_ends_for_host(running).await,
            HostRequest::Stop { execution, grace } => {
                self.stop_for_host(execution.into(), grace).await
            }
        }
    }

    async fn read_for_host(&self, read: HostRead) -> Result<HostReply, Refusal> {
        let output = self.output_for_host(read.execution.into());
        let page = run_blocking(move || output.read(read.read())).await;
        let page = page
            .map_err(|error| Refusal::unavailable(format!("the output cannot be read: {error}")))?;
        Ok(HostReply::Page(page.into()))
    }

    async fn search_for_host(&self, search: HostSearch) -> Result<HostReply, Refusal> {
        let output = self.output_for_host(search.execution.into());
        let found = tokio::task::spawn_blocking(move || {
            output.search(OutputSearch {
                view: search.view(),
                pattern: &search.pattern,
                ignore_case: search.ignore_case,
                cursor: search.cursor(),
                max_matches: search.max_matches.clamp(1, MATCHES_MAX),
                max_line_bytes: search.max_line_bytes.min(LINE_BYTES_MAX),
                bounds: SearchBounds {
                    max_bytes: Some(SEARCH_BYTES_MAX),
                    deadline: Some(Instant::now() + SEARCH_TIME),
                    stop: None,
                },
            })
        });
        let found = found.await.map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(HostReply::Matches(found.map_err(|error| search_refusal(&error))?.into()))
    }

    async fn store_input_for_host(&self, input: HostInput) -> Result<HostReply, Refusal> {
        let execution: ProcessExecution = input.execution.into();
        let dir = self.execution_dirs.dir_of(&execution);
        let stored = run_blocking(move || {
            let HostInput { writer, offset, bytes, closes_input, .. } = input;
            let bytes = InputBytes { writer, offset, bytes: &bytes, closes_input };
            input_spool::store_input(&dir, bytes)
        });
        let stored = stored.await;
        let stored = stored.map_err(|error| Refusal::unavailable(format!("its input: {error}")))?;
        if let StoreInputResult::Stored { .. } = stored {
            let dir = self.execution_dirs.dir_of(&execution);
            self.order_for_host(dir, ShimOrder::ReadInput).await?;
        }
        Ok(HostReply::Input(stored.into()))
    }

    async fn push_for_host(&self, message: HostMessage) -> Result<HostReply, Refusal> {
        let dir = self.execution_dirs.dir_of(&message.execution.into());
        if let Some(line) = &message.line {
            let mut input = ProcessInput::new(&dir);
            match tokio::time::timeout(PUSH_TIMEOUT, input.write(line.as_bytes())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let reason = error.to_string();
                    return Ok(HostReply::Pushed(HostPushResult::Refused { reason }));
                }
                Err(_) => return Ok(HostReply::Pushed(HostPushResult::Unknown)),
            }
        }
        if message.closes_input {
            self.order_for_host(dir, ShimOrder::CloseInput).await?;
        }
        Ok(HostReply::Pushed(HostPushResult::Delivered))
    }

    async fn find_ends_for_host(&self, running: Vec<HostProcess>) -> Result<HostReply, Refusal> {
        let probes = running.into_iter().take(FIND_ENDS_MAX).map(|process| {
            let execution = process.execution.into();
            ExecutionProbe {
                execution,
                dir: self.execution_dirs.dir_of(&execution),
                boot_id: self.boot_id,
                names: process.names,
                was_started: process.was_started,
                saw_shim_die: false,
            }
        });
        let probes: Vec<ExecutionProbe> = probes.collect();
        let finding = tokio::task::spawn_blocking(move || {
            let ends = probes.into_iter().filter_map(|probe| match probe.probe() {
                Ok(ProbeResult::Ended(end)) => {
                    ExecutionDirs::remove_scratch_dir(&probe.dir);
                    Some(HostEnd { execution: probe.execution.into(), end })
                }
                Ok(ProbeResult::Alive(_) | ProbeResult::NeverStarted) => None,
                Err(error) => {
                    tracing::warn!(%error, dir = %probe.dir.display(), "a process cannot be probed");
                    None
                }
            });
            ends.collect()
        });
        let ends = finding.await.map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(HostReply::Ends(ends))
    }

    /// Sends an order to the shim of an execution. The session may be on another node, and then nobody here
    /// watches the process.
    async fn order_for_host(&self, dir: PathBuf, order: ShimOrder) -> Result<(), Refusal> {
        let boot_id = self.boot_id;
        let ordered = run_blocking(move || match find_execution(&dir, boot_id)? {
            FoundExecution::Alive(shim) => shim.send_order(order),
            _ => Ok(()),
        });
        ordered.await.map_err(|error| Refusal::unavailable(format!("its input: {error}")))
    }

    async fn renew_lease_for_host(
        self: &Arc<Self>,
        renewal: HostLease,
    ) -> Result<HostReply, Refusal> {
        let execution: ProcessExecution = renewal.execution.into();
        let dir = self.execution_dirs.dir_of(&execution);
        let processes = self.clone();
        let renewed = run_blocking(move || match renewal.position {
            Some(position) => {
                lease::renew_lease(&dir, renewal.holder, position, renewal.duration.into())
            }
            None => processes.departed_readers.release_lease(execution.task, &dir, renewal.holder),
        });
        match renewed.await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Refusal::unavailable(format!("its output: {error}")))
            }
            // It has not started yet, and its task says that it will have a reader.
            _ => Ok(HostReply::LeaseRenewed),
        }
    }

    fn output_for_host(&self, execution: ProcessExecution) -> ProcessOutput {
        ProcessOutput::open_expected(&self.execution_dirs.dir_of(&execution))
    }

    async fn stop_for_host(
        self: &Arc<Self>,
        execution: ProcessExecution,
        grace: Millis,
    ) -> Result<HostReply, Refusal> {
        match self.end_execution(execution, grace.into()).await {
            true => Ok(HostReply::Stopped),
            false => Err(Refusal::unavailable("its processes cannot be ended")),
        }
    }
}
