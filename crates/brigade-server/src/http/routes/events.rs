//! `/v1/events`, `/v1/sessions/{session}/events`, `/v1/tasks/{task}/events`: the feed of changes.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{ChangeListBody, TaskId};
use brigade_runtime::FeedUpdate;
use http::header::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use super::HttpState;
use crate::http::caller::HttpCaller;
use crate::http::change_feed::{ChangeFeed, ChangeScope, ChangeSelection, TaskScope, parse_types};
use crate::http::extract::{ApiPath, ApiQuery, JsonBody};
use crate::http::problem::Problem;
use crate::http::server_sent_events::{follow, last_event_id, wants_stream};
use crate::http::store_cursor::StoreCursor;

const PAGE_ITEMS: u32 = 100;
const PAGE_ITEMS_MAX: u32 = 1000;
/// The time for which one page searches for changes.
const PAGE_TIME: Duration = Duration::from_secs(2);

/// Selects changes.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeFilter {
    /// The place after which to read: a cursor. Without it, a stream starts now, and a page with the
    /// oldest change that is stored.
    after: Option<String>,
    /// The types of changes, separated by commas.
    types: Option<String>,
    /// Adds the task as it is now to each change that concerns one.
    rows: bool,
    /// The size of a page, at most 1000. A stream has no pages.
    limit: Option<u32>,
}

/// Selects changes of a task.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TaskChangeFilter {
    /// The place after which to read: a cursor. Without it, a stream starts now, and a page with the
    /// oldest change that is stored.
    after: Option<String>,
    /// The types of changes, separated by commas.
    types: Option<String>,
    /// Adds the task as it is now to each change that concerns one.
    rows: bool,
    /// The size of a page, at most 1000. A stream has no pages.
    limit: Option<u32>,
    /// Includes the descendants of the task.
    subtree: bool,
}

impl TaskChangeFilter {
    fn changes(self) -> ChangeFilter {
        let Self { after, types, rows, limit, .. } = self;
        ChangeFilter { after, types, rows, limit }
    }
}

/// A request for changes.
struct ChangeRequest {
    state: HttpState,
    caller: HttpCaller,
    headers: HeaderMap,
}

/// Follow all changes
///
/// With `Accept: text/event-stream` a stream of server-sent events: `cursor` is the first and has the
/// place at which the stream starts. Each `change` has a Change, and its place as id. After `gap`,
/// which stands for changes that are no longer stored, list again. `heartbeat` comes every 15
/// seconds, `too_slow` before the server closes the connection of a slow reader, `bye` before it
/// shuts down, and `error`, with a Problem, before any other end. `Last-Event-ID` or `after` resumes
/// without a gap or a repeat.
///
/// Otherwise a page of changes.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", params(ChangeFilter),
    responses(
        (status = 200, description = "A page of changes, or a stream", content(
            (ChangeListBody = "application/json"), (String = "text/event-stream")
        )),
        Problem
    )
)]
pub(super) async fn follow_events(
    State(state): State<HttpState>,
    caller: HttpCaller,
    headers: HeaderMap,
    ApiQuery(filter): ApiQuery<ChangeFilter>,
) -> Result<Response, Problem> {
    ChangeRequest { state, caller, headers }.answer(ChangeScope::All, filter).await
}

/// Follow the changes of a session
///
/// A page or a stream, as of all changes.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/events", tag = "events",
    params(("session" = String, Path), ChangeFilter),
    responses(
        (status = 200, description = "A page of changes, or a stream", content(
            (ChangeListBody = "application/json"), (String = "text/event-stream")
        )),
        Problem
    )
)]
pub(super) async fn follow_session_events(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
    ApiQuery(filter): ApiQuery<ChangeFilter>,
) -> Result<Response, Problem> {
    let scope = ChangeScope::Session(caller.session(&id).await?);
    ChangeRequest { state, caller, headers }.answer(scope, filter).await
}

/// Follow the changes of a task
///
/// A page or a stream, as of all changes. The stream does not end with the task, which may be
/// resumed.
#[utoipa::path(
    get, path = "/v1/tasks/{task}/events", tag = "events",
    params(("task" = TaskId, Path), TaskChangeFilter),
    responses(
        (status = 200, description = "A page of changes, or a stream", content(
            (ChangeListBody = "application/json"), (String = "text/event-stream")
        )),
        Problem
    )
)]
pub(super) async fn follow_task_events(
    State(state): State<HttpState>,
    caller: HttpCaller,
    ApiPath(id): ApiPath<TaskId>,
    headers: HeaderMap,
    ApiQuery(filter): ApiQuery<TaskChangeFilter>,
) -> Result<Response, Problem> {
    let found = caller.task(id).await?;
    let scope = TaskScope::new(found.session, found.no, filter.subtree);
    let request = ChangeRequest { state, caller, headers };
    request.answer(ChangeScope::Task(scope), filter.changes()).await
}

impl ChangeRequest {
    async fn answer(self, scope: ChangeScope, filter: ChangeFilter) -> Result<Response, Problem> {
        let after = self.start(&filter)?;
        let types = filter.types.as_deref().map(parse_types).transpose()?;
        let selection = ChangeSelection { scope, types, with_rows: filter.rows };
        if wants_stream(&self.headers) {
            let after = after.unwrap_or_else(|| self.state.daemon.runtime.cursor());
            let feed = ChangeFeed::open(&self.state, &self.caller, selection, after).await?;
            return Ok(follow(&self.state, &self.caller, feed));
        }
        let limit = filter.limit.unwrap_or(PAGE_ITEMS);
        if !(1..=PAGE_ITEMS_MAX).contains(&limit) {
            let text = format!("the limit of a page is 1 to {PAGE_ITEMS_MAX}");
            return Err(Refusal::invalid(text).into());
        }
        let after = after.unwrap_or(FeedCursor::START);
        let feed = ChangeFeed::open(&self.state, &self.caller, selection, after).await?;
        let end = self.state.daemon.runtime.cursor();
        Ok(JsonBody(read_page(feed, end, limit as usize).await?).into_response())
    }

    /// Returns the place after which to read, if the request has a cursor. The header is newer
    /// than the address that a browser connects to again.
    fn start(&self, filter: &ChangeFilter) -> Result<Option<FeedCursor>, Refusal> {
        let text = last_event_id(&self.headers)?.or(filter.after.as_deref());
        let Some(text) = text else { return Ok(None) };
        let cursor: StoreCursor = text.parse()?;
        let daemon = &self.state.daemon;
        cursor.place_in(daemon.store_id, &daemon.runtime.cursor()).map(Some)
    }
}

/// Reads up to this many changes, and not beyond the end.
async fn read_page(
    mut feed: ChangeFeed,
    end: FeedCursor,
    limit: usize,
) -> Result<ChangeListBody, Refusal> {
    let started_at = Instant::now();
    let mut items = Vec::new();
    let mut gap = false;
    let mut has_more = true;
    while items.len() < limit && started_at.elapsed() < PAGE_TIME {
        // A store in memory never waits.
        tokio::task::consume_budget().await;
        match feed.next_until(&end).await? {
            Some(FeedUpdate::Event(item)) => {
                items.extend(feed.select(&item).await);
            }
            Some(FeedUpdate::Gap { .. }) => gap = true,
            Some(_) => {}
            None => {
                has_more = false;
                break;
            }
        }
    }
    let place = feed.place();
    has_more &= !place.cursor.includes_all(&end);
    Ok(ChangeListBody { items, cursor: place.to_string(), has_more, gap })
}
