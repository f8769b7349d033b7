//! The output of a process, wherever its files are: on this machine, or on the host of another node.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_process::ProcessOutput;
use brigade_process::input_spool::StoreInputResult;
use brigade_process::output::{
    OutputFollower, OutputRead, OutputSearch, OutputView, PagePiece, ReadStart, SearchBounds,
    SearchCursor, SearchError, SearchResult, ViewPage,
};

use super::execution_dirs::ProcessExecution;
use super::host_request::{
    HostInput, HostLease, HostRead, HostReply, HostRequest, HostSearch, unexpected_reply,
};
use super::session::InputPiece;
use crate::fleet::HostClient;
use crate::session::Session;

/// The pauses between two looks at an output on another host, each longer than the one before.
const POLL_PAUSE_MIN: Duration = Duration::from_millis(100);
const POLL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The output of one run of a process. If the process was started by another node, that node reads it.
#[derive(Clone, Debug)]
pub struct TaskOutput(OutputSource);

#[derive(Clone, Debug)]
enum OutputSource {
    Here(ProcessOutput),
    AtHost(HostOutput),
}

/// An output whose files are on another host.
#[derive(Clone, Debug)]
pub(super) struct HostOutput {
    pub(super) client: HostClient,
    pub(super) execution: ProcessExecution,
    pub(super) host: Arc<str>,
}

/// A search for lines in an output.
#[derive(Clone, Debug)]
pub struct TaskOutputSearch {
    pub view: OutputView,
    /// A regular expression, as in [`OutputSearch::pattern`].
    pub pattern: String,
    pub ignore_case: bool,
    pub cursor: SearchCursor,
    /// The most lines to return, at least one.
    pub max_matches: usize,
    /// The most bytes of a line to return.
    pub max_line_bytes: usize,
    /// The bytes after which the search ends early.
    pub max_bytes: Option<u64>,
    /// The time at which the search ends early.
    pub deadline: Option<Instant>,
    /// Ends a search on this machine when it is true.
    pub stop: Arc<AtomicBool>,
}

impl TaskOutputSearch {
    fn search(&self) -> OutputSearch<'_> {
        OutputSearch {
            view: self.view,
            pattern: &self.pattern,
            ignore_case: self.ignore_case,
            cursor: self.cursor,
            max_matches: self.max_matches,
            max_line_bytes: self.max_line_bytes,
            bounds: SearchBounds {
                max_bytes: self.max_bytes,
                deadline: self.deadline,
                stop: Some(&self.stop),
            },
        }
    }
}

impl TaskOutput {
    pub(super) fn here(output: ProcessOutput) -> Self {
        Self(OutputSource::Here(output))
    }

    pub(super) fn at_host(output: HostOutput) -> Self {
        Self(OutputSource::AtHost(output))
    }

    /// Reads one page, without blocking this thread. Refuses if the host of the files has no node.
    pub async fn read(&self, read: OutputRead) -> Result<ViewPage, Refusal> {
        match &self.0 {
            OutputSource::Here(output) => {
                let output = output.clone();
                let page = tokio::task::spawn_blocking(move || output.read(read)).await;
                let page = page.map_err(|error| Refusal::internal(error.to_string()))?;
                page.map_err(|error| unreadable(&error))
            }
            OutputSource::AtHost(output) => output.read(read).await,
        }
    }

    /// Returns the stored lines that match a pattern, without blocking this thread.
    pub async fn search(&self, search: TaskOutputSearch) -> Result<SearchResult, Refusal> {
        match &self.0 {
            OutputSource::Here(output) => {
                let output = output.clone();
                let found = tokio::task::spawn_blocking(move || output.search(search.search()));
                let found = found.await.map_err(|error| Refusal::internal(error.to_string()))?;
                found.map_err(|error| search_refusal(&error))
            }
            OutputSource::AtHost(output) => output.search(&search).await,
        }
    }
}

impl HostOutput {
    /// Reads a page in parts that fit a call.
    async fn read(&self, read: OutputRead) -> Result<ViewPage, Refusal> {
        let mut page = self.read_part(read).await?;
        loop {
            let bytes = (page.next - page.from).saturating_sub(page.dropped_bytes());
            let remaining = (read.max_bytes as u64).saturating_sub(bytes);
            if page.ended || remaining == 0 || page.next >= page.total {
                return Ok(page);
            }
            let max_bytes = usize::try_from(remaining).unwrap_or(usize::MAX);
            let start = ReadStart::At(page.next);
            let part = self.read_part(OutputRead { view: read.view, start, max_bytes }).await?;
            if part.next <= page.next {
                return Ok(page);
            }
            append(&mut page, part);
        }
    }

    async fn read_part(&self, read: OutputRead) -> Result<ViewPage, Refusal> {
        let request = HostRequest::ReadOutput(HostRead::new(self.execution, read));
        match self.client.ask_host(&self.host, &request).await? {
            HostReply::Page(page) => Ok(page.into()),
            _ => Err(unexpected_reply()),
        }
    }

    async fn search(&self, search: &TaskOutputSearch) -> Result<SearchResult, Refusal> {
        let request = HostSearch::new(self.execution, &search.search());
        let request = HostRequest::SearchOutput(request);
        match self.client.ask_host(&self.host, &request).await? {
            HostReply::Matches(found) => Ok(found.into()),
            _ => Err(unexpected_reply()),
        }
    }
}

impl HostOutput {
    pub(super) async fn renew_lease(
        &self,
        holder: u64,
        position: Option<u64>,
        duration: Duration,
    ) -> Result<(), Refusal> {
        let duration = duration.into();
        let lease = HostLease { execution: self.execution.into(), holder, position, duration };
        match self.client.ask_host(&self.host, &HostRequest::RenewLease(lease)).await? {
            HostReply::LeaseRenewed => Ok(()),
            _ => Err(unexpected_reply()),
        }
    }

    pub(super) async fn write_input(
        &self,
        piece: &InputPiece,
    ) -> Result<StoreInputResult, Refusal> {
        let InputPiece { writer, offset, bytes, closes_input } = piece;
        let input = HostInput {
            execution: self.execution.into(),
            writer: *writer,
            offset: *offset,
            bytes: bytes.to_vec(),
            closes_input: *closes_input,
        };
        match self.client.ask_host(&self.host, &HostRequest::WriteInput(input)).await? {
            HostReply::Input(stored) => Ok(stored.into()),
            _ => Err(unexpected_reply()),
        }
    }
}

/// Appends the page that follows.
fn append(page: &mut ViewPage, part: ViewPage) {
    for piece in part.pieces {
        match (page.pieces.last_mut(), piece) {
            (
                Some(PagePiece::Bytes { stream, bytes, .. }),
                PagePiece::Bytes { stream: next, bytes: more, .. },
            ) if *stream == next => bytes.extend(more),
            (Some(PagePiece::Dropped { bytes }), PagePiece::Dropped { bytes: more }) => {
                *bytes += more;
            }
            (_, piece) => page.pieces.push(piece),
        }
    }
    page.next = part.next;
    page.total = part.total;
    page.unwritten = part.unwritten;
    page.ended = part.ended;
}

/// Follows the output of a run to its end.
#[derive(Debug)]
pub struct TaskOutputFollower(FollowedSource);

#[derive(Debug)]
enum FollowedSource {
    Here(OutputFollower),
    AtHost(Box<FollowedHost>),
}

#[derive(Debug)]
pub(super) struct FollowedHost {
    pub(super) output: HostOutput,
    pub(super) view: OutputView,
    pub(super) start: ReadStart,
    pub(super) session: Session,
    pub(super) no: TaskNo,
    pub(super) run: RunNo,
    pub(super) pause: Duration,
    /// True if the run had ended before the last read.
    pub(super) has_ended: bool,
}

impl TaskOutputFollower {
    pub(super) fn here(follower: OutputFollower) -> Self {
        Self(FollowedSource::Here(follower))
    }

    pub(super) fn at_host(host: FollowedHost) -> Self {
        Self(FollowedSource::AtHost(Box::new(host)))
    }

    /// Waits for the next page. Returns `None` after the last one. Cancel-safe: a dropped call loses
    /// nothing.
    pub async fn next(&mut self) -> Result<Option<ViewPage>, Refusal> {
        match &mut self.0 {
            FollowedSource::Here(follower) => {
                follower.next().await.map_err(|error| unreadable(&error))
            }
            FollowedSource::AtHost(host) => host.next().await,
        }
    }
}

impl FollowedHost {
    pub(super) const FIRST_PAUSE: Duration = POLL_PAUSE_MIN;
    const PAGE_BYTES: usize = 64 * 1024;

    async fn next(&mut self) -> Result<Option<ViewPage>, Refusal> {
        loop {
            let Self { view, start, .. } = *self;
            let read = OutputRead { view, start, max_bytes: Self::PAGE_BYTES };
            let page = self.output.read_part(read).await?;
            if !page.is_empty() {
                self.pause = POLL_PAUSE_MIN;
                self.start = ReadStart::At(page.next);
                return Ok(Some(page));
            }
            if page.ended || self.has_ended {
                return Ok(None);
            }
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(POLL_PAUSE_MAX);
            // A killed shim cannot record its end.
            let row = self.session.get(self.no).await?.row;
            self.has_ended = row.run != self.run || !row.is_alive();
        }
    }
}

fn unreadable(error: &io::Error) -> Refusal {
    Refusal::unavailable(format!("the output cannot be read: {error}"))
}

pub(super) fn search_refusal(error: &SearchError) -> Refusal {
    match error {
        SearchError::Pattern(problem) => {
            Refusal::invalid(format!("the pattern is wrong: {problem}"))
        }
        SearchError::Io(error) => unreadable(error),
    }
}
