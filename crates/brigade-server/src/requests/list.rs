//! The tasks of a session, or of all.

use brigade_model::ids::TaskNo;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_runtime::Session;
use brigade_store::TaskQuery;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;
use crate::info::TaskInfo;

/// The most that one answer has, so that it fits a line. [`super::ListPages`] has no such limit.
const LISTED_MAX: usize = 10_000;
/// Tasks that are read and sent at once.
const PAGE: usize = 250;

/// Tasks without their results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct List {
    /// All that are open, when there is none; for the operator who asks for what has ended, those
    /// that are closed too.
    #[serde(default)]
    pub session: Option<String>,
    /// Ended and collected ones too.
    #[serde(default)]
    pub ended: bool,
    /// Only the newest so many.
    #[serde(default)]
    pub most: Option<usize>,
}

impl Ask for List {
    type Done = Vec<TaskInfo>;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Vec<TaskInfo>, Refusal> {
        let mut found = Vec::new();
        let mut pages = ListedPages::new(self, desk).await?;
        while let Some(page) = pages.next().await? {
            found.extend(page);
            if found.len() > LISTED_MAX {
                return Err(Refusal::limit(format!(
                    "there are more than {LISTED_MAX} tasks, too many for one answer; name how many of the newest: \
                     `brigade ps --newest 100`"
                )));
            }
        }
        Ok(found)
    }
}

fn listed(desk: &Desk, session: &SessionName, no: TaskNo, row: &TaskRow) -> TaskInfo {
    let conversation = desk.conversation_of(row);
    TaskInfo { conversation, ..TaskInfo::in_a_list(session, no, row) }
}

/// The tasks of a [`List`], page by page, however many there are.
pub(super) struct ListedPages<'a> {
    list: List,
    desk: &'a Desk,
    /// Those that are still to be read, in reverse.
    sessions: Vec<Session>,
    /// The last number that was read of the last of them.
    after: Option<TaskNo>,
    /// Read already, newest last, when only so many are wanted.
    newest: Option<std::vec::IntoIter<TaskInfo>>,
}

impl<'a> ListedPages<'a> {
    pub(super) async fn new(list: List, desk: &'a Desk) -> Result<Self, Refusal> {
        let mut sessions = desk.sessions(list.session.as_deref()).await?;
        if list.ended && list.session.is_none() {
            sessions.extend(desk.closed_sessions().await?);
        }
        sessions.reverse();
        let mut pages = Self { list, desk, sessions, after: None, newest: None };
        if let Some(most) = pages.list.most {
            pages.newest = Some(pages.read_newest(most).await?.into_iter());
        }
        Ok(pages)
    }

    /// Returns the next tasks, at least one. None when there are no more.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<TaskInfo>>, Refusal> {
        if let Some(newest) = &mut self.newest {
            let page: Vec<TaskInfo> = newest.take(PAGE).collect();
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
            let mut after = if self.list.ended { before_newest(&session, most) } else { None };
            loop {
                let page = self.read_page(&session, after).await?;
                let Some((last, _)) = page.last() else { break };
                after = Some(*last);
                found.extend(page.into_iter().map(|(_, task)| task));
            }
            let surplus = found.len().saturating_sub(most);
            if surplus > 0 && several {
                found.sort_by_key(|task| task.spawned);
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
        let info = |no: TaskNo, row: &TaskRow| (no, listed(self.desk, &name, no, row));
        if self.list.ended {
            let query = TaskQuery { after, most: PAGE, ..TaskQuery::default() };
            let rows = session.history(&query).await?;
            return Ok(rows.iter().map(|(no, row)| info(*no, row)).collect());
        }
        let rows = session.list();
        let remaining = rows.iter().filter(|(no, _)| after.is_none_or(|after| *no > after));
        Ok(remaining.take(PAGE).map(|(no, row)| info(*no, row)).collect())
    }
}

/// Numbers are given out in order, so the newest have the highest.
fn before_newest(session: &Session, most: usize) -> Option<TaskNo> {
    let last = session.row().last_task.map_or(0, |no| no.get());
    TaskNo::new(last.checked_sub(u32::try_from(most).ok()?)?)
}
