//! `/v1/tasks/{task}/output`: the output of a process.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use brigade_model::ids::RunNo;
use brigade_model::refusal::Refusal;
use brigade_process::output::{OutputRead, OutputView, PagePiece, ReadStart, ViewPage};
use brigade_protocol::http::{OutputBytesBody, OutputPageBody, OutputSearchBody, TaskId};
use brigade_protocol::requests::{SearchOutputRequest, StreamSelection};
use brigade_runtime::TaskOutput;
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CONTENT_RANGE, CONTENT_TYPE, HeaderMap};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery, JsonBody};
use crate::http::path_target::target_of;
use crate::http::problem::Problem;
use crate::http::request_headers::{ByteRange, RangeHeader};
use crate::request_context::LocatedTask;
use crate::requests::read_output::PAGE_BYTES_MAX;

pub(super) const NEXT: HeaderName = HeaderName::from_static("brigade-output-next");
pub(super) const TOTAL: HeaderName = HeaderName::from_static("brigade-output-total");
const START: HeaderName = HeaderName::from_static("brigade-output-start");
const ENDED: HeaderName = HeaderName::from_static("brigade-output-ended");
const DROPPED: HeaderName = HeaderName::from_static("brigade-output-dropped");

/// The size of the pieces in which a whole output is sent.
const PIECE_BYTES: usize = 256 * 1024;
const JSON_BYTES: usize = 256 * 1024;
/// A page has at least the bytes of some characters.
const JSON_BYTES_MIN: usize = 16;
const MATCHES: usize = 100;
const MATCHES_MAX: usize = 10_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OutputQuery {
    #[param(inline)]
    stream: StreamQuery,
    /// An earlier run; the latest by default.
    run: Option<u32>,
    /// Selects the last bytes, at most 4 MiB.
    #[param(maximum = 4_194_304)]
    tail: Option<u64>,
    /// For JSON, the position to read from.
    from: Option<u64>,
    /// For JSON, the most bytes of a page, from 16 to 4 MiB; 256 KiB by default.
    #[param(minimum = 16, maximum = 4_194_304)]
    limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StreamQuery {
    Stdout,
    Stderr,
    /// Both, in the order of their output.
    #[default]
    Combined,
}

impl From<StreamQuery> for StreamSelection {
    fn from(stream: StreamQuery) -> Self {
        match stream {
            StreamQuery::Stdout => Self::Stdout,
            StreamQuery::Stderr => Self::Stderr,
            StreamQuery::Combined => Self::Combined,
        }
    }
}

/// Read the output of a process
///
/// Positions count all bytes that were written, also those that are no longer stored. Without a range
/// the answer has all stored bytes. `Range: bytes=A-B` gets at most 4 MiB that are stored without a
/// gap, and skips a gap before them; `Content-Range` has their positions. The headers
/// `Brigade-Output-Start`, `-Next`, `-Total`, `-Ended` and, for a part, `-Dropped` tell the positions,
/// whether more output may follow, and the bytes that are no longer stored. With
/// `Accept: application/json` the answer is a page that tells the streams apart.
#[utoipa::path(
    get, path = "/v1/tasks/{task}/output", tag = "output",
    params(("task" = TaskId, Path), OutputQuery, ("range" = Option<String>, Header)),
    responses(
        (status = 200, description = "The output", content(
            (OutputBytesBody = "application/octet-stream"), (OutputPageBody = "application/json")
        )),
        (status = 206, description = "A part of it", body = OutputBytesBody,
            content_type = "application/octet-stream"),
        Problem
    )
)]
pub(super) async fn read_output(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<OutputQuery>,
    RangeHeader(range): RangeHeader,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found: LocatedTask = match query.run {
        Some(run) => caller.run(id, RunNo(run)).await?,
        None => caller.task(id).await?,
    };
    let output = found.session.task_output(found.task_ref()).await?;
    let view = OutputView::from(StreamSelection::from(query.stream));
    if query.tail.is_some_and(|bytes| bytes > PAGE_BYTES_MAX as u64) {
        return Err(Refusal::invalid(format!("a tail has at most {PAGE_BYTES_MAX} bytes")).into());
    }
    if accepts_json(&headers) {
        return read_json(output, view, &query).await;
    }
    if query.from.is_some() || query.limit.is_some() {
        let text = "`from` and `limit` are for Accept: application/json; send Range for bytes";
        return Err(Refusal::invalid(text).into());
    }
    match (query.tail, range) {
        (Some(bytes), _) => read_tail(output, view, bytes).await,
        (None, Some(range)) => read_range(output, view, range).await,
        (None, None) => read_whole(output, view).await,
    }
}

async fn read_json(
    output: TaskOutput,
    view: OutputView,
    query: &OutputQuery,
) -> Result<Response, Problem> {
    let start = match (query.from, query.tail) {
        (Some(_), Some(_)) => return Err(Refusal::invalid("pass `from` or `tail`").into()),
        (_, Some(bytes)) => ReadStart::FromEnd(bytes),
        (from, None) => ReadStart::At(from.unwrap_or(0)),
    };
    let max_bytes = query.limit.unwrap_or(JSON_BYTES);
    if !(JSON_BYTES_MIN..=PAGE_BYTES_MAX).contains(&max_bytes) {
        let text = format!("the limit is {JSON_BYTES_MIN} to {PAGE_BYTES_MAX}");
        return Err(Refusal::invalid(text).into());
    }
    let page = output.read(OutputRead { view, start, max_bytes }).await?;
    Ok(JsonBody(OutputPageBody::of(page)).into_response())
}

/// Answers with the last bytes, without those that are no longer stored.
async fn read_tail(output: TaskOutput, view: OutputView, bytes: u64) -> Result<Response, Problem> {
    let read = OutputRead { view, start: ReadStart::FromEnd(bytes), max_bytes: PAGE_BYTES_MAX };
    let page = output.read(read).await?;
    let dropped = page.pieces.iter().map(|piece| match piece {
        PagePiece::Dropped { bytes } => *bytes,
        PagePiece::Bytes { .. } => 0,
    });
    let part = OutputPart { start: page.from, dropped: Some(dropped.sum()) };
    let headers = part.headers(&page);
    Ok((headers, join_bytes(page)).into_response())
}

/// Answers with a part of the output that has no gap.
async fn read_range(
    output: TaskOutput,
    view: OutputView,
    range: ByteRange,
) -> Result<Response, Problem> {
    let (start, last) = match range {
        ByteRange::From { first, last } => (ReadStart::At(first), last),
        ByteRange::Suffix(bytes) => (ReadStart::FromEnd(bytes), None),
    };
    let wanted = match range {
        ByteRange::From { first, last: Some(last) } => last.saturating_sub(first).saturating_add(1),
        ByteRange::From { last: None, .. } | ByteRange::Suffix(_) => u64::MAX,
    };
    let max_bytes = usize::try_from(wanted).unwrap_or(usize::MAX).min(PAGE_BYTES_MAX);
    let mut page = output.read(OutputRead { view, start, max_bytes }).await?;
    let part = OutputPart::without_gap(&mut page, last);
    let headers = part.headers(&page);
    let total = page.total;
    let is_final = page.ended;
    let body = join_bytes(page);
    if body.is_empty() {
        let refusal = Refusal::invalid(format!("the range has no output: {total} bytes so far"));
        let problem = Problem::with_status(StatusCode::RANGE_NOT_SATISFIABLE, refusal);
        let range = [(CONTENT_RANGE, header_value(&format!("bytes */{total}")))];
        return Ok((range, headers_without_kind(headers), problem).into_response());
    }
    let end = part.start + body.len() as u64 - 1;
    // The length of an output that still grows is unknown.
    let length = if is_final { total.to_string() } else { "*".to_owned() };
    let range = header_value(&format!("bytes {}-{end}/{length}", part.start));
    Ok((StatusCode::PARTIAL_CONTENT, headers, [(CONTENT_RANGE, range)], body).into_response())
}

/// Answers with all stored bytes up to the present end.
async fn read_whole(output: TaskOutput, view: OutputView) -> Result<Response, Problem> {
    let read = OutputRead { view, start: ReadStart::At(0), max_bytes: PIECE_BYTES };
    let first = output.read(read).await?;
    let total = first.total;
    let mut headers = OutputPart { start: first.from, dropped: None }.headers(&first);
    headers.insert(NEXT, total.into());
    let rest = WholeOutput { output, view, next: first.next, total };
    let first = join_bytes(first);
    let pieces = stream::once(async { Ok(first) });
    let pieces = futures_util::StreamExt::chain(pieces, rest.pieces());
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// The part of an output that was not read yet.
struct WholeOutput {
    output: TaskOutput,
    view: OutputView,
    next: u64,
    total: u64,
}

impl WholeOutput {
    /// Returns the bytes up to the total. A failure ends the body early, which a client sees.
    fn pieces(self) -> impl stream::Stream<Item = Result<Bytes, Refusal>> {
        stream::try_unfold(self, |mut rest| async move {
            if rest.next >= rest.total {
                return Ok(None);
            }
            let remaining = usize::try_from(rest.total - rest.next).unwrap_or(usize::MAX);
            let read = OutputRead {
                view: rest.view,
                start: ReadStart::At(rest.next),
                max_bytes: remaining.min(PIECE_BYTES),
            };
            let page = rest.output.read(read).await?;
            if page.next <= rest.next {
                return Ok(None);
            }
            rest.next = page.next;
            Ok(Some((join_bytes(page), rest)))
        })
    }
}

/// The positions of an answer.
struct OutputPart {
    start: u64,
    /// The bytes that are no longer stored; `None` if they are not counted.
    dropped: Option<u64>,
}

impl OutputPart {
    /// Reduces a page to its first bytes without a gap, and not after this position.
    fn without_gap(page: &mut ViewPage, last: Option<u64>) -> Self {
        let mut part = Self { start: page.from, dropped: Some(0) };
        let mut kept = Vec::new();
        let mut next = page.from;
        for piece in std::mem::take(&mut page.pieces) {
            match piece {
                PagePiece::Dropped { bytes } if kept.is_empty() => {
                    next += bytes;
                    part = Self { start: next, dropped: Some(next - page.from) };
                }
                PagePiece::Dropped { .. } => break,
                PagePiece::Bytes { stream, at, mut bytes } => {
                    let room =
                        last.map_or(u64::MAX, |last| last.saturating_add(1).saturating_sub(next));
                    bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
                    next += bytes.len() as u64;
                    kept.push(PagePiece::Bytes { stream, at, bytes });
                }
            }
        }
        page.ended = page.ended && next == page.next;
        page.next = next;
        page.pieces = kept;
        part
    }

    fn headers(&self, page: &ViewPage) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(START, self.start.into());
        headers.insert(NEXT, page.next.into());
        headers.insert(TOTAL, page.total.into());
        let ended = if page.ended { "true" } else { "false" };
        headers.insert(ENDED, HeaderValue::from_static(ended));
        if let Some(dropped) = self.dropped {
            headers.insert(DROPPED, dropped.into());
        }
        headers
    }
}

fn headers_without_kind(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(CONTENT_TYPE);
    headers
}

fn join_bytes(page: ViewPage) -> Bytes {
    let mut all = Vec::new();
    for piece in page.pieces {
        match piece {
            PagePiece::Bytes { bytes, .. } if all.is_empty() => all = bytes,
            PagePiece::Bytes { bytes, .. } => all.extend(bytes),
            PagePiece::Dropped { .. } => {}
        }
    }
    all.into()
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Returns true if the client names JSON. Bytes are for all others.
fn accepts_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(','));
    kinds.any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SearchQuery {
    /// A regular expression.
    pattern: String,
    #[serde(default)]
    #[param(inline)]
    stream: StreamQuery,
    #[serde(default)]
    ignore_case: bool,
    /// The number of lines, from 1 to 10000; 100 by default.
    #[param(minimum = 1, maximum = 10_000)]
    #[serde(default)]
    limit: Option<usize>,
    /// `next_page` of the search before.
    #[serde(default)]
    page: Option<String>,
}

/// Find lines in the output of a process, or in the transcript of an agent
///
/// One request searches at most 256 MiB and for some seconds. With `has_more`, `next_page` goes on.
#[utoipa::path(
    get, path = "/v1/tasks/{task}/output/search", tag = "output",
    params(("task" = TaskId, Path), SearchQuery),
    responses((status = 200, description = "The lines", body = OutputSearchBody), Problem)
)]
pub(super) async fn search_output(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<SearchQuery>,
) -> Result<JsonBody<OutputSearchBody>, Problem> {
    let max_matches = query.limit.unwrap_or(MATCHES);
    if !(1..=MATCHES_MAX).contains(&max_matches) {
        return Err(Refusal::invalid(format!("the limit is 1 to {MATCHES_MAX}")).into());
    }
    let wrong = |_| Refusal::invalid("this is not a page; pass `next_page` as it was received");
    let context = caller.reader_of(id).await?;
    let search = SearchOutputRequest {
        target: target_of(id.no),
        streams: query.stream.into(),
        pattern: query.pattern,
        ignore_case: query.ignore_case,
        max_matches,
        from: query.page.as_deref().map(str::parse).transpose().map_err(wrong)?,
    };
    Ok(JsonBody(context.call(search).await?.into()))
}
