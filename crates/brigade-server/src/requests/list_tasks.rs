//! The tasks of a session, or of all.

use brigade_model::ids::TaskNo;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_runtime::Session;
use brigade_store::TaskQuery;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;
use crate::task_info::TaskInfo;

/// The most that one answer has, so that it fits a line. [`super::ListPages`] has no such limit.
const LISTED_TASKS_MAX: usize = 10_000;
/// Tasks that are read and sent at once.
const TASKS_PER_PAGE: usize = 250;

/// Tasks without their results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListTasksRequest {
    /// All that are open, when there is none; for the operator who asks for what has ended, those
    /// that are closed too.
    #[serde(default)]
    pub session: Option<String>,
    /// Ended and collected ones too.
    #[serde(default)]
    pub include_ended: bool,
    /// Only the newest so many.
    #[serde(default)]
    pub limit: Option<usize>,
}

impl Call for ListTasksRequest {
    type Reply = Vec<TaskInfo>;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<TaskInfo>, Refusal> {
        let mut found = Vec::new();
        let mut pages = TaskPages::new(self, desk).await?;
        while let Some(page) = pages.next_page().await? {
            found.extend(page);
            if found.len() > LISTED_TASKS_MAX {
                return Err(Refusal::limit(format!(
                    "there are more than {LISTED_TASKS_MAX} tasks, too many for one answer; name how many of the newest: \
                     `brigade ps --newest 100`"
                )));
            }
        }
        Ok(found)
    }
}

fn new_list_item(
    desk: &RequestContext,
    session: &SessionName,
    no: TaskNo,
    row: &TaskRow,
) -> TaskInfo {
    let conversation = desk.describe_conversation(row);
    TaskInfo { conversation, ..TaskInfo::for_list(session, no, row) }
}

/// The tasks of a [`List`], page by page, however many there are.
pub(super) struct TaskPages<'a> {
    request: ListTasksRequest,
    context: &'a RequestContext,
    /// Those that are still to be read, in reverse.
    sessions: Vec<Session>,
    /// The last number that was read of the last of them.
    after: Option<TaskNo>,
    /// Read already, newest last, when only so many are wanted.
    newest_tasks: Option<std::vec::IntoIter<TaskInfo>>,
}

impl<'a> TaskPages<'a> {
    pub(super) async fn new(
        list: ListTasksRequest,
        desk: &'a RequestContext,
    ) -> Result<Self, Refusal> {
        let mut sessions = desk.sessions(list.session.as_deref()).await?;
        if list.include_ended && list.session.is_none() {
            sessions.extend(desk.closed_sessions().await?);
        }
        sessions.reverse();
        let mut pages =
            Self { request: list, context: desk, sessions, after: None, newest_tasks: None };
        if let Some(most) = pages.request.limit {
            pages.newest_tasks = Some(pages.read_newest(most).await?.into_iter());
        }
        Ok(pages)
    }

    /// Returns the next tasks, at least one. None when there are no more.
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

    /// Of several sessions the newest are not those of the last one.
    async fn read_newest(&mut self, most: usize) -> Result<Vec<TaskInfo>, Refusal> {
        let several = self.sessions.len() > 1;
        let mut found: Vec<TaskInfo> = Vec::new();
        while let Some(session) = self.sessions.pop() {
            let mut after =
                if self.request.include_ended { newest_offset(&session, most) } else { None };
            loop {
                let page = self.read_page(&session, after).await?;
                let Some((last, _)) = page.last() else { break };
                after = Some(*last);
                found.extend(page.into_iter().map(|(_, task)| task));
            }
            let surplus = found.len().saturating_sub(most);
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
            return Ok(rows.iter().map(|(no, row)| info(*no, row)).collect());
        }
        let rows = session.list();
        let remaining = rows.iter().filter(|(no, _)| after.is_none_or(|after| *no > after));
        Ok(remaining.take(TASKS_PER_PAGE).map(|(no, row)| info(*no, row)).collect())
    }
}

/// Numbers are given out in order, so the newest have the highest.
fn newest_offset(session: &Session, most: usize) -> Option<TaskNo> {
    let last = session.row().last_task.map_or(0, |no| no.get());
    TaskNo::new(last.checked_sub(u32::try_from(most).ok()?)?)
}
