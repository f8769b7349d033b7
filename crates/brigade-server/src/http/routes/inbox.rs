//! `/v1/sessions/{session}/inbox`: messages of top-level tasks to the client that started them.

use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{InboxBody, InboxItemBody, ReadRequestBody, ReceiptBody, TaskId};
use brigade_protocol::requests::{InboxItem, InboxRequest};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery, JsonBody};
use crate::http::problem::Problem;

const NUMBERS_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct InboxFilter {
    /// Selects messages of this task.
    from: Option<TaskId>,
    /// Selects messages with a higher number.
    after: u64,
    /// Omits questions, which stay in the inbox until they are answered.
    notes_only: bool,
    /// Includes read messages that are still stored.
    include_read: bool,
}

/// List the messages for this client, the oldest first
///
/// A client sees messages of the tasks that it started, the operator all. Nothing is marked as read.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/inbox", tag = "messages",
    params(("session" = String, Path), InboxFilter),
    responses((status = 200, description = "The messages", body = InboxBody), Problem)
)]
pub(super) async fn read_inbox(
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    ApiQuery(filter): ApiQuery<InboxFilter>,
) -> Result<JsonBody<InboxBody>, Problem> {
    let session = caller.session(&id).await?;
    if filter.from.is_some_and(|task| task.session != session.id()) {
        return Err(Refusal::invalid("the task is of another session").into());
    }
    let request = InboxRequest {
        from: filter.from.map(|task| task.no.to_string()),
        after: filter.after,
        notes_only: filter.notes_only,
        include_read: filter.include_read,
        ..InboxRequest::default()
    };
    let items = caller.reader().in_session(session.id()).call(request).await?;
    Ok(JsonBody(new_body(items)))
}

/// Mark messages as read
///
/// The answer has the messages that this request marked. Others were read before, or are not for
/// this client.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/inbox/read", tag = "messages",
    params(("session" = String, Path)), request_body = ReadRequestBody,
    responses((status = 200, description = "The marked messages", body = InboxBody), Problem)
)]
pub(super) async fn mark_read(
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    JsonBody(request): JsonBody<ReadRequestBody>,
) -> Result<JsonBody<InboxBody>, Problem> {
    let context = caller.writer()?;
    let session = caller.session(&id).await?;
    let ReadRequestBody { numbers } = request;
    if !(1..=NUMBERS_MAX).contains(&numbers.len()) {
        return Err(Refusal::invalid(format!("name 1 to {NUMBERS_MAX} messages")).into());
    }
    let request = InboxRequest { numbers, mark_read: true, ..InboxRequest::default() };
    let items = context.in_session(session.id()).call(request).await?;
    Ok(JsonBody(new_body(items)))
}

fn new_body(items: Vec<InboxItem>) -> InboxBody {
    let items = items.into_iter().map(|item| InboxItemBody {
        number: item.number,
        from: item.from,
        name: item.name,
        text: item.text,
        sent_at: Time(item.sent_at).into(),
        receipt: ReceiptBody::of(&item.receipt),
        question: item.question,
    });
    InboxBody { items: items.collect() }
}
