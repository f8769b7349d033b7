//! The requests about a process that its host answers, and the replies. They are calls to the node of the
//! host.

use brigade_model::command::EndReport;
use brigade_model::ids::{Attempt, Millis, RunNo, SessionId, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_process::input_spool::StoreInputResult;
use brigade_process::output::{
    LineMatch, OutputRead, OutputView, PagePiece, ReadStart, SearchCursor, SearchResult, StdStream,
    ViewPage,
};
use serde::{Deserialize, Serialize};

use super::execution_dirs::ProcessExecution;
use super::report::CommandDescription;
use crate::performer::TaskId;

/// The most bytes of a page that another node gets. Calls are rows of the database.
pub(crate) const HOST_PAGE_BYTES: usize = 256 * 1024;

/// The most processes of one [`HostRequest::FindEnds`].
pub(crate) const FIND_ENDS_MAX: usize = 256;

/// A request to the node of a process's host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HostRequest {
    ReadOutput(HostRead),
    SearchOutput(HostSearch),
    /// Stores bytes for the input of the process. A repeated piece is stored once.
    WriteInput(HostInput),
    /// Renews the lease of a reader of the output, or ends it.
    RenewLease(HostLease),
    /// Writes a message to the input of the process. The same message is requested once.
    Push(HostMessage),
    /// Finds out which of these processes have ended.
    FindEnds(Vec<HostProcess>),
    /// Ends the process, and replies when nothing of it is left.
    Stop {
        execution: HostExecution,
        grace: Millis,
    },
}

/// The reply to a [`HostRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HostReply {
    Page(HostPage),
    Matches(HostMatches),
    Input(HostInputResult),
    LeaseRenewed,
    Pushed(HostPushResult),
    /// The processes that have ended.
    Ends(Vec<HostEnd>),
    /// Nothing of the process is left.
    Stopped,
}

/// A process that its session's owner believes to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostProcess {
    pub(crate) execution: HostExecution,
    pub(crate) names: CommandDescription,
    pub(crate) was_started: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostEnd {
    pub(crate) execution: HostExecution,
    pub(crate) end: EndReport,
}

/// An execution of a process on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostExecution {
    session: SessionId,
    no: TaskNo,
    run: RunNo,
    attempt: Attempt,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct HostRead {
    pub(crate) execution: HostExecution,
    view: HostView,
    start: HostStart,
    max_bytes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostSearch {
    pub(crate) execution: HostExecution,
    view: HostView,
    pub(crate) pattern: String,
    pub(crate) ignore_case: bool,
    read_from: u64,
    searched_to: u64,
    pub(crate) max_matches: usize,
    pub(crate) max_line_bytes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostInput {
    pub(crate) execution: HostExecution,
    pub(crate) writer: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) closes_input: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct HostLease {
    pub(crate) execution: HostExecution,
    pub(crate) holder: u64,
    /// The position of the reader; `None` if it has left.
    pub(crate) position: Option<u64>,
    pub(crate) duration: Millis,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostMessage {
    pub(crate) execution: HostExecution,
    /// The line to write; `None` for a message that only closes the input.
    pub(crate) line: Option<String>,
    pub(crate) closes_input: bool,
}

/// The result of [`HostRequest::Push`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HostPushResult {
    Delivered,
    Refused {
        reason: String,
    },
    /// The process has not read it in time. A part of it may have arrived.
    Unknown,
}

/// The result of [`HostRequest::WriteInput`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum HostInputResult {
    Stored { writer_end: u64, is_whole: bool },
    NotRunning,
    Closed,
    OutOfOrder,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum HostView {
    Stdout,
    Stderr,
    Combined,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum HostStart {
    At(u64),
    FromEnd(u64),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostPage {
    from: u64,
    next: u64,
    pieces: Vec<HostPiece>,
    total: u64,
    unwritten: u64,
    ended: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum HostPiece {
    Bytes { is_stderr: bool, at: u64, bytes: Vec<u8> },
    Dropped { bytes: u64 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostMatches {
    lines: Vec<HostLine>,
    read_from: u64,
    searched_to: u64,
    dropped_bytes: u64,
    is_complete: bool,
    ended: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct HostLine {
    at: u64,
    is_stderr: bool,
    text: String,
    unfinished: bool,
}

impl HostRead {
    pub(crate) fn new(execution: ProcessExecution, read: OutputRead) -> Self {
        Self {
            execution: execution.into(),
            view: read.view.into(),
            start: match read.start {
                ReadStart::At(position) => HostStart::At(position),
                ReadStart::FromEnd(bytes) => HostStart::FromEnd(bytes),
            },
            max_bytes: read.max_bytes.min(HOST_PAGE_BYTES),
        }
    }

    /// Returns the read, within the bounds of a reply whatever was asked.
    pub(crate) fn read(&self) -> OutputRead {
        OutputRead {
            view: self.view.into(),
            start: match self.start {
                HostStart::At(position) => ReadStart::At(position),
                HostStart::FromEnd(bytes) => ReadStart::FromEnd(bytes),
            },
            max_bytes: self.max_bytes.clamp(1, HOST_PAGE_BYTES),
        }
    }
}

impl HostSearch {
    pub(crate) fn new(
        execution: ProcessExecution,
        search: &brigade_process::output::OutputSearch<'_>,
    ) -> Self {
        Self {
            execution: execution.into(),
            view: search.view.into(),
            pattern: search.pattern.to_owned(),
            ignore_case: search.ignore_case,
            read_from: search.cursor.read_from,
            searched_to: search.cursor.searched_to,
            max_matches: search.max_matches,
            max_line_bytes: search.max_line_bytes,
        }
    }

    pub(crate) fn view(&self) -> OutputView {
        self.view.into()
    }

    pub(crate) fn cursor(&self) -> SearchCursor {
        SearchCursor { read_from: self.read_from, searched_to: self.searched_to }
    }
}

impl From<ViewPage> for HostPage {
    fn from(page: ViewPage) -> Self {
        let ViewPage { from, next, pieces, total, unwritten, ended } = page;
        let pieces = pieces.into_iter().map(|piece| match piece {
            PagePiece::Bytes { stream, at, bytes } => {
                HostPiece::Bytes { is_stderr: stream == StdStream::Stderr, at, bytes }
            }
            PagePiece::Dropped { bytes } => HostPiece::Dropped { bytes },
        });
        Self { from, next, pieces: pieces.collect(), total, unwritten, ended }
    }
}

impl From<HostPage> for ViewPage {
    fn from(page: HostPage) -> Self {
        let HostPage { from, next, pieces, total, unwritten, ended } = page;
        let pieces = pieces.into_iter().map(|piece| match piece {
            HostPiece::Bytes { is_stderr, at, bytes } => {
                PagePiece::Bytes { stream: stream_of(is_stderr), at, bytes }
            }
            HostPiece::Dropped { bytes } => PagePiece::Dropped { bytes },
        });
        Self { from, next, pieces: pieces.collect(), total, unwritten, ended }
    }
}

impl From<SearchResult> for HostMatches {
    fn from(found: SearchResult) -> Self {
        let lines = found.lines.into_iter().map(|line| HostLine {
            at: line.at,
            is_stderr: line.stream == StdStream::Stderr,
            text: line.text,
            unfinished: line.unfinished,
        });
        Self {
            lines: lines.collect(),
            read_from: found.next_cursor.read_from,
            searched_to: found.next_cursor.searched_to,
            dropped_bytes: found.dropped_bytes,
            is_complete: found.is_complete,
            ended: found.ended,
        }
    }
}

impl From<HostMatches> for SearchResult {
    fn from(found: HostMatches) -> Self {
        let HostMatches { lines, read_from, searched_to, dropped_bytes, is_complete, ended } =
            found;
        let lines = lines.into_iter().map(|line| LineMatch {
            at: line.at,
            stream: stream_of(line.is_stderr),
            text: line.text,
            unfinished: line.unfinished,
        });
        let next_cursor = SearchCursor { read_from, searched_to };
        Self { lines: lines.collect(), next_cursor, dropped_bytes, is_complete, ended }
    }
}

impl From<StoreInputResult> for HostInputResult {
    fn from(stored: StoreInputResult) -> Self {
        match stored {
            StoreInputResult::Stored { writer_end, is_whole } => {
                Self::Stored { writer_end, is_whole }
            }
            StoreInputResult::NotRunning => Self::NotRunning,
            StoreInputResult::Closed => Self::Closed,
            StoreInputResult::OutOfOrder => Self::OutOfOrder,
        }
    }
}

impl From<HostInputResult> for StoreInputResult {
    fn from(stored: HostInputResult) -> Self {
        match stored {
            HostInputResult::Stored { writer_end, is_whole } => {
                Self::Stored { writer_end, is_whole }
            }
            HostInputResult::NotRunning => Self::NotRunning,
            HostInputResult::Closed => Self::Closed,
            HostInputResult::OutOfOrder => Self::OutOfOrder,
        }
    }
}

fn stream_of(is_stderr: bool) -> StdStream {
    if is_stderr { StdStream::Stderr } else { StdStream::Stdout }
}

impl From<ProcessExecution> for HostExecution {
    fn from(execution: ProcessExecution) -> Self {
        let ProcessExecution { task: TaskId { session, no }, run, attempt } = execution;
        Self { session, no, run, attempt }
    }
}

impl From<HostExecution> for ProcessExecution {
    fn from(execution: HostExecution) -> Self {
        let HostExecution { session, no, run, attempt } = execution;
        Self { task: TaskId { session, no }, run, attempt }
    }
}

impl From<OutputView> for HostView {
    fn from(view: OutputView) -> Self {
        match view {
            OutputView::Stdout => Self::Stdout,
            OutputView::Stderr => Self::Stderr,
            OutputView::Combined => Self::Combined,
        }
    }
}

impl From<HostView> for OutputView {
    fn from(view: HostView) -> Self {
        match view {
            HostView::Stdout => Self::Stdout,
            HostView::Stderr => Self::Stderr,
            HostView::Combined => Self::Combined,
        }
    }
}

/// Returns the refusal of a reply that does not fit its request.
pub(crate) fn unexpected_reply() -> Refusal {
    Refusal::internal("a node replied with another kind of reply")
}
