//! `/v1/tasks/{task}/output/stream`, `/v1/tasks/{task}/text/stream`: output while it is produced.

use axum::extract::State;
use axum::response::Response;
use brigade_agent::AgentOutput;
use brigade_model::refusal::Refusal;
use brigade_model::work::TaskKind;
use brigade_process::output::{PagePiece, ReadStart, StdStream, ViewPage};
use brigade_protocol::http::{AgentOutputBody, DroppedOutputBody, ProcessOutputBody, TaskId};
use brigade_protocol::requests::StreamSelection;
use brigade_runtime::{ResultStream, TaskOutputFollower};
use futures_util::stream::Fuse;
use futures_util::{FutureExt, StreamExt};
use http::header::HeaderMap;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::HttpState;
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery};
use crate::http::problem::Problem;
use crate::http::server_sent_events::{
    CHUNK_BYTES, FrameBuffer, FrameSource, follow, last_event_id,
};

/// Selects output to follow.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OutputSelection {
    #[param(inline)]
    stream: OutputStream,
    /// Starts this many bytes before the end.
    tail: Option<u64>,
    /// Starts at this offset.
    from: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum OutputStream {
    Stdout,
    Stderr,
    /// Both, in the order in which they were written.
    #[default]
    Combined,
}

/// Follow the output of a process
///
/// Server-sent events: `output` with a ProcessOutput and the next offset as id, `dropped` with the
/// offsets of output that is no longer stored, and `end`. `Last-Event-ID` resumes. `heartbeat`,
/// `too_slow` and `bye` are as of changes.
#[utoipa::path(
    get, path = "/v1/tasks/{task}/output/stream", tag = "output",
    params(("task" = TaskId, Path), OutputSelection),
    responses(
        (status = 200, description = "A stream", body = String, content_type = "text/event-stream"),
        Problem
    )
)]
pub(super) async fn follow_output(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    headers: HeaderMap,
    ApiQuery(selection): ApiQuery<OutputSelection>,
) -> Result<Response, Problem> {
    let start = selection.start(&headers)?;
    let found = caller.task(id).await?;
    let view = match selection.stream {
        OutputStream::Stdout => StreamSelection::Stdout,
        OutputStream::Stderr => StreamSelection::Stderr,
        OutputStream::Combined => StreamSelection::Combined,
    };
    let follower = found.session.follow_output(found.task_ref(), view.into(), start).await?;
    Ok(follow(&state, &caller, OutputFrames { follower, held: None, next: None }))
}

/// Follow the output of an agent's model
///
/// Server-sent events, each with an AgentOutput: `step`, `text`, `reasoning`, `restarted`,
/// `tool_call`, `tool_result`, `lagged` and `end`, from the start of the run. After `restarted` all
/// text since the last step is void. After `lagged` the current step follows again.
#[utoipa::path(
    get, path = "/v1/tasks/{task}/text/stream", tag = "output",
    params(("task" = TaskId, Path)),
    responses(
        (status = 200, description = "A stream", body = String, content_type = "text/event-stream"),
        Problem
    )
)]
pub(super) async fn follow_text(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
) -> Result<Response, Problem> {
    let found = caller.task(id).await?;
    if found.row.spec.work.kind() != TaskKind::Agent {
        let address = found.row.address(found.no);
        return Err(Refusal::invalid(format!("{address} is no agent")).into());
    }
    let task = found.session.task(found.no).await?;
    Ok(follow(&state, &caller, TextFrames { outputs: task.text().fuse(), failure: None }))
}

impl OutputSelection {
    fn start(&self, headers: &HeaderMap) -> Result<ReadStart, Refusal> {
        if let Some(id) = last_event_id(headers)? {
            let offset = id.parse().ok().filter(|_| id.bytes().all(|byte| byte.is_ascii_digit()));
            let offset =
                offset.ok_or_else(|| Refusal::invalid("the header Last-Event-ID is no offset"));
            return offset.map(ReadStart::At);
        }
        match (self.from, self.tail) {
            (Some(_), Some(_)) => Err(Refusal::invalid("pass either `from` or `tail`")),
            (None, Some(bytes)) => Ok(ReadStart::FromEnd(bytes)),
            (from, None) => Ok(ReadStart::At(from.unwrap_or(0))),
        }
    }
}

/// The frames of a process's output.
struct OutputFrames {
    follower: TaskOutputFollower,
    /// The start of a character whose other bytes are not there yet.
    held: Option<HeldBytes>,
    /// The offset after the last byte that was sent.
    next: Option<u64>,
}

struct HeldBytes {
    stream: StdStream,
    from: u64,
    bytes: Vec<u8>,
}

impl OutputFrames {
    fn write_page(&mut self, page: ViewPage, frames: &mut FrameBuffer) {
        let mut offset = page.from;
        for piece in page.pieces {
            match piece {
                PagePiece::Bytes { stream, bytes, .. } => {
                    let from = offset;
                    offset += bytes.len() as u64;
                    self.write_bytes(HeldBytes { stream, from, bytes }, frames);
                }
                PagePiece::Dropped { bytes } => {
                    self.write_held(frames);
                    let body = DroppedOutputBody { from: offset, next: offset + bytes };
                    offset += bytes;
                    self.next = Some(offset);
                    frames.push("dropped", Some(&offset), &body);
                }
            }
        }
    }

    /// Writes a piece, but for an incomplete character at its end.
    fn write_bytes(&mut self, piece: HeldBytes, frames: &mut FrameBuffer) {
        let mut piece = match self.held.take() {
            Some(mut held) if held.stream == piece.stream => {
                held.bytes.extend(piece.bytes);
                held
            }
            held => {
                self.held = held;
                self.write_held(frames);
                piece
            }
        };
        if self.next.is_none() {
            // A start that counts from the end may be within a character.
            let bytes = piece.bytes.split_off(continuation_bytes(&piece.bytes));
            let from = piece.from + piece.bytes.len() as u64;
            self.push(
                HeldBytes { bytes: std::mem::replace(&mut piece.bytes, bytes), ..piece },
                frames,
            );
            piece.from = from;
        }
        let held = piece.bytes.split_off(whole_characters(&piece.bytes));
        if !held.is_empty() {
            let from = piece.from + piece.bytes.len() as u64;
            self.held = Some(HeldBytes { stream: piece.stream, from, bytes: held });
        }
        self.push(piece, frames);
    }

    fn write_held(&mut self, frames: &mut FrameBuffer) {
        if let Some(held) = self.held.take() {
            self.push(held, frames);
        }
    }

    fn push(&mut self, piece: HeldBytes, frames: &mut FrameBuffer) {
        if piece.bytes.is_empty() {
            return;
        }
        let body = ProcessOutputBody::new(piece.stream, piece.from, piece.bytes);
        self.next = Some(body.next);
        frames.push("output", Some(&body.next), &body);
    }
}

/// Returns the number of bytes before the first character.
fn continuation_bytes(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

/// Returns the length without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

impl FrameSource for OutputFrames {
    type Item = Option<ViewPage>;

    const END_EVENT: &'static str = "end";

    async fn next(&mut self) -> Option<Result<Self::Item, Refusal>> {
        match self.follower.next().await {
            Ok(Some(page)) => Some(Ok(Some(page))),
            // The last bytes may not be a character.
            Ok(None) => self.held.is_some().then_some(Ok(None)),
            Err(refusal) => Some(Err(refusal)),
        }
    }

    async fn write(&mut self, page: Option<ViewPage>, frames: &mut FrameBuffer) {
        match page {
            Some(page) => self.write_page(page, frames),
            None => self.write_held(frames),
        }
    }

    fn cursor(&self) -> Option<String> {
        self.next.map(|next| next.to_string())
    }
}

/// The frames of an agent's output.
struct TextFrames {
    outputs: Fuse<ResultStream<AgentOutput>>,
    /// The failure after the last output.
    failure: Option<Refusal>,
}

impl FrameSource for TextFrames {
    type Item = AgentOutput;

    const END_EVENT: &'static str = "end";

    async fn next(&mut self) -> Option<Result<AgentOutput, Refusal>> {
        match self.failure.take() {
            Some(refusal) => Some(Err(refusal)),
            None => self.outputs.next().await,
        }
    }

    async fn write(&mut self, output: AgentOutput, frames: &mut FrameBuffer) {
        push_output(&output, frames);
        while frames.len() < CHUNK_BYTES
            && let Some(Some(output)) = self.outputs.next().now_or_never()
        {
            match output {
                Ok(output) => push_output(&output, frames),
                Err(refusal) => {
                    self.failure = Some(refusal);
                    return;
                }
            }
        }
    }

    fn cursor(&self) -> Option<String> {
        None
    }
}

fn push_output(output: &AgentOutput, frames: &mut FrameBuffer) {
    frames.push(AgentOutputBody::event(output), None, &AgentOutputBody::of(output));
}
