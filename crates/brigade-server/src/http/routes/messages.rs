//! `/v1/tasks/{task}/messages`, `/v1/sessions/{session}/messages/{number}`: messages and receipts.

use brigade_model::ids::MessageNo;
use brigade_model::json::Json;
use brigade_model::name::IdempotencyKey;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{MessageBody, MessageListBody, MessageRequestBody, SentBody, TaskId};
use brigade_protocol::requests::SendRequest;
use brigade_store::MessageQuery;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, ApiQuery, JsonBody};
use crate::http::path_target::target_of;
use crate::http::problem::Problem;
use crate::http::request_headers::IdempotencyHeader;
use crate::request_context::RequestContext;

const PAGE_MESSAGES: usize = 100;
const PAGE_MESSAGES_MAX: usize = 1_000;
/// The number of stored messages that one page reads at most. A page may then be short or empty and
/// have a next one.
const READ_MESSAGES_MAX: usize = 5_000;

/// Send a message to a task
///
/// `Idempotency-Key` is the key of the message: the same message is accepted once, and another one
/// with the same key is a conflict.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/messages", tag = "messages", request_body = MessageRequestBody,
    params(
        ("task" = TaskId, Path),
        ("idempotency-key" = Option<String>, Header, min_length = 1)
    ),
    responses((status = 202, description = "The messages are accepted", body = SentBody), Problem)
)]
pub(super) async fn send_message(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    IdempotencyHeader(key): IdempotencyHeader,
    JsonBody(request): JsonBody<MessageRequestBody>,
) -> Result<(StatusCode, JsonBody<SentBody>), Problem> {
    let context = caller.writer_of(id).await?;
    let numbers = send_all(&context, id, request, key).await?;
    Ok((StatusCode::ACCEPTED, JsonBody(SentBody { numbers })))
}

async fn send_all(
    context: &RequestContext,
    id: TaskId,
    request: MessageRequestBody,
    key: Option<String>,
) -> Result<Vec<u64>, Refusal> {
    let MessageRequestBody { body, name, interrupt, close_input } = request;
    let has_body = body.is_some();
    // The end of the input is a message of its own. Both keys are checked before the first is used.
    let close_key = key.as_ref().map(|key| match has_body {
        true => format!("{key}#close"),
        false => key.clone(),
    });
    if let Some(key) = close_key.as_ref().filter(|_| close_input) {
        key.parse::<IdempotencyKey>()?;
    }
    let mut numbers = Vec::new();
    // A request without any part is refused as the handler does.
    if has_body || !close_input {
        let target = target_of(id.no);
        let name = name.clone();
        let mut send = SendRequest::new(target, Json::null());
        send.message = body;
        send.interrupt = interrupt;
        send.key = key;
        send.name = name;
        numbers.extend(context.call(send).await?);
    }
    if close_input {
        let key = close_key;
        let name = name.filter(|_| !has_body);
        let close =
            SendRequest { key, name, interrupt, ..SendRequest::new_close(target_of(id.no)) };
        numbers.extend(context.call(close).await?);
    }
    Ok(numbers)
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MessageFilter {
    /// The number of messages, from 1 to 1000; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_page` of the page before.
    page: Option<String>,
}

/// List the messages to and from a task, the newest last
#[utoipa::path(
    get, path = "/v1/tasks/{task}/messages", tag = "messages",
    params(("task" = TaskId, Path), MessageFilter),
    responses((status = 200, description = "A page of messages", body = MessageListBody), Problem)
)]
pub(super) async fn list_messages(
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    ApiQuery(filter): ApiQuery<MessageFilter>,
) -> Result<JsonBody<MessageListBody>, Problem> {
    let found = caller.task(id).await?;
    let limit = filter.limit.unwrap_or(PAGE_MESSAGES);
    if !(1..=PAGE_MESSAGES_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!("the limit is 1 to {PAGE_MESSAGES_MAX}")).into());
    }
    let wrong = || Refusal::invalid("this is not a page; pass `next_page` as it was received");
    let before = filter.page.as_deref().map(str::parse::<u64>).transpose();
    let query = MessageQuery {
        task: found.no,
        before: before.map_err(|_| wrong())?.map(MessageNo),
        limit,
        read_limit: READ_MESSAGES_MAX,
    };
    let page = found.session.messages(&query).await?;
    let items = page.items.iter().rev().map(|row| MessageBody::of(id.session, row)).collect();
    let next_page = page.next.map(|next| next.to_string());
    Ok(JsonBody(MessageListBody { items, next_page }))
}

#[derive(Debug, Deserialize)]
pub(super) struct MessagePath {
    session: String,
    number: u64,
}

/// Show a message and its receipt
#[utoipa::path(
    get, path = "/v1/sessions/{session}/messages/{number}", tag = "messages",
    params(("session" = String, Path), ("number" = u64, Path)),
    responses((status = 200, description = "The message", body = MessageBody), Problem)
)]
pub(super) async fn show_message(
    caller: HttpCaller,
    ApiPath(path): ApiPath<MessagePath>,
) -> Result<JsonBody<MessageBody>, Problem> {
    let session = caller.session(&path.session).await?;
    let number = path.number;
    let row = session.receipt(MessageNo(number)).await?;
    let missing = || Refusal::not_found(format!("there is no message {number}"));
    let row = row.ok_or_else(missing)?;
    Ok(JsonBody(MessageBody::of(session.id(), &row)))
}
