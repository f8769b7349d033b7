//! The methods of a session that are for processes only.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::task::{StoredTask, TaskRow, TaskState};
use brigade_model::work::{TaskKind, Work};
use brigade_process::input_spool::{self, InputBytes, StoreInputResult};
use brigade_process::output::{OutputFollower, OutputView, ReadStart};
use brigade_process::{ProcessOutput, lease};

use crate::fleet::{HostClient, is_same_host, machine_name};
use crate::performer::TaskId;
use crate::processes::ProcessExecution;
use crate::processes::driver::{DriverRequest, run_blocking};
use crate::processes::task_output::{FollowedHost, HostOutput, TaskOutput, TaskOutputFollower};
use crate::send_message::SendMessage;
use crate::session::Session;

/// The pauses between two tries to store input, each longer than the one before.
const POLL_PAUSE_MIN: Duration = Duration::from_millis(1);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(20);

/// Bytes for a process's input.
#[derive(Clone, Debug)]
pub struct InputPiece {
    /// A random number that identifies the writer, not zero.
    pub writer: u64,
    /// The number of bytes that this writer sent before.
    pub offset: u64,
    pub bytes: Arc<[u8]>,
    /// True for the last piece: the process reads the end of its input after it.
    pub closes_input: bool,
}

impl Session {
    /// Closes the input of a process. It reads the end of its input after all that was sent before.
    pub fn close_input(&self, of: impl Into<TaskRef>) -> SendMessage {
        self.send(of, Json::null()).closing_input()
    }

    /// Writes bytes to a process's input. Returns when they are stored for its shim, so that they
    /// survive this runtime. A piece that is written again arrives once.
    pub async fn write_input(
        &self,
        task: impl Into<TaskRef>,
        piece: InputPiece,
    ) -> Result<(), Refusal> {
        let task = task.into();
        let mut pause = POLL_PAUSE_MIN;
        let mut reached = 0;
        loop {
            let StoredTask { no, row } = self.get(task.clone()).await?;
            self.check_writer(no, &row)?;
            match self.store_input(no, &row, &piece).await? {
                StoreInputResult::Stored { is_whole: true, .. } => return Ok(()),
                StoreInputResult::Stored { writer_end, .. } if writer_end > reached => {
                    reached = writer_end;
                    pause = POLL_PAUSE_MIN;
                }
                StoreInputResult::Stored { .. } | StoreInputResult::NotRunning => {}
                StoreInputResult::Closed => {
                    return Err(Refusal::ended(format!(
                        "the input of {} is closed",
                        row.address(no)
                    )));
                }
                StoreInputResult::OutOfOrder => {
                    let address = row.address(no);
                    return Err(Refusal::conflict(format!("another client writes to {address}")));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_PAUSE_MAX);
        }
    }

    /// Refuses everybody but the parent as a writer to a part: the input is their conversation.
    fn check_writer(&self, no: TaskNo, row: &TaskRow) -> Result<(), Refusal> {
        let is_parent = self.acts_through.is_none() && self.caller.owner() == row.owner;
        match row.spec.part_of_parent && !is_parent {
            true => Err(Refusal::forbidden(format!(
                "the input of {} belongs to its agent",
                row.address(no)
            ))),
            false => Ok(()),
        }
    }

    async fn store_input(
        &self,
        no: TaskNo,
        row: &TaskRow,
        piece: &InputPiece,
    ) -> Result<StoreInputResult, Refusal> {
        if !row.is_alive() {
            return Ok(StoreInputResult::Closed);
        }
        if !matches!(&row.spec.work, Work::Process(work) if work.reads_messages()) {
            let address = row.address(no);
            return Err(Refusal::invalid(format!("{address} was started without an input")));
        }
        if let Some(output) = self.output_at_host(no, None, row) {
            return output.write_input(piece).await;
        }
        let Some(RunDir { path: dir, .. }) = self.run_dir(no, None, row)? else {
            return Ok(StoreInputResult::Closed);
        };
        let piece = piece.clone();
        let stored = run_blocking(move || {
            let InputPiece { writer, offset, bytes, closes_input } = piece;
            let bytes = InputBytes { writer, offset, bytes: &bytes, closes_input };
            input_spool::store_input(&dir, bytes)
        });
        let stored = stored.await;
        let stored = stored.map_err(|error| Refusal::unavailable(format!("its input: {error}")))?;
        if let (StoreInputResult::Stored { .. }, Some(processes)) =
            (stored, &self.runtime.inner.processes)
        {
            processes.send_request(
                TaskId { session: self.id, no },
                row.attempt,
                DriverRequest::Input,
            );
        }
        Ok(stored)
    }

    /// Returns the output of a process: of its latest run, or of the named one.
    pub async fn output(&self, task: impl Into<TaskRef>) -> Result<ProcessOutput, Refusal> {
        let task = task.into();
        let run = task.run;
        let StoredTask { no, row } = self.get(task).await?;
        self.output_of(no, run, &row)
    }

    /// Returns the output of a process as [`Session::output`] does, also of a process that another node
    /// started: that node reads it.
    pub async fn task_output(&self, task: impl Into<TaskRef>) -> Result<TaskOutput, Refusal> {
        let task = task.into();
        let run = task.run;
        let StoredTask { no, row } = self.get(task).await?;
        match self.output_at_host(no, run, &row) {
            Some(output) => Ok(TaskOutput::at_host(output)),
            None => Ok(TaskOutput::here(self.output_of(no, run, &row)?)),
        }
    }

    /// Follows the output of a process as [`Session::follow`] does, also of a process that another node
    /// started. That node is asked again and again.
    pub async fn follow_output(
        &self,
        task: impl Into<TaskRef>,
        view: OutputView,
        start: ReadStart,
    ) -> Result<TaskOutputFollower, Refusal> {
        let task = task.into();
        let run = task.run;
        let StoredTask { no, row } = self.get(task.clone()).await?;
        let Some(output) = self.output_at_host(no, run, &row) else {
            return Ok(TaskOutputFollower::here(self.follow(task, view, start).await?));
        };
        Ok(TaskOutputFollower::at_host(FollowedHost {
            output,
            view,
            start,
            session: self.clone(),
            no,
            run: row.run,
            pause: FollowedHost::FIRST_PAUSE,
            has_ended: false,
        }))
    }

    /// Returns the output of a run whose files another host has.
    fn output_at_host(&self, no: TaskNo, run: Option<RunNo>, row: &TaskRow) -> Option<HostOutput> {
        let host = self.other_host(row)?.clone();
        if run.is_some_and(|run| run != row.run) {
            return None;
        }
        let node = self.runtime.inner.node.clone()?;
        let task = TaskId { session: self.id, no };
        let execution = ProcessExecution { task, run: row.run, attempt: row.attempt };
        Some(HostOutput { client: HostClient::new(node), execution, host })
    }

    /// Returns the host of the latest attempt, if it is not this one.
    fn other_host<'a>(&self, row: &'a TaskRow) -> Option<&'a Arc<str>> {
        let own = &self.runtime.inner.processes.as_ref()?.host;
        let has_started = !matches!(row.state, TaskState::Queued(_));
        row.host().filter(|host| has_started && !is_same_host(host, own))
    }

    /// Returns true for a process that may still run on another host.
    #[cfg(feature = "agents")]
    pub(crate) async fn runs_elsewhere(&self, no: TaskNo) -> Result<bool, Refusal> {
        let row = self.get(no).await?.row;
        Ok(row.is_alive() && self.other_host(&row).is_some())
    }

    /// Follows the output of a process to its end, also if its shim was killed.
    pub async fn follow(
        &self,
        task: impl Into<TaskRef>,
        view: OutputView,
        from: ReadStart,
    ) -> Result<OutputFollower, Refusal> {
        let task = task.into();
        let run = task.run;
        let StoredTask { no, row } = self.get(task).await?;
        let output = self.output_of(no, run, &row)?;
        let session = self.clone();
        let run = run.unwrap_or(row.run);
        Ok(output.follow(view, from).end_when(async move { session.wait_run_end(no, run).await }))
    }

    /// Makes the output of a process wait for a reader. Nothing after this position of either
    /// stream is dropped while the lease is renewed within its duration. Without a position the
    /// lease ends. Returns the largest number of bytes stored of each stream, by which the process
    /// may be ahead of the reader.
    pub async fn renew_lease(
        &self,
        task: impl Into<TaskRef>,
        holder: u64,
        position: Option<u64>,
        duration: Duration,
    ) -> Result<u64, Refusal> {
        let StoredTask { no, row } = self.get(task.into()).await?;
        if let Some(output) = self.output_at_host(no, None, &row) {
            output.renew_lease(holder, position, duration).await?;
            return Ok(self.output_cap_of(&row));
        }
        let Some(RunDir { path: dir, .. }) = self.run_dir(no, None, &row)? else {
            return Err(Refusal::not_found(format!("{} has no output", row.address(no))));
        };
        let processes = self.runtime.inner.processes.clone();
        let task = TaskId { session: self.id(), no };
        let renewed = run_blocking(move || match (position, processes) {
            (Some(position), _) => lease::renew_lease(&dir, holder, position, duration),
            (None, Some(processes)) => processes.departed_readers.release_lease(task, &dir, holder),
            (None, None) => lease::release_lease(&dir, holder),
        });
        match renewed.await {
            Ok(()) => {}
            // The process has not started yet, and its task says that it will have a reader.
            Err(error) if error.kind() == io::ErrorKind::NotFound && row.is_alive() => {}
            Err(error) => return Err(Refusal::unavailable(format!("its output: {error}"))),
        }
        Ok(self.output_cap_of(&row))
    }

    fn output_cap_of(&self, row: &TaskRow) -> u64 {
        match (&row.spec.work, self.runtime.inner.processes.as_ref()) {
            (Work::Process(work), Some(processes)) => processes.output_cap(work),
            _ => 0,
        }
    }

    fn output_of(
        &self,
        no: TaskNo,
        run: Option<RunNo>,
        row: &TaskRow,
    ) -> Result<ProcessOutput, Refusal> {
        match self.run_dir(no, run, row)? {
            Some(RunDir { path, is_current: true }) if row.is_alive() => {
                Ok(ProcessOutput::open_expected(&path))
            }
            Some(RunDir { path, .. }) => {
                ProcessOutput::open(&path).map_err(|error| match error.kind() {
                    // It was stopped before its first start, or its directory was removed.
                    io::ErrorKind::NotFound => no_output_refusal(no, row),
                    _ => Refusal::unavailable(format!("its output: {error}")),
                })
            }
            None => Err(no_output_refusal(no, row)),
        }
    }

    /// Returns the directory of a run.
    fn run_dir(
        &self,
        no: TaskNo,
        run: Option<RunNo>,
        row: &TaskRow,
    ) -> Result<Option<RunDir>, Refusal> {
        let processes = self.runtime.inner.processes.as_ref();
        let processes = processes.filter(|_| row.spec.work.kind() == TaskKind::Process);
        let Some(processes) = processes else {
            return Err(Refusal::invalid(format!("{} has no output", row.address(no))));
        };
        let id = TaskId { session: self.id, no };
        if run.is_some_and(|run| run != row.run) {
            let dir = run.and_then(|run| processes.run_dir(id, run));
            return Ok(dir.map(|path| RunDir { path, is_current: false }));
        }
        if let Some(host) = self.other_host(row) {
            let address = row.address(no);
            let machine = machine_name(host);
            return Err(Refusal::unavailable(format!(
                "the files of {address} are on {machine}; ask a node there"
            )));
        }
        let starting = matches!(row.state, TaskState::Queued(_));
        let attempt = if starting { row.attempt.next() } else { row.attempt };
        let path = processes.attempt_dir(id, row.run, attempt);
        Ok(Some(RunDir { path, is_current: true }))
    }
}

fn no_output_refusal(no: TaskNo, row: &TaskRow) -> Refusal {
    Refusal::not_found(format!("no output of {} is stored", row.address(no)))
}

/// The directory of a run, and whether that is the current run.
struct RunDir {
    path: PathBuf,
    is_current: bool,
}
