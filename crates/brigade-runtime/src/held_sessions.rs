//! The sessions of a loop: it opens them, acquires them from the store, loads them again after a
//! failed commit, and gives them up when another writer has acquired them.

use std::sync::Arc;

use brigade_model::ids::{Epoch, SessionId, Time};
use brigade_model::task_tree::{SessionState, TaskTree};
use brigade_model::transition::{SessionOpening, open_session};
use brigade_store::{AcquireResult, LoadedSession, StoreError};

use crate::commit::{Decided, OpeningRequest};
use crate::error::{lost_session_refusal, owned_elsewhere_refusal, store_refusal};
use crate::fleet::refresh_view;
use crate::loop_input::{LoopInput, OpenReply, OpenedView, SubmitResult};
use crate::performer::TaskId;
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Loads a session into memory.
    pub(crate) async fn load_session(&mut self, id: SessionId) -> SubmitResult<()> {
        match self.load_from_store(id).await {
            Err(_) if self.lost_sessions.contains(&id) => Err(lost_session_refusal()),
            Err(_) if self.owned.as_ref().is_some_and(|owned| owned.is_elsewhere(id)) => {
                Err(owned_elsewhere_refusal())
            }
            loaded => loaded.map_err(|error| store_refusal(&error)),
        }
    }

    pub(crate) async fn load_from_store(&mut self, id: SessionId) -> Result<(), StoreError> {
        if self.trees.contains_key(&id) {
            return Ok(());
        }
        if self.lost_sessions.contains(&id) {
            return Err(fenced_error(id));
        }
        let held_epoch = self.discarded_trees.get(&id).map(|tree| tree.row().epoch);
        if self.owned.is_some() && held_epoch.is_none() {
            return self.acquire_in_fleet(id).await;
        }
        let loaded = self.while_held(self.store.load(id)).await?;
        let loaded = match (loaded, held_epoch) {
            (Some(loaded), Some(epoch)) if loaded.row.epoch != epoch => {
                self.give_up_session(id);
                return Err(fenced_error(id));
            }
            (Some(loaded), None) => self.acquire(loaded).await?,
            (loaded, _) => loaded,
        };
        self.hold_session(id, loaded);
        Ok(())
    }

    /// Loads a session of an earlier process. Returns false if nothing in it continues; it is then
    /// loaded on its next request.
    pub(crate) async fn load_unfinished(&mut self, id: SessionId) -> Result<bool, StoreError> {
        let loaded = self.store.load(id).await?.filter(|loaded| !loaded.tasks.is_empty());
        let Some(loaded) = loaded else { return Ok(false) };
        let acquired = self.acquire(loaded).await?;
        self.hold_session(id, acquired);
        Ok(self.trees.contains_key(&id))
    }

    /// Acquires a loaded session. Returns `None` if it was removed meanwhile.
    async fn acquire(
        &self,
        mut loaded: LoadedSession,
    ) -> Result<Option<LoadedSession>, StoreError> {
        loop {
            match self.store.acquire(self.lane, &loaded.row).await? {
                AcquireResult::Acquired(acquired) => {
                    loaded.row.epoch = acquired.epoch;
                    return Ok(Some(loaded));
                }
                AcquireResult::Owned | AcquireResult::LabelsMissing => {
                    return Err(fenced_error(loaded.row.id));
                }
                // Another writer has changed it.
                AcquireResult::Changed => match self.store.load(loaded.row.id).await? {
                    Some(again) => loaded = again,
                    None => return Ok(None),
                },
            }
        }
    }

    /// Puts a loaded session into memory, in the place of a discarded one.
    pub(crate) fn hold_session(&mut self, id: SessionId, loaded: Option<LoadedSession>) {
        let discarded = self.discarded_trees.remove(&id);
        if discarded.is_some() {
            self.waiters.requeue_session(id);
        }
        let Some(mut loaded) = loaded else {
            // Its opening was not stored.
            self.views.remove(&id);
            return;
        };
        if let Some(discarded) = discarded {
            carry_over_attachments(&discarded, &mut loaded);
        }
        let mut tree = loaded.into_tree();
        tree.set_host(self.host());
        let view = self.view.open(tree.row());
        view.hold(tree.row(), tree.shared_rows());
        self.timers.set(id, tree.next_due());
        if tree.has_sweep() {
            self.sweeping_sessions.push(id);
        }
        self.slots.observe(&tree);
        self.views.insert(id, view);
        self.trees.insert(id, tree);
    }

    /// Returns the host of the processes that this runtime starts.
    fn host(&self) -> Option<Arc<str>> {
        #[cfg(feature = "processes")]
        return self.processes.as_ref().map(|processes| processes.host.clone());
        #[cfg(not(feature = "processes"))]
        None
    }

    /// Ends what this runtime does for a session that another writer has taken. Work that outlives
    /// this process continues.
    pub(crate) fn give_up_session(&mut self, id: SessionId) {
        tracing::warn!(session = %id, "another writer has taken the session");
        let trees = [self.trees.remove(&id), self.discarded_trees.remove(&id)];
        for (no, row) in trees.iter().flatten().flat_map(TaskTree::rows) {
            let task = TaskId { session: id, no };
            if let Some(performer) = self.performers.get(&row.spec.work.kind()) {
                performer.halt(task);
            }
        }
        // Readers that hold the view read the store from now on.
        if let Some(view) = self.views.remove(&id) {
            view.release();
            view.evict_all();
        }
        self.timers.set(id, None);
        self.sweeping_sessions.retain(|other| *other != id);
        self.slots.forget(id);
        if let Some(owned) = &mut self.owned {
            if let Some(tree) = trees.iter().flatten().next() {
                owned.note_given_up(id, tree.row().epoch);
            }
            // The next turn sends them to the new owner.
            let waits = self.waiters.take_all_of(id);
            self.retry_reports.extend(waits.into_iter().map(LoopInput::Wait));
            return self.forget_session(id);
        }
        self.lost_sessions.insert(id);
        self.waiters.refuse_session(id, &lost_session_refusal());
    }

    pub(crate) async fn find_or_open_session(
        &mut self,
        opening: &OpeningRequest,
        now: Time,
        decided: &mut Decided,
    ) -> SubmitResult<OpenReply> {
        let OpeningRequest { name, limits } = opening;
        let opened_in_turn = decided.opened_sessions.iter().find(|(other, _)| other == name);
        if let Some((_, view)) = opened_in_turn {
            return Ok(OpenReply::Opened(OpenedView { view: view.clone(), opened: false }));
        }
        let stored = self.while_held(self.store.session_named(name)).await;
        let stored = stored.map_err(|error| store_refusal(&error))?;
        if let Some(row) = stored
            && row.state != SessionState::Closed
        {
            if !self.share.includes(row.id) {
                return Ok(OpenReply::OfLoop(row.id));
            }
            let view = self.view.open(&row);
            match self.load_session(row.id).await {
                Err(_) if self.owned.as_ref().is_some_and(|owned| owned.is_elsewhere(row.id)) => {
                    let refreshing = refresh_view(&self.view, &*self.store, row.id);
                    let refreshed = async {
                        refreshing.await;
                        Ok(())
                    };
                    let _ = self.while_held(refreshed).await;
                }
                loaded => loaded?,
            }
            self.recover_acquired(row.id, decided).await;
            return Ok(OpenReply::Opened(OpenedView { view, opened: false }));
        }
        let id = self.share.new_session_id();
        let (mut tree, record) = open_session(SessionOpening {
            id,
            name: name.clone(),
            limits: *limits,
            at: now,
            epoch: Epoch::FIRST,
        });
        tree.set_host(self.host());
        let view = self.view.open(tree.row());
        view.hold(tree.row(), []);
        self.views.insert(id, view.clone());
        self.trees.insert(id, tree);
        decided.opened_sessions.push((name.clone(), view.clone()));
        decided.add_session_opened(id, record);
        Ok(OpenReply::Opened(OpenedView { view, opened: true }))
    }
}

fn fenced_error(id: SessionId) -> StoreError {
    StoreError::Fenced(format!("session {id}"))
}

/// Copies attachments, which the store does not hold, from a discarded tree to its reloaded rows.
fn carry_over_attachments(discarded: &TaskTree, loaded: &mut LoadedSession) {
    for task in &mut loaded.tasks {
        if let Some(held) = discarded.get(task.no).filter(|held| held.spec.attachment.is_some()) {
            Arc::make_mut(&mut task.row).spec = held.spec.clone();
        }
    }
}
