//! Filtered lists of tasks in pages.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brigade_model::ids::{Owner, SessionId, TaskNo, Time};
use brigade_model::refusal::Refusal;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_protocol::http::task::TaskSession;
use brigade_protocol::http::{TaskBody, TaskId};
use brigade_runtime::Session;
use brigade_store::{TaskOrder, TaskQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
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
    /// Lists all ended tasks. Without it, an ended task is listed only while its result waits for the
    /// client that started it, or for a parent that is alive. An ended state in `state` lists them
    /// too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
    /// `oldest` first by default: by session, and by number within one. `newest` first: by the time
    /// of the start, over all sessions.
    #[param(inline)]
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<ListOrder>,
    /// The number of tasks, from 1 to 1000; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    /// `next_page` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListOrder {
    #[default]
    Oldest,
    Newest,
}

impl TaskFilter {
    /// Returns true if the list has all ended tasks: by request, or because it asks for a state that
    /// only ended tasks have.
    pub(crate) fn includes_ended(&self) -> bool {
        const ENDED_STATES: [&str; 3] = ["succeeded", "failed", "cancelled"];
        let mut states = self.state.iter().flat_map(|states| states.split(','));
        self.ended || states.any(|state| ENDED_STATES.contains(&state.trim()))
    }

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

/// The task after which a page begins. The fields are in the order of a list by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PageStart {
    /// The start of the task; zero in the order by session.
    spawned_at: Time,
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
        let order = filter.order.unwrap_or_default();
        let start =
            filter.page.as_deref().map(|page| PageStart::decode(page, order)).transpose()?;
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
        match self.filter.order.unwrap_or_default() {
            ListOrder::Oldest => self.read_oldest().await,
            ListOrder::Newest => self.read_newest().await,
        }
    }

    async fn read_oldest(&self) -> Result<TaskPage, Refusal> {
        let mut page = TaskPage::default();
        let mut read = 0;
        for session in &self.sessions {
            let mut after = match self.start {
                Some(start) if session.id() < start.session => continue,
                Some(start) if session.id() == start.session => Some(start.after),
                _ => None,
            };
            let next = |no| {
                let start = PageStart { spawned_at: Time(0), session: session.id(), after: no };
                Some(start.encode(ListOrder::Oldest))
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
                        page.next = next(*no);
                        return Ok(page);
                    }
                }
                after = Some(last);
                read += tasks.len();
                if read >= READ_TASKS_MAX {
                    page.next = next(last);
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
        if self.filter.includes_ended() {
            let query = self.history_query(TaskOrder::OldestFirst, after);
            return session.history(&query).await;
        }
        let tasks = session.list().into_iter();
        let remaining = tasks.filter(|task| after.is_none_or(|after| task.no > after));
        Ok(remaining.take(READ_TASKS).collect())
    }

    fn history_query(&self, order: TaskOrder, after: Option<TaskNo>) -> TaskQuery {
        TaskQuery { owner: self.parent, order, after, limit: READ_TASKS, alive_only: false }
    }

    /// Merges the sessions by the start of their tasks.
    async fn read_newest(mut self) -> Result<TaskPage, Refusal> {
        // No task is newer than the last event of its session, so that a session is read only when
        // the page comes to that time.
        let mut unread: Vec<Session> = std::mem::take(&mut self.sessions);
        unread.sort_by_key(|session| session.row().now);
        let mut readers: Vec<NewestTasks> = Vec::new();
        let mut page = TaskPage::default();
        for _ in 0..READ_TASKS_MAX {
            let newest = loop {
                let newest = readers.iter().filter_map(NewestTasks::place).max();
                let may_be_newer = |session: &Session| {
                    newest.is_none_or(|newest| session.row().now >= newest.spawned_at)
                };
                match unread.pop_if(|session| may_be_newer(session)) {
                    Some(session) => readers.push(self.open_newest(session).await?),
                    None => break newest,
                }
            };
            let Some(place) = newest else {
                page.next = None;
                break;
            };
            let reader = readers.iter_mut().find(|reader| reader.place() == Some(place));
            let Some(reader) = reader else { break };
            if let Some(task) = reader.take(&self).await?
                && self.selects(&task.row)
            {
                page.items.push(TaskBody::of(&reader.names, task.no, &task.row));
            }
            page.next = Some(place.encode(ListOrder::Newest));
            if page.items.len() == self.limit {
                break;
            }
        }
        Ok(page)
    }

    async fn open_newest(&self, session: Session) -> Result<NewestTasks, Refusal> {
        let names = task_session(&session);
        let mut reader =
            NewestTasks { session, names, tasks: VecDeque::new(), remaining: Remaining::Nothing };
        if !self.filter.includes_ended() {
            let tasks = reader.session.list().into_iter().rev();
            let id = reader.session.id();
            let is_left =
                |task: &StoredTask| self.start.is_none_or(|start| PageStart::of(id, task) < start);
            reader.tasks = tasks.filter(is_left).collect();
            return Ok(reader);
        }
        let after = match self.start {
            Some(start) => Some(find_start(&reader.session, start).await?),
            None => None,
        };
        reader.remaining = Remaining::After(after);
        reader.fill(self).await?;
        Ok(reader)
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

/// The tasks of one session, the newest first.
#[derive(Debug)]
struct NewestTasks {
    session: Session,
    names: TaskSession,
    tasks: VecDeque<StoredTask>,
    remaining: Remaining,
}

/// The stored tasks that are not yet read.
#[derive(Clone, Copy, Debug)]
enum Remaining {
    After(Option<TaskNo>),
    Nothing,
}

impl NewestTasks {
    /// Returns the place of the next task.
    fn place(&self) -> Option<PageStart> {
        self.tasks.front().map(|task| PageStart::of(self.session.id(), task))
    }

    async fn take(&mut self, pages: &TaskPages<'_>) -> Result<Option<StoredTask>, Refusal> {
        let task = self.tasks.pop_front();
        self.fill(pages).await?;
        Ok(task)
    }

    async fn fill(&mut self, pages: &TaskPages<'_>) -> Result<(), Refusal> {
        if self.tasks.is_empty()
            && let Remaining::After(after) = self.remaining
        {
            let query = pages.history_query(TaskOrder::NewestFirst, after);
            self.tasks = self.session.history(&query).await?.into();
            self.remaining = match self.tasks.back() {
                Some(last) => Remaining::After(Some(last.no)),
                None => Remaining::Nothing,
            };
        }
        Ok(())
    }
}

/// Returns the number below which all tasks of a session are after the start of a page. A binary
/// search finds it, because times rise with numbers.
async fn find_start(session: &Session, start: PageStart) -> Result<TaskNo, Refusal> {
    if session.id() == start.session {
        return Ok(start.after);
    }
    let mut low = TaskNo::FIRST.get();
    let mut high = session.row().last_task.map_or(low, |last| last.get().saturating_add(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let query = TaskQuery {
            order: TaskOrder::NewestFirst,
            after: TaskNo::new(middle),
            limit: 1,
            ..TaskQuery::default()
        };
        let found = session.history(&query).await?;
        match found.first().filter(|task| PageStart::of(session.id(), task) >= start) {
            Some(task) => high = task.no.get(),
            None => low = middle,
        }
    }
    Ok(TaskNo::new(low).unwrap_or(TaskNo::FIRST))
}

impl PageStart {
    fn of(session: SessionId, task: &StoredTask) -> Self {
        Self { spawned_at: task.row.spawned_at, session, after: task.no }
    }

    fn encode(self, order: ListOrder) -> String {
        let mut bytes = Vec::with_capacity(28);
        bytes.extend_from_slice(self.session.as_uuid().as_bytes());
        bytes.extend_from_slice(&self.after.get().to_be_bytes());
        if order == ListOrder::Newest {
            bytes.extend_from_slice(&self.spawned_at.0.to_be_bytes());
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn decode(text: &str, order: ListOrder) -> Result<Self, Refusal> {
        let wrong = || {
            Refusal::invalid(
                "this is not a page of this list; pass `next_page` as it was received, with the \
                 same order",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let (session, rest) = bytes.split_at_checked(16).ok_or_else(wrong)?;
        let (after, time) = rest.split_at_checked(4).ok_or_else(wrong)?;
        let spawned_at = match order {
            ListOrder::Oldest if time.is_empty() => 0,
            ListOrder::Oldest => return Err(wrong()),
            ListOrder::Newest => u64::from_be_bytes(time.try_into().map_err(|_| wrong())?),
        };
        let after = u32::from_be_bytes(after.try_into().map_err(|_| wrong())?);
        Ok(Self {
            spawned_at: Time(spawned_at),
            session: SessionId::from_uuid(Uuid::from_slice(session).map_err(|_| wrong())?),
            after: TaskNo::new(after).ok_or_else(wrong)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_opaque_text_of_one_order() {
        let session = SessionId::from_uuid(Uuid::from_u128(7));
        for (order, other, time) in
            [(ListOrder::Oldest, ListOrder::Newest, 0), (ListOrder::Newest, ListOrder::Oldest, 9)]
        {
            let start = PageStart { spawned_at: Time(time), session, after: TaskNo::FIRST };
            assert_eq!(PageStart::decode(&start.encode(order), order), Ok(start));
            assert!(PageStart::decode(&start.encode(order), other).is_err());
            let nothing = URL_SAFE_NO_PAD.encode([0; 20]);
            for wrong in ["", "x", "AAAA", &nothing, &"A".repeat(10_000)] {
                assert!(PageStart::decode(wrong, order).is_err(), "{wrong}");
            }
        }
    }
}
