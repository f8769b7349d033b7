//! Answers the requests of other nodes about the processes of this host.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade_model::ids::Millis;
use brigade_model::refusal::Refusal;
use brigade_process::input_spool::{self, InputBytes, StoreInputResult};
use brigade_process::output::{OutputSearch, SearchBounds};
use brigade_process::{FoundExecution, ProcessOutput, ShimOrder, find_execution, lease};

use super::driver::run_blocking;
use super::execution_dirs::ProcessExecution;
use super::host_request::{HostInput, HostLease, HostRead, HostReply, HostRequest, HostSearch};
use super::performer::ProcessService;
use super::task_output::search_refusal;

/// The time and the bytes of one search.
const SEARCH_TIME: Duration = Duration::from_secs(5);
const SEARCH_BYTES_MAX: u64 = 256 * 1024 * 1024;
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
            // The session may be on another node, and then nobody here watches the process.
            let dir = self.execution_dirs.dir_of(&execution);
            let boot_id = self.boot_id;
            let ordered = run_blocking(move || match find_execution(&dir, boot_id)? {
                FoundExecution::Alive(shim) => shim.send_order(ShimOrder::ReadInput),
                _ => Ok(()),
            });
            ordered.await.map_err(|error| Refusal::unavailable(format!("its input: {error}")))?;
        }
        Ok(HostReply::Input(stored.into()))
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
