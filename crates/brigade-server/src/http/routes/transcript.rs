//! `/v1/tasks/{task}/transcript`: what an agent was told, said and did.

use axum::response::{IntoResponse, Response};
use brigade_agent::transcript_page::{TranscriptPage, TranscriptPlace};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{TaskId, TranscriptBody, TranscriptItemBody};
use brigade_protocol::requests::{self, ReadTranscriptRequest};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::output::{NEXT, TOTAL};
use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery, JsonBody};
use crate::http::path_target::target_of;
use crate::http::problem::Problem;

const PAGE_ITEMS: usize = 100;
const PAGE_ITEMS_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TranscriptQuery {
    #[param(inline)]
    format: TranscriptFormat,
    /// The number of items, from 1 to 1000; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_page` of the page before.
    page: Option<String>,
    /// The position to read text from, in bytes.
    from: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum TranscriptFormat {
    #[default]
    Json,
    Text,
}

/// Read the transcript of an agent
///
/// With `format=text` it is text from the position `from` on, at most 4 MiB. The headers
/// `Brigade-Output-Next` and `Brigade-Output-Total` have the next position and the length.
#[utoipa::path(
    get, path = "/v1/tasks/{task}/transcript", tag = "output",
    params(("task" = TaskId, Path), TranscriptQuery),
    responses(
        (status = 200, description = "A page of the transcript", content(
            (TranscriptBody = "application/json"), (String = "text/plain")
        )),
        Problem
    )
)]
pub(super) async fn read_transcript(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(query): ApiQuery<TranscriptQuery>,
) -> Result<Response, Problem> {
    match query.format {
        TranscriptFormat::Text => read_text(&caller, id, query.from).await,
        TranscriptFormat::Json => read_items(&caller, id, &query).await,
    }
}

async fn read_text(caller: &HttpCaller, id: TaskId, from: u64) -> Result<Response, Problem> {
    let context = caller.reader_of(id).await?;
    let target = target_of(id.no);
    let page = context.call(ReadTranscriptRequest { target, from, max_bytes: None }).await?;
    let requests::TranscriptPage { text, next, total } = page.ok_or_else(no_transcript)?;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    let headers = [(CONTENT_TYPE, kind), (NEXT, next.into()), (TOTAL, total.into())];
    Ok((headers, text).into_response())
}

async fn read_items(
    caller: &HttpCaller,
    id: TaskId,
    query: &TranscriptQuery,
) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(PAGE_ITEMS);
    if !(1..=PAGE_ITEMS_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!("the limit is 1 to {PAGE_ITEMS_MAX}")).into());
    }
    let wrong = |_| Refusal::invalid("this is not a page; pass `next_page` as it was received");
    let start: Option<TranscriptPlace> =
        query.page.as_deref().map(str::parse).transpose().map_err(wrong)?;
    let found = caller.task(id).await?;
    let page = found.session.transcript_page(found.task_ref(), start, limit).await?;
    let TranscriptPage { first_index, items, next } = page.ok_or_else(no_transcript)?;
    let next_page = next.map(|next| next.to_string());
    let items = items.into_iter().zip(first_index..);
    let items = items.map(|(item, index)| TranscriptItemBody::of(index, item)).collect();
    Ok(JsonBody(TranscriptBody { items, next_page }).into_response())
}

fn no_transcript() -> Refusal {
    Refusal::invalid("only an agent has a transcript")
}
