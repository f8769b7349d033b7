//! Filtered lists of tasks in pages.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brigade_model::ids::{Owner, SessionId, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_protocol::http::{TaskBody, TaskId};
use brigade_runtime::Session;
use brigade_store::TaskQuery;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use uuid::Uuid;

use super::routes::task_session;

const PAGE_TASKS: usize = 100;
const PAGE_TASKS_MAX: usize = 1_000;
/// The number of stored tasks that are read together.
const READ_TASKS: usize = 500;
/// The number of stored tasks that one page reads at most. A filter that selects few tasks then
/// gives short pages, and an empty page may have a next one.
const READ_TASKS_MAX: usize = 20_000;

/// Selects tasks.
#[derive(Clone, Debug, Default, Deserialize, Serialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TaskFilter {
    /// The id of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// States, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// Kinds, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// The id of the parent, or `none` for top-level tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// The client that started the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// A part of the name or the description, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Includes ended tasks whose results were collected.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ended: bool,
    /// The number of tasks, from 1 to 1000; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    /// `next_page` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
}

impl TaskFilter {
    /// Returns the value of the header that leads to the next page.
    pub(crate) fn next_link(&self, path: &str, next: &str) -> String {
        let next = Self { page: Some(next.to_owned()), ..self.clone() };
        let query = serde_urlencoded::to_string(&next).unwrap_or_default();
        format!("<{path}?{query}>; rel=\"next\"")
    }
}

/// A page of tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskPage {
    pub(crate) items: Vec<TaskBody>,
    pub(crate) next: Option<String>,
}

/// Reads one page from the tasks of sessions.
#[derive(Debug)]
pub(crate) struct TaskPages<'a> {
    filter: &'a TaskFilter,
    /// In the order of their ids.
    sessions: Vec<Session>,
    start: Option<PageStart>,
    parent: Option<Owner>,
    text: Option<String>,
    limit: usize,
}

/// The task after which a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageStart {
    session: SessionId,
    after: TaskNo,
}

impl<'a> TaskPages<'a> {
    pub(crate) fn new(mut sessions: Vec<Session>, filter: &'a TaskFilter) -> Result<Self, Refusal> {
        sessions.sort_by_key(Session::id);
        let limit = filter.limit.unwrap_or(PAGE_TASKS);
        if !(1..=PAGE_TASKS_MAX).contains(&limit) {
            return Err(Refusal::invalid(format!("the limit is 1 to {PAGE_TASKS_MAX}")));
        }
        let start = filter.page.as_deref().map(PageStart::decode).transpose()?;
        let parent = match filter.parent.as_deref() {
            None => None,
            Some("none") => Some(Owner::Session),
            Some(parent) => {
                let id: TaskId = parent.parse()?;
                sessions.retain(|session| session.id() == id.session);
                Some(Owner::Task(id.no))
            }
        };
        let text = filter.text.as_ref().map(|text| text.to_lowercase());
        Ok(Self { filter, sessions, start, parent, text, limit })
    }

    pub(crate) async fn read(self) -> Result<TaskPage, Refusal> {
        let mut page = TaskPage::default();
        let mut read = 0;
        for session in &self.sessions {
            let mut after = match self.start {
                Some(start) if session.id() < start.session => continue,
                Some(start) if session.id() == start.session => Some(start.after),
                _ => None,
            };
            loop {
                let tasks = self.read_tasks(session, after).await?;
                let Some(last) = tasks.last().map(|task| task.no) else { break };
                let names = task_session(session);
                for StoredTask { no, row } in &tasks {
                    if self.selects(row) {
                        page.items.push(TaskBody::of(&names, *no, row));
                    }
                    if page.items.len() == self.limit {
                        let start = PageStart { session: session.id(), after: *no };
                        page.next = Some(start.encode());
                        return Ok(page);
                    }
                }
                after = Some(last);
                read += tasks.len();
                if read >= READ_TASKS_MAX {
                    page.next = Some(PageStart { session: session.id(), after: last }.encode());
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }

    async fn read_tasks(
        &self,
        session: &Session,
        after: Option<TaskNo>,
    ) -> Result<Vec<StoredTask>, Refusal> {
        if self.filter.ended {
            let query =
                TaskQuery { owner: self.parent, after, limit: READ_TASKS, alive_only: false };
            return session.history(&query).await;
        }
        let tasks = session.list().into_iter();
        let remaining = tasks.filter(|task| after.is_none_or(|after| task.no > after));
        Ok(remaining.take(READ_TASKS).collect())
    }

    fn selects(&self, row: &TaskRow) -> bool {
        let filter = self.filter;
        let is_one_of = |list: &Option<String>, value: &str| {
            list.as_ref().is_none_or(|list| list.split(',').any(|one| one.trim() == value))
        };
        let has_text = |text: &str| {
            let name = row.name.as_ref().map(|name| name.as_str().to_lowercase());
            name.is_some_and(|name| name.contains(text))
                || row.spec.work.description().to_lowercase().contains(text)
        };
        let client = row.client.as_ref().map(|client| client.name.to_string());
        is_one_of(&filter.state, row.state.label())
            && is_one_of(&filter.kind, &row.spec.work.kind().to_string())
            && self.parent.is_none_or(|parent| row.owner == parent)
            && filter.client.as_ref().is_none_or(|wanted| client.as_ref() == Some(wanted))
            && self.text.as_deref().is_none_or(has_text)
    }
}

impl PageStart {
    fn encode(self) -> String {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(self.session.as_uuid().as_bytes());
        bytes[16..].copy_from_slice(&self.after.get().to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn decode(text: &str) -> Result<Self, Refusal> {
        let wrong = || Refusal::invalid("this is not a page; pass `next_page` as it was received");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let (session, after) = bytes.split_at_checked(16).ok_or_else(wrong)?;
        let after = u32::from_be_bytes(after.try_into().map_err(|_| wrong())?);
        Ok(Self {
            session: SessionId::from_uuid(Uuid::from_slice(session).map_err(|_| wrong())?),
            after: TaskNo::new(after).ok_or_else(wrong)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_opaque_text() {
        let session = SessionId::from_uuid(Uuid::from_u128(7));
        let start = PageStart { session, after: TaskNo::FIRST };
        assert_eq!(PageStart::decode(&start.encode()), Ok(start));
        for wrong in ["", "x", "AAAA", &URL_SAFE_NO_PAD.encode([0; 20]), &"A".repeat(10_000)] {
            assert!(PageStart::decode(wrong).is_err(), "{wrong}");
        }
    }
}
