//! Pages of tasks.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use a2a::{A2AError, ListTasksRequest, ListTasksResponse, TaskState};
use brigade_model::ids::{Owner, TaskNo, Time};
use brigade_model::refusal::Refusal;
use brigade_runtime::PendingApproval;
use brigade_store::{TaskOrder, TaskQuery};

use super::agent_call::{AgentCall, TaskForm};
use super::protocol_error::error_of;
use super::task_history::history_length;
use super::task_status::{TaskFacts, changed_at};
use super::update_stream::to_value;
use crate::request_context::LocatedTask;

const PAGE_DEFAULT: i32 = 50;
const PAGE_MAX: i32 = 100;
/// The number of tasks that are read at once.
const TASKS_READ: usize = 500;
/// The size of the tasks after which a page is complete. The next page continues after the last one.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The place of a task in a list: the task that changed last comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListPlace {
    changed_at: Reverse<Time>,
    no: Reverse<TaskNo>,
}

impl ListPlace {
    fn parse(token: &str) -> Option<Self> {
        let (time, no) = token.split_once('.')?;
        let no = TaskNo::new(no.parse().ok()?)?;
        Some(Self { changed_at: Reverse(Time(time.parse().ok()?)), no: Reverse(no) })
    }

    fn token(self) -> String {
        format!("{}.{}", self.changed_at.0.0, self.no.0)
    }
}

/// The tasks of one page, from all that were asked for.
struct FoundTasks {
    /// The number of tasks on all pages.
    total_size: usize,
    /// The first tasks of the page, and one more if there is another page.
    first: BTreeMap<ListPlace, LocatedTask>,
}

impl AgentCall {
    /// Lists the caller's tasks of this agent.
    pub(crate) async fn list(
        &self,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse, A2AError> {
        let page_size = request.page_size.unwrap_or(PAGE_DEFAULT);
        if !(1..=PAGE_MAX).contains(&page_size) {
            let text = format!("`pageSize` is 1 to {PAGE_MAX}");
            return Err(A2AError::invalid_params(text));
        }
        let token = request.page_token.as_deref().filter(|token| !token.is_empty());
        let wrong = || A2AError::invalid_params("`pageToken` is not one of a page");
        let after = match token {
            Some(token) => Some(ListPlace::parse(token).ok_or_else(wrong)?),
            None => None,
        };
        // A list has no messages unless they are asked for.
        let history_length = history_length(Some(request.history_length.unwrap_or(0)));
        let form = TaskForm {
            history_length: history_length.map_err(|refusal| error_of(&refusal))?,
            with_artifacts: request.include_artifacts.unwrap_or(false),
        };
        let limit = usize::try_from(page_size).unwrap_or_default();
        let found = self.find_page(&request, after, limit).await;
        let FoundTasks { total_size, first } = found.map_err(|refusal| error_of(&refusal))?;
        let total_size = i32::try_from(total_size).unwrap_or(i32::MAX);
        let count = first.len();
        let mut tasks = Vec::with_capacity(count.min(limit));
        let mut bytes = 0;
        let mut last = None;
        for (place, found) in first.into_iter().take(limit) {
            let task = self.describe(&found, form).await.map_err(|refusal| error_of(&refusal))?;
            tasks.push(task);
            last = Some(place);
            bytes += tasks.last().map_or(0, |task| to_value(task).to_string().len());
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
        }
        let last = last.filter(|_| tasks.len() < count);
        let next_page_token = last.map(ListPlace::token).unwrap_or_default();
        Ok(ListTasksResponse { tasks, next_page_token, page_size, total_size })
    }

    /// Finds the first tasks after a place. Reads all tasks of the session in parts: the order of a
    /// list is that of changes, which the store does not have.
    async fn find_page(
        &self,
        request: &ListTasksRequest,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<FoundTasks, Refusal> {
        let approvals = self.session.approvals();
        let mut found = FoundTasks { total_size: 0, first: BTreeMap::new() };
        let mut query = TaskQuery {
            owner: Some(Owner::Session),
            order: TaskOrder::NewestFirst,
            limit: TASKS_READ,
            ..TaskQuery::default()
        };
        loop {
            let stored = self.session.history(&query).await?;
            let is_last = stored.len() < TASKS_READ;
            query.after = stored.last().map(|task| task.no);
            for task in stored.into_iter().filter(|task| self.is_own(&task.row)) {
                let session = self.session.clone();
                let task = LocatedTask { session, no: task.no, run: None, row: task.row };
                if !is_wanted(request, &task, &approvals) {
                    continue;
                }
                found.total_size += 1;
                let changed_at = Reverse(changed_at(&task.row));
                let place = ListPlace { changed_at, no: Reverse(task.no) };
                if after.is_none_or(|after| place > after) {
                    found.first.insert(place, task);
                }
                if found.first.len() > limit + 1 {
                    found.first.pop_last();
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }
}

fn is_wanted(
    request: &ListTasksRequest,
    task: &LocatedTask,
    approvals: &[PendingApproval],
) -> bool {
    let facts = TaskFacts::of(task, approvals);
    let context = request.context_id.as_deref().filter(|id| !id.is_empty());
    let state = request.status.as_ref().filter(|state| **state != TaskState::Unspecified);
    let since = request.status_timestamp_after.map(|time| time.timestamp_millis());
    let at = changed_at(&task.row);
    context.is_none_or(|context| facts.context_id == context)
        && state.is_none_or(|state| facts.state(&task.row) == *state)
        && since.is_none_or(|since| i64::try_from(at.0).is_ok_and(|at| at > since))
}
