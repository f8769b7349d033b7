//! The loop: the only code that appends events.
//!
//! ```text
//! inputs ── decide_all ──> Decided ── commit ──> Committed ── publish ── acknowledge ── perform
//! ```
//!
//! A `Committed` value is the only thing that can be published, acknowledged and performed, so
//! acting before storing does not compile. The loop never waits for work.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use brigade_model::command::{Command, Gone, Recover};
use brigade_model::decide::Reply;
use brigade_model::ids::{Epoch, Millis, Position, Time, TreeId};
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::needs::{Need, needs};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::tree::{SessionState, Tree};
use brigade_model::turn::{handle_into, open_session};
use brigade_store::{Batch, LoadedTree, Store, StoreError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::commit::{Ack, Committed, Decided};
use crate::error::{in_doubt, refusal};
use crate::feed::Feed;
use crate::ids::new_tree_id;
use crate::input::{Input, Outcome, WaitInput};
use crate::meters::Meters;
use crate::performer::Performers;
use crate::view::{TreeView, View};
use crate::waiters::Waiters;

/// How many inputs one turn takes.
pub(crate) const BATCH: usize = 1024;

/// What the loop is made of.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) performers: Performers,
    pub(crate) view: Arc<View>,
    pub(crate) meters: Meters,
    pub(crate) feed: Arc<Feed>,
    pub(crate) inputs: mpsc::Receiver<Input>,
    /// For the reporters of the attempts that this loop starts.
    pub(crate) sender: mpsc::Sender<Input>,
    /// Cancelled when the last handle is dropped.
    pub(crate) abandoned: CancellationToken,
    /// Cancelled when somebody wants to leave, before the loop gets to hear of it.
    pub(crate) leaving: CancellationToken,
    /// How often a store that fails is still waited for. Without a number, until it is back.
    pub(crate) tries: Option<u32>,
    /// The most inputs per commit; one, for tests that cut between any two.
    pub(crate) batch: usize,
    pub(crate) trees: HashMap<TreeId, Tree>,
    /// What readers see of the trees in memory.
    pub(crate) views: HashMap<TreeId, Arc<TreeView>>,
    pub(crate) waiters: Waiters,
    pub(crate) timers: Timers,
    /// Trees with stops that were too large for one turn.
    pub(crate) sweeping: Vec<TreeId>,
    /// Trees that were given up and are not loaded again yet, for what only they hold.
    pub(crate) unloaded: HashMap<TreeId, Tree>,
    /// Reports whose commit failed.
    pub(crate) retry: Vec<Input>,
    /// Whether the last commit failed.
    pub(crate) failed: bool,
    pub(crate) shutdown: Option<tokio::sync::oneshot::Sender<Outcome<()>>>,
}

/// When each tree next wants to hear of the clock.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    ordered: BTreeSet<(Time, TreeId)>,
    of: HashMap<TreeId, Time>,
}

impl Timers {
    pub(crate) fn set(&mut self, tree: TreeId, due: Option<Time>) {
        if self.of.get(&tree).copied() == due {
            return;
        }
        if let Some(old) = self.of.remove(&tree) {
            self.ordered.remove(&(old, tree));
        }
        if let Some(due) = due {
            self.of.insert(tree, due);
            self.ordered.insert((due, tree));
        }
    }

    fn first(&self) -> Option<Time> {
        self.ordered.first().map(|(due, _)| *due)
    }

    fn due(&self, now: Time) -> Vec<TreeId> {
        self.ordered.iter().take_while(|(due, _)| *due <= now).map(|(_, tree)| *tree).collect()
    }
}

/// One turn's work: what came in, and what the loop owes itself.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) received: Vec<Input>,
    pub(crate) ready: Vec<WaitInput>,
    pub(crate) due: Vec<TreeId>,
    pub(crate) sweeps: Vec<TreeId>,
}

impl Supervisor {
    pub(crate) async fn run(mut self) {
        self.tries = None;
        while let Some(inputs) = self.next_inputs().await {
            let decided = self.decide_all(inputs).await;
            let Some(committed) = self.commit(decided).await else { continue };
            let done = committed.publish(&self.view, &self.feed).acknowledge();
            self.perform(done);
        }
        self.leave().await;
    }

    /// What to do next, or `None` when it is time to leave.
    async fn next_inputs(&mut self) -> Option<Inputs> {
        if self.shutdown.is_some() || self.abandoned.is_cancelled() {
            return None;
        }
        let mut inputs = Inputs { received: std::mem::take(&mut self.retry), ..Inputs::default() };
        if std::mem::take(&mut self.failed) || !inputs.received.is_empty() {
            // The store failed a moment ago: give it one before trying again.
            tokio::select! {
                () = self.abandoned.cancelled() => return None,
                () = tokio::time::sleep(RETRY_PAUSE) => {}
            }
        }
        inputs.sweeps = std::mem::take(&mut self.sweeping);
        let busy = !inputs.received.is_empty()
            || !inputs.sweeps.is_empty()
            || self.waiters.has_ready()
            || self.timers.first().is_some_and(|due| due <= self.clock.now());
        if busy {
            while inputs.received.len() < self.batch
                && let Ok(input) = self.inputs.try_recv()
            {
                inputs.received.push(input);
            }
        } else {
            let due = self.timers.first();
            let clock = self.clock.clone();
            let timer = async move {
                match due {
                    Some(due) => clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.abandoned.cancelled() => return None,
                count = self.inputs.recv_many(&mut inputs.received, self.batch) => {
                    if count == 0 {
                        return None;
                    }
                }
                () = timer => {}
            }
        }
        inputs.ready = self.waiters.take_ready();
        inputs.due = self.timers.due(self.clock.now());
        Some(inputs)
    }

    pub(crate) async fn decide_all(&mut self, inputs: Inputs) -> Decided {
        let now = self.clock.now();
        let mut decided = Decided::default();
        let owed = inputs.due.into_iter().map(|tree| (tree, Command::Tick));
        let owed = owed.chain(inputs.sweeps.into_iter().map(|tree| (tree, Command::Sweep)));
        for (tree, command) in owed {
            if self.decide(tree, &command, now, &mut decided).await.is_err() {
                // The tree cannot be loaded now: look again a little later.
                self.timers.set(tree, Some(now.after(LOOK_AGAIN)));
            }
        }
        for wait in inputs.ready {
            self.decide_wait(wait, now, &mut decided).await;
        }
        for input in inputs.received {
            self.decide_input(input, now, &mut decided).await;
        }
        decided
    }

    async fn decide_input(&mut self, input: Input, now: Time, decided: &mut Decided) {
        match input {
            Input::Open { name, limits, reply } => {
                let result = self.open(name, limits, now, decided).await;
                decided.acks.push(Ack::Open(reply, result));
            }
            Input::One { tree, command, reply } => {
                let result = self.decide(tree, &command, now, decided).await;
                decided.acks.push(Ack::One(reply, result));
            }
            Input::Many { tree, commands, reply } => {
                let mut results = Vec::with_capacity(commands.len());
                for command in &commands {
                    results.push(self.decide(tree, command, now, decided).await);
                }
                decided.acks.push(Ack::Many(reply, results));
            }
            Input::Report { tree, command } => {
                match self.decide(tree, &command, now, decided).await {
                    Ok(_) => decided.reports.push(Input::Report { tree, command }),
                    Err(refusal) if matches!(refusal.kind, UNAVAILABLE | INTERNAL) => {
                        decided.unheard.push(Input::Report { tree, command });
                    }
                    Err(refusal) => tracing::debug!(%refusal, "a late report was passed over"),
                }
            }
            Input::Wait(wait) => self.decide_wait(wait, now, decided).await,
            Input::Unwait { id } => self.waiters.forget(id),
            Input::Shutdown { reply } => self.shutdown = Some(reply),
        }
    }

    async fn decide_wait(&mut self, wait: WaitInput, now: Time, decided: &mut Decided) {
        if wait.reply.is_closed() {
            return;
        }
        let command = Command::Collect(wait.collect.clone());
        match self.decide(wait.tree, &command, now, decided).await {
            Ok(Reply::Pending(pending)) => self.waiters.keep(wait, pending),
            result => decided.acks.push(Ack::One(wait.reply, result)),
        }
    }

    /// Decides one command against the tree in memory, with what it needs loaded first.
    pub(crate) async fn decide(
        &mut self,
        id: TreeId,
        command: &Command,
        now: Time,
        decided: &mut Decided,
    ) -> Outcome<Reply> {
        let resolved = self.performers.resolve(command);
        let command = resolved.as_ref().unwrap_or(command);
        self.load(id).await?;
        let Some(tree) = self.trees.get_mut(&id) else {
            return Err(Refusal::not_found("there is no such session"));
        };
        let mut looked_for = Vec::new();
        loop {
            let missing = needs(tree, command);
            if missing.is_empty() || missing == looked_for {
                break;
            }
            decided.looked_at.push(id);
            load_missing(&*self.store, tree, &missing).await.map_err(|e| refusal(&e))?;
            looked_for = missing;
        }
        handle_into(tree, command, now, decided.outputs(id, tree.row().seq))
    }

    /// Brings a tree into memory.
    pub(crate) async fn load(&mut self, id: TreeId) -> Outcome<()> {
        self.load_stored(id).await.map_err(|e| refusal(&e))
    }

    pub(crate) async fn load_stored(&mut self, id: TreeId) -> Result<(), StoreError> {
        if self.trees.contains_key(&id) {
            return Ok(());
        }
        let loaded = self.store.load(id).await?;
        let given_up = self.unloaded.remove(&id);
        if given_up.is_some() {
            self.waiters.ask_again(id);
        }
        let Some(mut loaded) = loaded else { return Ok(()) };
        if let Some(given_up) = given_up {
            keep_attachments(&given_up, &mut loaded);
        }
        let tree = loaded.into_tree();
        let view = self.view.open(tree.row());
        view.update(tree.row(), tree.shared_rows().map(|(no, row)| (no, row.clone())));
        self.timers.set(id, tree.next_due());
        if tree.has_sweep() {
            self.sweeping.push(id);
        }
        self.views.insert(id, view);
        self.trees.insert(id, tree);
        Ok(())
    }

    async fn open(
        &mut self,
        name: SessionName,
        limits: Limits,
        now: Time,
        decided: &mut Decided,
    ) -> Outcome<Arc<TreeView>> {
        let opened_now = decided.opened.iter().find(|(other, _)| *other == name);
        if let Some((_, view)) = opened_now {
            return Ok(view.clone());
        }
        let stored = self.store.tree_named(&name).await.map_err(|e| refusal(&e))?;
        if let Some(row) = stored
            && row.state != SessionState::Closed
        {
            self.load(row.id).await?;
            return Ok(self.view.open(&row));
        }
        let id = new_tree_id();
        let (tree, record) = open_session(id, name.clone(), limits, (now, Epoch(1)));
        let view = self.view.open(tree.row());
        self.views.insert(id, view.clone());
        self.trees.insert(id, tree);
        decided.opened.push((name, view.clone()));
        decided.add_first(id, record);
        Ok(view)
    }

    /// Stores what was decided. `None` when that failed: everybody has been told.
    pub(crate) async fn commit(&mut self, decided: Decided) -> Option<Committed> {
        let (mut pending, batch) = decided.into_batch(&mut self.trees);
        if batch.is_empty() {
            self.retry = std::mem::take(&mut pending.unheard);
            return Some(Committed::nothing_new(pending));
        }
        let began = Instant::now();
        let error = match self.store.commit(&batch).await {
            Ok(first) => {
                self.meters.committed(&batch, &self.trees, began.elapsed());
                self.retry = std::mem::take(&mut pending.unheard);
                return Some(Committed::new(first, batch, pending));
            }
            Err(error) => error,
        };
        tracing::warn!(%error, "a commit failed");
        self.meters.commit_failed();
        let found = match error {
            StoreError::Fenced(_) => Ok(None),
            _ => self.find_out(&batch).await,
        };
        let told = match found {
            Ok(Some(first)) => {
                self.meters.committed(&batch, &self.trees, began.elapsed());
                self.retry = std::mem::take(&mut pending.unheard);
                return Some(Committed::new(first, batch, pending));
            }
            Ok(None) => refusal(&error),
            Err(in_doubt) => in_doubt,
        };
        self.failed = true;
        for part in &batch.trees {
            self.load_again(part.row.id).await;
        }
        self.retry = pending.fail(&told);
        None
    }

    /// Goes back to what is stored of a tree. What was decided against the state that is given up
    /// is decided anew: waits, and stops that are on their way.
    async fn load_again(&mut self, id: TreeId) {
        let given_up = self.trees.remove(&id);
        self.timers.set(id, None);
        self.unloaded.extend(given_up.map(|tree| (id, tree)));
        if let Err(refusal) = self.load(id).await {
            tracing::warn!(%refusal, "a tree could not be loaded again");
            self.timers.set(id, Some(self.clock.now().after(LOOK_AGAIN)));
        }
    }

    /// After a failed commit: whether the batch is there all the same. Being one transaction it is
    /// there whole or not at all, so one tree's position tells. Refused when the store does not
    /// say, and there is no more time to wait for it.
    async fn find_out(&mut self, batch: &Batch) -> Outcome<Option<Position>> {
        let Some(part) = batch.trees.first() else { return Ok(None) };
        loop {
            let stored = self.store.tree(part.row.id).await;
            let last = self.store.last_position().await;
            match (stored, last) {
                (Ok(stored), Ok(last)) => {
                    let there = stored.is_some_and(|row| row.seq == part.row.seq);
                    let count = batch.events().count() as u64;
                    return Ok(there.then(|| Position(last.0 + 1 - count)));
                }
                (Err(error), _) | (_, Err(error)) => {
                    tracing::warn!(%error, "the store does not say whether a commit is there");
                }
            }
            if !self.wait_for_store().await {
                return Err(in_doubt());
            }
        }
    }

    /// Gives a store that failed a moment. `false` when it has had its chances.
    async fn wait_for_store(&mut self) -> bool {
        if self.leaving.is_cancelled() {
            self.tries.get_or_insert(LAST_TRIES);
        }
        if let Some(tries) = &mut self.tries {
            let Some(fewer) = tries.checked_sub(1) else { return false };
            *tries = fewer;
        }
        tokio::select! {
            () = self.abandoned.cancelled() => false,
            () = tokio::time::sleep(RETRY_PAUSE) => true,
        }
    }

    /// The end of the loop: what lives only in this process ends, what is stored says so.
    async fn leave(mut self) {
        self.performers.halt().await;
        let Some(reply) = self.shutdown.take() else { return self.feed.close() };
        self.inputs.close();
        let mut last = Inputs { received: std::mem::take(&mut self.retry), ..Inputs::default() };
        while let Ok(input) = self.inputs.try_recv() {
            last.received.push(input);
        }
        loop {
            let decided = self.decide_all(std::mem::take(&mut last)).await;
            self.commit_last(decided).await;
            last.received = std::mem::take(&mut self.retry);
            if last.received.is_empty() || !self.wait_for_store().await {
                break;
            }
        }
        self.waiters.close();
        let mut stored = last.received.is_empty();
        let ids: Vec<TreeId> = self.trees.keys().chain(self.unloaded.keys()).copied().collect();
        for id in ids {
            stored &= self.leave_tree(id).await;
            if !stored && self.tries == Some(0) {
                break;
            }
        }
        self.feed.close();
        // Whoever is told that this is over may open the store again.
        drop(self);
        let not_stored = || Refusal::unavailable("what was left could not all be stored");
        let _ = reply.send(if stored { Ok(()) } else { Err(not_stored()) });
    }

    async fn leave_tree(&mut self, id: TreeId) -> bool {
        loop {
            match self.load(id).await {
                Ok(()) => {
                    let decided = self.recover_tree(id, &Gone::Shutdown).await;
                    if self.commit_last(decided).await {
                        return true;
                    }
                }
                Err(refusal) if refusal.kind == UNAVAILABLE => {}
                Err(_) => return false,
            }
            if !self.wait_for_store().await {
                return false;
            }
        }
    }

    /// Nothing is started any more: what was to start is queued again by what leaving decides.
    async fn commit_last(&mut self, decided: Decided) -> bool {
        let committed = self.commit(decided).await;
        let done = committed.map(|done| done.publish(&self.view, &self.feed).acknowledge());
        done.is_some()
    }

    /// Decides for every task of a tree what becomes of it without its performer. Children come
    /// before their parents.
    pub(crate) async fn recover_tree(&mut self, id: TreeId, why: &Gone) -> Decided {
        let now = self.clock.now();
        let mut decided = Decided::default();
        let Some(tree) = self.trees.get(&id) else { return decided };
        let all: Vec<_> = tree.rows().map(|(no, _)| no).collect();
        for no in all.into_iter().rev() {
            let command = Command::Recover(Recover { no, why: why.clone() });
            let _ = self.decide(id, &command, now, &mut decided).await;
        }
        decided
    }
}

const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// How often starting and leaving wait for a store that fails: one that is gone must not hold them.
pub(crate) const LAST_TRIES: u32 = 10;
const LOOK_AGAIN: Millis = Millis(1_000);
const UNAVAILABLE: RefusalKind = RefusalKind::Unavailable;
const INTERNAL: RefusalKind = RefusalKind::Internal;

/// What only this process holds of a task is not in the store.
fn keep_attachments(given_up: &Tree, loaded: &mut LoadedTree) {
    for (no, row) in &mut loaded.tasks {
        if let Some(held) = given_up.get(*no).filter(|held| held.spec.attachment.is_some()) {
            row.spec = held.spec.clone();
        }
    }
}

async fn load_missing(
    store: &dyn Store,
    tree: &mut Tree,
    missing: &[Need],
) -> Result<(), StoreError> {
    for need in missing {
        let found = match need {
            Need::Task(no) => store.task(tree.id(), *no).await?.map(|row| (*no, row)),
            Need::Named { owner, name } => store.task_named(tree.id(), *owner, name).await?,
        };
        if let Some((no, row)) = found {
            tree.insert_loaded(no, row);
        }
    }
    Ok(())
}
