//! `list_tasks`: lists the tasks of one session or of all.

use brigade_model::ids::TaskNo;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ListTasksRequest;
use brigade_protocol::task_info::TaskInfo;
use brigade_runtime::Session;
use brigade_store::TaskQuery;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// The maximum number of tasks in one reply, so that it fits a line.
/// [`super::ListTaskPagesRequest`] has no such limit.
const LISTED_TASKS_MAX: usize = 10_000;

/// The number of tasks that are read and sent together.
const TASKS_PER_PAGE: usize = 250;

impl RequestHandler for ListTasksRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<TaskInfo>, Refusal> {
        let mut found = Vec::new();
        let mut pages = TaskPages::new(self, context).await?;
        while let Some(page) = pages.next_page().await? {
            found.extend(page);
            if found.len() > LISTED_TASKS_MAX {
                return Err(Refusal::limit(format!(
                    "there are more than {LISTED_TASKS_MAX} tasks, too many for one reply; limit them: \
                     `brigade ps --newest 100`"
                )));
            }
        }
        Ok(found)
    }
}

fn new_list_item(
    context: &RequestContext,
    session: &SessionName,
    no: TaskNo,
    row: &TaskRow,
) -> TaskInfo {
    let conversation = context.describe_conversation(row);
    TaskInfo { conversation, ..TaskInfo::for_list(session, no, row) }
}

/// The tasks of a [`ListTasksRequest`], read in pages.
pub(super) struct TaskPages<'a> {
    request: ListTasksRequest,
    context: &'a RequestContext,
    /// The sessions that are not read yet, in reverse order.
    sessions: Vec<Session>,
    /// The number of the last task that was read of the last session in `sessions`.
    after: Option<TaskNo>,
    /// The newest tasks, newest last, if the request has a limit.
    newest_tasks: Option<std::vec::IntoIter<TaskInfo>>,
}

impl<'a> TaskPages<'a> {
    pub(super) async fn new(
        list: ListTasksRequest,
        context: &'a RequestContext,
    ) -> Result<Self, Refusal> {
        let mut sessions = context.sessions(list.session.as_deref()).await?;
        if list.include_ended && list.session.is_none() {
            sessions.extend(context.closed_sessions().await?);
        }
        sessions.reverse();
        let mut pages = Self { request: list, context, sessions, after: None, newest_tasks: None };
        if let Some(limit) = pages.request.limit {
            pages.newest_tasks = Some(pages.read_newest(limit).await?.into_iter());
        }
        Ok(pages)
    }

    /// Returns the next tasks, at least one; `None` at the end.
    pub(super) async fn next_page(&mut self) -> Result<Option<Vec<TaskInfo>>, Refusal> {
        if let Some(newest) = &mut self.newest_tasks {
            let page: Vec<TaskInfo> = newest.take(TASKS_PER_PAGE).collect();
            return Ok(Some(page).filter(|page| !page.is_empty()));
        }
        while let Some(session) = self.sessions.last() {
            let page = self.read_page(session, self.after).await?;
            if let Some((last, _)) = page.last() {
                self.after = Some(*last);
                return Ok(Some(page.into_iter().map(|(_, task)| task).collect()));
            }
            self.after = None;
            self.sessions.pop();
        }
        Ok(None)
    }

    /// Reads the newest tasks of all sessions. Each session may have some of them.
    async fn read_newest(&mut self, limit: usize) -> Result<Vec<TaskInfo>, Refusal> {
        let several = self.sessions.len() > 1;
        let mut found: Vec<TaskInfo> = Vec::new();
        while let Some(session) = self.sessions.pop() {
            let mut after =
                if self.request.include_ended { newest_offset(&session, limit) } else { None };
            loop {
                let page = self.read_page(&session, after).await?;
                let Some((last, _)) = page.last() else { break };
                after = Some(*last);
                found.extend(page.into_iter().map(|(_, task)| task));
            }
            let surplus = found.len().saturating_sub(limit);
            if surplus > 0 && several {
                found.sort_by_key(|task| task.spawned_at);
            }
            found.drain(..surplus);
        }
        Ok(found)
    }

    async fn read_page(
        &self,
        session: &Session,
        after: Option<TaskNo>,
    ) -> Result<Vec<(TaskNo, TaskInfo)>, Refusal> {
        let name = session.row().name;
        let info = |no: TaskNo, row: &TaskRow| (no, new_list_item(self.context, &name, no, row));
        if self.request.include_ended {
            let query = TaskQuery { after, limit: TASKS_PER_PAGE, ..TaskQuery::default() };
            let rows = session.history(&query).await?;
            return Ok(rows.iter().map(|task| info(task.no, &task.row)).collect());
        }
        let rows = session.list();
        let remaining = rows.iter().filter(|task| after.is_none_or(|after| task.no > after));
        Ok(remaining.take(TASKS_PER_PAGE).map(|task| info(task.no, &task.row)).collect())
    }
}

/// Returns the number after which the newest tasks start: numbers grow with each task.
fn newest_offset(session: &Session, limit: usize) -> Option<TaskNo> {
    let last = session.row().last_task.map_or(0, |no| no.get());
    TaskNo::new(last.checked_sub(u32::try_from(limit).ok()?)?)
}
