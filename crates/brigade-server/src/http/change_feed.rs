//! The changes that a caller sees, from any place in the feed.

use std::collections::{BTreeSet, HashMap};

use brigade_model::event::{Event, FeedItem};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Owner, SessionId, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::{ChangeBody, CursorBody, TaskBody, change_types};
use brigade_runtime::{FeedSubscription, FeedUpdate, Session};
use futures_util::FutureExt;

use super::access_token::TokenAccess;
use super::caller::HttpCaller;
use super::routes::{HttpState, task_session};
use super::server_sent_events::{CHUNK_BYTES, FrameBuffer, FrameSource};
use super::store_cursor::StoreCursor;

/// The number of tasks whose place in a tree is remembered.
const KNOWN_TASKS_MAX: usize = 16 * 1024;
/// The number of updates that are taken at once. Other streams of the thread wait so long.
const BATCH_UPDATES: usize = 64;
/// The number of sessions that are held for the rows of their tasks.
const HELD_SESSIONS_MAX: usize = 64;

/// The tasks whose changes are wanted.
#[derive(Debug)]
pub(crate) enum ChangeScope {
    /// Everything that the caller sees.
    All,
    Session(Session),
    Task(TaskScope),
}

/// A task, and possibly its descendants.
#[derive(Debug)]
pub(crate) struct TaskScope {
    session: Session,
    root: TaskNo,
    /// True for descendants of the task. `None` if only the task itself is wanted.
    descendants: Option<HashMap<TaskNo, bool>>,
}

/// The wanted changes, and their form.
#[derive(Debug)]
pub(crate) struct ChangeSelection {
    pub(crate) scope: ChangeScope,
    pub(crate) types: Option<BTreeSet<String>>,
    pub(crate) with_rows: bool,
}

/// A reader of changes.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    state: HttpState,
    feed: FeedSubscription,
    task: Option<TaskScope>,
    types: Option<BTreeSet<String>>,
    rows: Option<RowReader>,
}

/// Parses the types of a query, which are separated by commas.
pub(crate) fn parse_types(text: &str) -> Result<BTreeSet<String>, Refusal> {
    let names = text.split(',').map(|name| match change_types().contains(&name) {
        true => Ok(name.to_owned()),
        false => {
            let known = change_types().join(", ");
            Err(Refusal::invalid(format!("{name:?} is not a type of changes: {known}")))
        }
    });
    names.collect()
}

impl ChangeFeed {
    pub(crate) async fn open(
        state: &HttpState,
        caller: &HttpCaller,
        selection: ChangeSelection,
        after: FeedCursor,
    ) -> Result<Self, Refusal> {
        let ChangeSelection { scope, types, with_rows } = selection;
        let rows =
            with_rows.then(|| RowReader { caller: caller.clone(), sessions: HashMap::new() });
        let (feed, task) = match scope {
            ChangeScope::All => match caller.token.access {
                TokenAccess::Client { session } => {
                    (caller.session_of(session).await?.subscribe(after), None)
                }
                TokenAccess::Operator | TokenAccess::ReadOnly => {
                    (state.daemon.runtime.subscribe(after), None)
                }
            },
            ChangeScope::Session(session) => (session.subscribe(after), None),
            ChangeScope::Task(task) => (task.session.subscribe(after), Some(task)),
        };
        Ok(Self { state: state.clone(), feed, task, types, rows })
    }

    /// Returns the place after the last update.
    pub(crate) fn place(&self) -> StoreCursor {
        self.state.cursor_at(self.feed.cursor())
    }

    /// Returns the next update, or `None` if there is none up to this place.
    pub(crate) async fn next_until(
        &mut self,
        end: &FeedCursor,
    ) -> Result<Option<FeedUpdate>, Refusal> {
        self.feed.next_until(end).await
    }

    /// Returns the change of an event, if it is selected.
    pub(crate) async fn select(&mut self, item: &FeedItem) -> Option<ChangeBody> {
        if !self.is_in_scope(item).await {
            return None;
        }
        let record = &item.record;
        let mut body = ChangeBody::of(record);
        if !self.is_wanted(&body.kind) {
            return None;
        }
        if let (Some(rows), Some(no)) = (&mut self.rows, record.event.task()) {
            body.row = rows.read(record.session, no).await.map(Box::new);
        }
        Some(body)
    }

    async fn is_in_scope(&mut self, item: &FeedItem) -> bool {
        match &mut self.task {
            Some(task) => task.includes(&item.record.event).await,
            None => true,
        }
    }

    fn is_wanted(&self, kind: &str) -> bool {
        self.types.as_ref().is_none_or(|types| types.contains(kind))
    }

    async fn write_event(&mut self, item: &FeedItem, frames: &mut FrameBuffer) {
        let place = self.place();
        if self.rows.is_some() {
            if let Some(body) = self.select(item).await {
                frames.push("change", Some(&place), &body);
            }
            return;
        }
        if !self.is_in_scope(item).await {
            return;
        }
        let frame = self.state.daemon.http.change_frames.find_or_render(item, place);
        if self.is_wanted(&frame.kind) {
            frames.push_frame(&frame.bytes);
        }
    }

    async fn write_update(&mut self, update: FeedUpdate, frames: &mut FrameBuffer) {
        match update {
            FeedUpdate::Event(item) => self.write_event(&item, frames).await,
            FeedUpdate::Gap { to } => {
                let cursor = self.state.cursor_at(to).to_string();
                frames.push("gap", Some(&cursor), &CursorBody { cursor: Some(cursor.clone()) });
            }
            // The API has no event for other updates.
            _ => {}
        }
    }
}

impl FrameSource for ChangeFeed {
    type Item = FeedUpdate;

    /// The feed ends when the runtime shuts down.
    const END_EVENT: &'static str = "bye";

    fn start(&mut self, frames: &mut FrameBuffer) {
        let cursor = self.place().to_string();
        frames.push("cursor", Some(&cursor), &CursorBody { cursor: Some(cursor.clone()) });
    }

    async fn next(&mut self) -> Option<Result<FeedUpdate, Refusal>> {
        self.feed.next().await
    }

    async fn write(&mut self, update: FeedUpdate, frames: &mut FrameBuffer) {
        self.write_update(update, frames).await;
        // One write to the socket takes all that is there.
        for _ in 1..BATCH_UPDATES {
            if frames.len() >= CHUNK_BYTES {
                return;
            }
            let Some(Some(Ok(update))) = self.feed.next().now_or_never() else { return };
            self.write_update(update, frames).await;
        }
    }

    fn cursor(&self) -> Option<String> {
        Some(self.place().to_string())
    }
}

impl TaskScope {
    pub(crate) fn new(session: Session, root: TaskNo, with_descendants: bool) -> Self {
        Self { session, root, descendants: with_descendants.then(HashMap::new) }
    }

    /// Returns true if the event concerns a task of this scope.
    async fn includes(&mut self, event: &Event) -> bool {
        self.note_owner(event).await;
        let mut is_included = false;
        for no in concerned_tasks(event) {
            is_included |= self.contains(no).await;
        }
        if let (Event::PassedToSession { .. }, Some(known)) = (event, &mut self.descendants) {
            // It is no descendant from now on, and neither is anything that it owns.
            known.clear();
        }
        is_included
    }

    async fn note_owner(&mut self, event: &Event) {
        let (no, owner) = match event {
            Event::Spawned(spawned) => (spawned.no, spawned.owner),
            Event::RunOpened { no, owner, .. } => (*no, *owner),
            _ => return,
        };
        let is_descendant = match owner {
            Owner::Session => false,
            Owner::Task(owner) => self.contains(owner).await,
        };
        self.remember(no, is_descendant);
    }

    /// Returns true for the task itself and its descendants.
    async fn contains(&mut self, no: TaskNo) -> bool {
        let mut path = Vec::new();
        let mut current = no;
        let is_descendant = loop {
            if current == self.root {
                break true;
            }
            let Some(known) = &self.descendants else { break false };
            if let Some(is_descendant) = known.get(&current) {
                break *is_descendant;
            }
            path.push(current);
            // A task that is no longer stored has no place in the tree.
            let Ok(stored) = self.session.get(current).await else { break false };
            let Owner::Task(owner) = stored.row.owner else { break false };
            current = owner;
        };
        for no in path {
            self.remember(no, is_descendant);
        }
        is_descendant
    }

    fn remember(&mut self, no: TaskNo, is_descendant: bool) {
        let Some(known) = &mut self.descendants else { return };
        if known.len() >= KNOWN_TASKS_MAX {
            known.clear();
        }
        known.insert(no, is_descendant);
    }
}

/// Returns the tasks that an event concerns. A message concerns both of its ends.
fn concerned_tasks(event: &Event) -> Vec<TaskNo> {
    let mut tasks: Vec<TaskNo> = event.task().into_iter().collect();
    match event {
        Event::MessageSent(message) => tasks.extend(message.from.task()),
        Event::Collected { runs } => tasks.extend(runs.iter().map(|run| run.no)),
        _ => {}
    }
    tasks
}

/// Reads the tasks of changes as they are now.
#[derive(Debug)]
struct RowReader {
    caller: HttpCaller,
    sessions: HashMap<SessionId, Session>,
}

impl RowReader {
    /// Returns the list form of a task. `None` if it is not stored any more, or not visible.
    async fn read(&mut self, id: SessionId, no: TaskNo) -> Option<TaskBody> {
        if !self.sessions.contains_key(&id) {
            if self.sessions.len() >= HELD_SESSIONS_MAX {
                self.sessions.clear();
            }
            self.sessions.insert(id, self.caller.session_of(id).await.ok()?);
        }
        let session = self.sessions.get(&id)?;
        let stored = session.get(no).await.ok()?;
        Some(TaskBody::of(&task_session(session), stored.no, &stored.row))
    }
}
