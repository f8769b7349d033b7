//! The store without a disk: for tests, for programs that do not need to survive, and as the
//! reference for the others.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::call::Entry;
use brigade_model::event::FeedItem;
use brigade_model::ids::{MessageNo, Owner, Position, RunNo, TaskNo, Time, TreeId};
use brigade_model::message::Receipt;
use brigade_model::name::{Name, SessionName};
use brigade_model::task::TaskRow;
use brigade_model::tree::{KeyMark, MessageRow, SessionState, TreeRow};

use crate::batch::{Batch, TreeBatch};
use crate::error::StoreError;
use crate::standing::{Standing, complete};
use crate::store::{
    BoxFuture, EventPage, EventQuery, LoadedTree, Pruned, Retention, RunRow, Store, TaskQuery,
};

/// How much is kept of what is over.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOptions {
    /// The newest events.
    pub events: usize,
    /// The newest tasks that have ended and that nobody has yet to collect.
    pub finished: usize,
    /// The newest messages that were read, delivered or dead-lettered.
    pub settled: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { events: 100_000, finished: 10_000, settled: 10_000 }
    }
}

/// Everything is lost with the process. Being in memory it is bounded: beyond
/// [`MemoryOptions`] the oldest finished tasks and events go by themselves.
#[derive(Debug, Default)]
pub struct MemoryStore {
    options: MemoryOptions,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    order: Vec<TreeId>,
    trees: HashMap<TreeId, MemoryTree>,
    events: VecDeque<FeedItem>,
    last: Position,
    pruned_to: Position,
    finished: VecDeque<(TreeId, TaskNo)>,
    settled: VecDeque<(TreeId, MessageNo)>,
}

#[derive(Debug)]
struct MemoryTree {
    row: TreeRow,
    tasks: BTreeMap<TaskNo, Arc<TaskRow>>,
    children: BTreeSet<(Owner, TaskNo)>,
    /// Kept tasks, by the task whose limits hold for them.
    limited: BTreeSet<(TaskNo, TaskNo)>,
    journal: HashMap<TaskNo, Vec<Entry>>,
    runs: HashMap<TaskNo, Vec<RunRow>>,
    messages: BTreeMap<MessageNo, MessageRow>,
    recipients: BTreeSet<(Owner, MessageNo)>,
    /// Keys of tasks that are no longer kept while their parent lives.
    marks: BTreeMap<(Owner, TaskNo), KeyMark>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_options(options: MemoryOptions) -> Self {
        Self { options, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        look: impl FnOnce(&Inner) -> T,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let found = look(&self.lock());
        Box::pin(ready(Ok(found)))
    }
}

impl Store for MemoryStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Position, StoreError>> {
        let result = self.lock().commit(batch, &self.options);
        Box::pin(ready(result))
    }

    fn trees(&self) -> BoxFuture<'_, Result<Vec<TreeRow>, StoreError>> {
        self.read(|inner| {
            let found = inner.order.iter().filter_map(|id| inner.trees.get(id));
            found.map(|tree| tree.row.clone()).collect()
        })
    }

    fn tree(&self, id: TreeId) -> BoxFuture<'_, Result<Option<TreeRow>, StoreError>> {
        self.read(|inner| inner.trees.get(&id).map(|tree| tree.row.clone()))
    }

    fn tree_named<'a>(
        &'a self,
        name: &'a SessionName,
    ) -> BoxFuture<'a, Result<Option<TreeRow>, StoreError>> {
        self.read(|inner| {
            let found = inner.order.iter().filter_map(|id| inner.trees.get(id));
            let named = found.filter(|tree| tree.row.name == *name);
            named
                .max_by_key(|tree| (tree.row.state != SessionState::Closed, tree.row.opened))
                .map(|tree| tree.row.clone())
        })
    }

    fn load(&self, id: TreeId) -> BoxFuture<'_, Result<Option<LoadedTree>, StoreError>> {
        self.read(|inner| inner.trees.get(&id).map(MemoryTree::load))
    }

    fn task(&self, id: TreeId, no: TaskNo) -> BoxFuture<'_, Result<Option<TaskRow>, StoreError>> {
        self.read(|inner| inner.trees.get(&id)?.row_of(no))
    }

    fn task_named<'a>(
        &'a self,
        id: TreeId,
        owner: Option<Owner>,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<(TaskNo, TaskRow)>, StoreError>> {
        self.read(|inner| {
            let mut rows = inner.trees.get(&id)?.tasks.iter().rev();
            let found = rows.find(|(_, row)| {
                owner.is_none_or(|owner| row.owner == owner)
                    && row.name.as_ref().is_some_and(|other| other.same_as(name))
            });
            found.map(|(no, row)| (*no, (**row).clone()))
        })
    }

    fn tasks<'a>(
        &'a self,
        id: TreeId,
        query: &'a TaskQuery,
    ) -> BoxFuture<'a, Result<Vec<(TaskNo, TaskRow)>, StoreError>> {
        self.read(|inner| {
            let Some(tree) = inner.trees.get(&id) else { return Vec::new() };
            let wanted = |(no, row): &(&TaskNo, &Arc<TaskRow>)| {
                query.after.is_none_or(|after| **no > after)
                    && query.owner.is_none_or(|owner| row.owner == owner)
                    && (!query.living || row.is_living())
            };
            let found = tree.tasks.iter().filter(wanted).take(query.most);
            found.map(|(no, row)| (*no, (**row).clone())).collect()
        })
    }

    fn journal(&self, id: TreeId, no: TaskNo) -> BoxFuture<'_, Result<Vec<Entry>, StoreError>> {
        self.read(|inner| {
            let tree = inner.trees.get(&id);
            tree.and_then(|tree| tree.journal.get(&no)).cloned().unwrap_or_default()
        })
    }

    fn run(
        &self,
        id: TreeId,
        no: TaskNo,
        run: RunNo,
    ) -> BoxFuture<'_, Result<Option<RunRow>, StoreError>> {
        self.read(|inner| {
            let runs = inner.trees.get(&id)?.runs.get(&no)?;
            runs.iter().find(|row| row.run == run).cloned()
        })
    }

    fn message(
        &self,
        id: TreeId,
        no: MessageNo,
    ) -> BoxFuture<'_, Result<Option<MessageRow>, StoreError>> {
        self.read(|inner| inner.trees.get(&id)?.messages.get(&no).cloned())
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> BoxFuture<'a, Result<EventPage, StoreError>> {
        self.read(|inner| inner.events(query))
    }

    fn last_position(&self) -> BoxFuture<'_, Result<Position, StoreError>> {
        self.read(|inner| inner.last)
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Time,
    ) -> BoxFuture<'a, Result<Pruned, StoreError>> {
        let pruned = self.lock().prune(retention, now);
        Box::pin(ready(Ok(pruned)))
    }
}

impl Inner {
    fn commit(&mut self, batch: &Batch, options: &MemoryOptions) -> Result<Position, StoreError> {
        for part in &batch.trees {
            self.check(part)?;
        }
        let first = self.last.next();
        for part in &batch.trees {
            self.write(part);
        }
        while self.events.len() > options.events {
            if let Some(item) = self.events.pop_front() {
                self.pruned_to = item.position;
            }
        }
        while self.finished.len() > options.finished {
            if let Some((id, no)) = self.finished.pop_front() {
                self.remove_finished(id, no);
            }
        }
        while self.settled.len() > options.settled {
            if let Some((id, no)) = self.settled.pop_front()
                && let Some(tree) = self.trees.get_mut(&id)
            {
                tree.remove_message(no);
            }
        }
        Ok(first)
    }

    fn check(&self, part: &TreeBatch) -> Result<(), StoreError> {
        let stored = self.trees.get(&part.row.id).map(|tree| &tree.row);
        let seq = stored.map_or(Default::default(), |row| row.seq);
        if seq != part.base {
            return Err(StoreError::Fenced(format!(
                "{:?} is at {seq}, not at {}",
                part.row.id, part.base
            )));
        }
        if stored.is_some_and(|row| row.epoch != part.row.epoch) {
            return Err(StoreError::Fenced(format!("{:?} has another epoch", part.row.id)));
        }
        let first = part.first_spawned();
        let old = part.tasks.iter().filter(|(no, _)| first.is_none_or(|first| *no < first));
        let tree = self.trees.get(&part.row.id);
        for (no, _) in old {
            if tree.is_none_or(|tree| !tree.tasks.contains_key(no)) {
                return Err(StoreError::Fenced(format!(
                    "task {no} of {:?} was removed",
                    part.row.id
                )));
            }
        }
        Ok(())
    }

    fn write(&mut self, part: &TreeBatch) {
        let id = part.row.id;
        let tree = self.trees.entry(id).or_insert_with(|| {
            self.order.push(id);
            MemoryTree::new(part.row.clone())
        });
        tree.keep_superseded_runs(part);
        tree.row = part.row.clone();
        for (no, row) in &part.tasks {
            let before = tree.put(*no, row.clone());
            if Standing::of(row) == Standing::Over && before != Some(Standing::Over) {
                self.finished.push_back((id, *no));
            }
        }
        for (no, entry) in &part.journal {
            tree.journal.entry(*no).or_default().push(entry.clone());
        }
        for message in &part.messages {
            tree.recipients.insert((message.message.to, message.message.no));
            tree.messages.insert(message.message.no, message.clone());
            if message.receipt != Receipt::Accepted {
                self.settled.push_back((id, message.message.no));
            }
        }
        for record in &part.events {
            self.last = self.last.next();
            self.events.push_back(FeedItem { position: self.last, record: record.clone() });
        }
    }

    fn remove_finished(&mut self, id: TreeId, no: TaskNo) {
        let Some(tree) = self.trees.get_mut(&id) else { return };
        let Some(row) = tree.tasks.get(&no) else { return };
        let over = Standing::of(row) == Standing::Over;
        let kept_by = limited_by(row).map(|holder| tree.top_above(holder));
        if over
            && tree.remove_subtree(no) > 0
            && let Some(holder) = kept_by
        {
            // It may have had its turn before, and stayed for this one.
            self.finished.push_front((id, holder));
        }
    }

    fn events(&self, query: &EventQuery) -> EventPage {
        let gap_to = (query.after < self.pruned_to).then_some(self.pruned_to);
        let after = query.after.max(self.pruned_to);
        let start = usize::try_from(after.0.saturating_sub(self.pruned_to.0)).unwrap_or(usize::MAX);
        let mut page = EventPage { items: Vec::new(), read_to: after, gap_to };
        for item in self.events.iter().skip(start) {
            if page.items.len() == query.most {
                return page;
            }
            page.read_to = item.position;
            if query.tree.is_none_or(|tree| item.record.tree == tree) {
                page.items.push(item.clone());
            }
        }
        page.read_to = page.read_to.max(self.last);
        page
    }

    fn prune(&mut self, retention: &Retention, now: Time) -> Pruned {
        let mut pruned = Pruned::default();
        for tree in self.trees.values_mut() {
            for no in tree.prunable(retention, now) {
                pruned.tasks += tree.remove_subtree(no);
            }
        }
        let over: Vec<TreeId> = self
            .trees
            .values()
            .filter(|tree| tree.row.state == SessionState::Closed)
            .filter(|tree| now.since(tree.row.now) >= retention.ended)
            .map(|tree| tree.row.id)
            .collect();
        for id in over {
            pruned.tasks += self.trees.remove(&id).map_or(0, |tree| tree.tasks.len() as u64);
            self.order.retain(|other| *other != id);
            pruned.trees += 1;
        }
        while let Some(item) = self.events.front()
            && (now.since(item.record.at) >= retention.events
                || !self.trees.contains_key(&item.record.tree))
        {
            self.pruned_to = item.position;
            self.events.pop_front();
            pruned.events += 1;
        }
        pruned
    }
}

impl MemoryTree {
    fn new(row: TreeRow) -> Self {
        Self {
            row,
            tasks: BTreeMap::new(),
            children: BTreeSet::new(),
            limited: BTreeSet::new(),
            journal: HashMap::new(),
            runs: HashMap::new(),
            messages: BTreeMap::new(),
            recipients: BTreeSet::new(),
            marks: BTreeMap::new(),
        }
    }

    fn load(&self) -> LoadedTree {
        let mut tasks: Vec<(TaskNo, TaskRow)> = Vec::new();
        let mut keys: Vec<KeyMark> =
            self.marks.values().filter(|mark| self.lives(mark.owner)).copied().collect();
        for (no, row) in &self.tasks {
            if let Some(key) = row.spec.key.as_ref().filter(|_| self.lives(row.owner)) {
                keys.push(KeyMark::new(row.owner, row.owner_run, key, *no));
            }
            let open = match Standing::of(row) {
                Standing::Living | Standing::Lingering => true,
                Standing::Pending => self.lives(row.owner),
                Standing::Over => false,
            };
            if open {
                tasks.push((*no, (**row).clone()));
            }
        }
        let Ok(()) = complete::<Infallible>(&mut tasks, |no| Ok(self.row_of(no)));
        let unread = self.messages.values().filter(|row| row.receipt == Receipt::Accepted);
        let unread = unread.map(|row| row.message.clone()).collect();
        LoadedTree { row: self.row.clone(), tasks, unread, keys }
    }

    /// The top-level task that this one is below.
    fn top_above(&self, mut no: TaskNo) -> TaskNo {
        while let Some(owner) = self.tasks.get(&no).and_then(|row| row.owner.task()) {
            no = owner;
        }
        no
    }

    fn row_of(&self, no: TaskNo) -> Option<TaskRow> {
        self.tasks.get(&no).map(|row| (**row).clone())
    }

    fn lives(&self, owner: Owner) -> bool {
        match owner {
            Owner::Session => true,
            Owner::Task(no) => self.tasks.get(&no).is_some_and(|row| row.is_living()),
        }
    }

    /// Keeps the ending of a run before the next one takes its place in the row.
    fn keep_superseded_runs(&mut self, part: &TreeBatch) {
        let stored = |no| Ok::<_, Infallible>(self.row_of(no));
        let Ok(superseded) = part.superseded_runs(stored);
        for (no, run) in superseded {
            self.runs.entry(no).or_default().push(run);
        }
    }

    /// Returns how the task stood before.
    fn put(&mut self, no: TaskNo, row: Arc<TaskRow>) -> Option<Standing> {
        let owner = row.owner;
        self.limited.extend(limited_by(&row).map(|holder| (holder, no)));
        let before = self.tasks.insert(no, row);
        match &before {
            Some(before) if before.owner == owner => {}
            Some(before) => {
                self.children.remove(&(before.owner, no));
                self.children.insert((owner, no));
            }
            None => {
                self.children.insert((owner, no));
            }
        }
        before.map(|before| Standing::of(&before))
    }

    fn prunable(&self, retention: &Retention, now: Time) -> Vec<TaskNo> {
        let old = |row: &TaskRow| {
            Standing::of(row) == Standing::Over
                && row.ended().is_some_and(|ended| now.since(ended.at) >= retention.ended)
        };
        self.tasks.iter().filter(|(_, row)| old(row)).map(|(no, _)| *no).collect()
    }

    /// Removes a task with all below it, unless something there is not over or limits a kept task. What
    /// its descendants left uncollected nobody can collect any more.
    fn remove_subtree(&mut self, no: TaskNo) -> u64 {
        let mut subtree = vec![no];
        let mut at = 0;
        while let Some(&no) = subtree.get(at) {
            let owner = Owner::Task(no);
            let children = self.children.range((owner, TaskNo::FIRST)..);
            subtree.extend(children.take_while(|(of, _)| *of == owner).map(|(_, no)| *no));
            at += 1;
        }
        let kept = |no: &TaskNo| {
            self.tasks.get(no).is_some_and(|row| Standing::of(row) < Standing::Pending)
                || self.limited.range((*no, TaskNo::FIRST)..).next().is_some_and(|(of, _)| of == no)
        };
        if subtree.iter().any(kept) {
            return 0;
        }
        subtree.into_iter().rev().map(|no| u64::from(self.remove_task(no))).sum()
    }

    fn remove_task(&mut self, no: TaskNo) -> bool {
        let Some(row) = self.tasks.remove(&no) else { return false };
        if let Some(key) = &row.spec.key
            && self.lives(row.owner)
        {
            let mark = KeyMark::new(row.owner, row.owner_run, key, no);
            self.marks.insert((row.owner, no), mark);
        }
        let gone = Owner::Task(no);
        self.children.remove(&(row.owner, no));
        if let Some(holder) = limited_by(&row) {
            self.limited.remove(&(holder, no));
        }
        let marks = self.marks.range((gone, TaskNo::FIRST)..).map(|(mark, _)| *mark);
        for mark in marks.take_while(|(owner, _)| *owner == gone).collect::<Vec<_>>() {
            self.marks.remove(&mark);
        }
        let messages = self.recipients.range((gone, MessageNo(0))..).copied();
        for (_, no) in messages.take_while(|(to, _)| *to == gone).collect::<Vec<_>>() {
            self.remove_message(no);
        }
        self.journal.remove(&no);
        self.runs.remove(&no);
        true
    }

    fn remove_message(&mut self, no: MessageNo) {
        if let Some(row) = self.messages.remove(&no) {
            self.recipients.remove(&(row.message.to, no));
        }
    }
}

/// The task that a kept one came from.
fn limited_by(row: &TaskRow) -> Option<TaskNo> {
    row.extra.as_ref().and_then(|extra| extra.limited_by)
}
