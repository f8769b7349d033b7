//! What a session does with commands beside what it does with every task.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::command::{Command, SendCommand};
use brigade_model::event::Event;
use brigade_model::ids::{MessageNo, RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::task::{TaskRow, TaskState};
use brigade_model::work::{TaskKind, Work};
use brigade_process::input_spool::{self, InputBytes, StoreInputResult};
use brigade_process::output::{OutputFollower, OutputView, ReadStart};
use brigade_process::{ProcessOutput, lease};

use crate::feed::FeedUpdate;
use crate::performer::TaskId;
use crate::processes::driver::DriverRequest;
use crate::session::{Session, first_message_no, unexpected_reply};

/// Between two looks whether a command has read on, each time longer.
const POLL_PAUSE_MIN: Duration = Duration::from_millis(1);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(20);

/// Bytes for a command's input.
#[derive(Clone, Debug)]
pub struct InputPiece {
    /// A random number by which the writer is known, not zero.
    pub writer: u64,
    /// How many bytes of this writer came before.
    pub offset: u64,
    pub bytes: Arc<[u8]>,
    /// Nothing follows: the command reads the end of its input after them.
    pub closes_input: bool,
}

impl Session {
    /// Says that nothing more will be sent to a command: it reads the end of its input after what
    /// was sent before.
    pub async fn close_input(&self, of: impl Into<TaskRef>) -> Result<MessageNo, Refusal> {
        let Command::Send(send) = self.send_command(of.into(), Json::null()) else {
            return Err(unexpected_reply());
        };
        first_message_no(
            self.submit(Command::Send(SendCommand { closes_input: true, ..send })).await?,
        )
    }

    /// Brings bytes to a command's input, as they are. Returns when they are where its shim finds them, whatever
    /// becomes of this runtime. The same piece can be brought again, and arrives once.
    pub async fn write_input(
        &self,
        task: impl Into<TaskRef>,
        piece: InputPiece,
    ) -> Result<(), Refusal> {
        let task = task.into();
        let (mut pause, mut reached) = (POLL_PAUSE_MIN, 0);
        loop {
            let (no, row) = self.get(task.clone()).await?;
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

    async fn store_input(
        &self,
        no: TaskNo,
        row: &TaskRow,
        piece: &InputPiece,
    ) -> Result<StoreInputResult, Refusal> {
        let Some((dir, _)) = self.run_dir(no, None, row)? else {
            return Ok(StoreInputResult::Closed);
        };
        if !matches!(&row.spec.work, Work::Process(work) if work.reads_messages()) {
            let address = row.address(no);
            return Err(Refusal::invalid(format!("{address} was started without an input")));
        }
        if !row.is_alive() {
            return Ok(StoreInputResult::Closed);
        }
        let piece = piece.clone();
        let brought = tokio::task::spawn_blocking(move || {
            let InputPiece { writer, offset, bytes, closes_input: last } = piece;
            input_spool::store_input(
                &dir,
                InputBytes { writer, offset, bytes: &bytes, closes_input: last },
            )
        });
        let brought = brought.await.map_err(io::Error::other).and_then(|brought| brought);
        let brought =
            brought.map_err(|error| Refusal::unavailable(format!("its input: {error}")))?;
        if let (StoreInputResult::Stored { .. }, Some(processes)) =
            (brought, &self.runtime.inner.processes)
        {
            processes.send_request(
                TaskId { session: self.id, no },
                row.attempt,
                DriverRequest::Input,
            );
        }
        Ok(brought)
    }

    /// The output of a command: of its latest run, or of the one named.
    pub async fn output(&self, task: impl Into<TaskRef>) -> Result<ProcessOutput, Refusal> {
        let task = task.into();
        let run = task.run;
        let (no, row) = self.get(task).await?;
        self.output_of(no, run, &row)
    }

    /// The same as it comes, to its end: also when the shim was killed and cannot say so.
    pub async fn follow(
        &self,
        task: impl Into<TaskRef>,
        which: OutputView,
        from: ReadStart,
    ) -> Result<OutputFollower, Refusal> {
        let task = task.into();
        let run = task.run;
        let (no, row) = self.get(task).await?;
        let output = self.output_of(no, run, &row)?;
        let (session, run) = (self.clone(), run.unwrap_or(row.run));
        Ok(output.follow(which, from).end_when(async move { session.wait_run_end(no, run).await }))
    }

    /// Has the output of a command wait for a reader: nothing that comes after this position of both streams
    /// is dropped while the lease is renewed at least this often. Without a position the lease ends. Returns
    /// the most that is kept of each stream, which is how far the command may be ahead of the reader.
    pub async fn renew_lease(
        &self,
        task: impl Into<TaskRef>,
        holder: u64,
        position: Option<u64>,
        time: Duration,
    ) -> Result<u64, Refusal> {
        let (no, row) = self.get(task.into()).await?;
        let Some((dir, _)) = self.run_dir(no, None, &row)? else {
            return Err(Refusal::not_found(format!("{} has no output", row.address(no))));
        };
        let renewed = tokio::task::spawn_blocking(move || match position {
            Some(position) => lease::renew_lease(&dir, holder, position, time),
            None => lease::release_lease(&dir, holder),
        });
        match renewed.await.map_err(io::Error::other).and_then(|renewed| renewed) {
            Ok(()) => {}
            // It has not been started yet, and knows from its task that it has a reader.
            Err(error) if error.kind() == io::ErrorKind::NotFound && row.is_alive() => {}
            Err(error) => return Err(Refusal::unavailable(format!("its output: {error}"))),
        }
        Ok(match (&row.spec.work, self.runtime.inner.processes.as_ref()) {
            (Work::Process(work), Some(processes)) => processes.output_cap(work),
            _ => 0,
        })
    }

    /// Returns when a run has ended, or nobody will ever say so.
    async fn wait_run_end(&self, no: TaskNo, run: RunNo) {
        let mut feed = self.subscribe(self.runtime.position());
        while let Ok((_, row)) = self.get(no).await {
            if row.run > run || row.ended().is_some() {
                return;
            }
            let ends =
                |event: &Event| matches!(event, Event::Ended { no: ended, .. } if *ended == no);
            loop {
                match feed.next().await {
                    Ok(FeedUpdate::Event(item)) if !ends(&item.record.event) => {}
                    Ok(_) => break,
                    Err(_) => return,
                }
            }
        }
    }

    fn output_of(
        &self,
        no: TaskNo,
        run: Option<RunNo>,
        row: &TaskRow,
    ) -> Result<ProcessOutput, Refusal> {
        match self.run_dir(no, run, row)? {
            Some((dir, true)) if row.is_alive() => Ok(ProcessOutput::open_expected(&dir)),
            Some((dir, _)) => ProcessOutput::open(&dir)
                .map_err(|error| Refusal::unavailable(format!("its output: {error}"))),
            None => Err(Refusal::not_found(format!(
                "of {} there is no output any more",
                row.address(no)
            ))),
        }
    }

    /// The directory of a run, and whether it is that of the current one.
    fn run_dir(
        &self,
        no: TaskNo,
        run: Option<RunNo>,
        row: &TaskRow,
    ) -> Result<Option<(PathBuf, bool)>, Refusal> {
        let processes = self.runtime.inner.processes.as_ref();
        let processes = processes.filter(|_| row.spec.work.kind() == TaskKind::Process);
        let Some(processes) = processes else {
            return Err(Refusal::invalid(format!("{} has no output", row.address(no))));
        };
        let id = TaskId { session: self.id, no };
        if run.is_some_and(|run| run != row.run) {
            return Ok(run.and_then(|run| processes.run_dir(id, run)).map(|dir| (dir, false)));
        }
        let starting = matches!(row.state, TaskState::Queued(_));
        let attempt = if starting { row.attempt.next() } else { row.attempt };
        Ok(Some((processes.attempt_dir(id, row.run, attempt), true)))
    }
}
