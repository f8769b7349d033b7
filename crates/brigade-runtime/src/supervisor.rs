//! A loop: the only code that appends events.
//!
//! ```text
//! inputs ── decide_all ──> Decided ── commit ──> Committed ── publish ── acknowledge ── perform
//! ```
//!
//! A `Committed` value is the only thing that can be published, acknowledged and performed, so
//! acting before storing does not compile. The loop never waits for work.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use brigade_model::command::{Command, RecoverCommand, RecoveryFinding};
use brigade_model::decide::CommandReply;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{Lane, Millis, Position, SessionId, Time};
use brigade_model::needs::needs;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task_tree::TaskTree;
use brigade_model::transition::{SubmittedCommand, handle_command_into};
use brigade_store::{Batch, CallId, EventQuery, Store, StoreError, load_needed_rows};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client_waits::ClientWaits;
use crate::clock::Clock;
use crate::commit::{Committed, Decided, DeferredReply, OpeningRequest, PendingCommit};
use crate::drain::DrainState;
use crate::error::{cancelled_refusal, in_doubt_refusal, refused_turn_refusal, store_refusal};
use crate::feed::Feed;
use crate::fleet::{Node, OwnedSessions, while_held};
use crate::loop_input::{LoopInput, SubmitResult, WaitInput};
use crate::loops::{LoopMember, LoopShare};
use crate::performer::PerformerRegistry;
#[cfg(feature = "processes")]
use crate::processes::ProcessService;
use crate::running_slots::{RunningSlots, SlotRequest, SlotUse};
use crate::runtime_metrics::RuntimeMetrics;
use crate::session_timers::SessionTimers;
use crate::view::{CommittedView, SessionView};

/// The number of commands at which a turn takes no more inputs, by default.
pub(crate) const DEFAULT_MAX_BATCH: usize = 1024;

/// The state of a loop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// The sessions of this loop, by their ids.
    pub(crate) share: LoopShare,
    pub(crate) member: LoopMember,
    pub(crate) store: Arc<dyn Store>,
    /// The lane of this writer.
    pub(crate) lane: Lane,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) performers: PerformerRegistry,
    #[cfg(feature = "processes")]
    pub(crate) processes: Option<Arc<ProcessService>>,
    pub(crate) view: Arc<CommittedView>,
    pub(crate) meters: RuntimeMetrics,
    pub(crate) feed: Arc<Feed>,
    pub(crate) inputs: mpsc::Receiver<LoopInput>,
    /// The sender that the reporters of started attempts use.
    pub(crate) sender: mpsc::Sender<LoopInput>,
    /// Cancelled when the last handle is dropped.
    pub(crate) abandoned: CancellationToken,
    /// Cancelled when a shutdown is requested, before the loop takes that input.
    pub(crate) shutdown_token: CancellationToken,
    /// The number of retries left for a failing store. `None` retries until the store is back.
    pub(crate) remaining_tries: Option<u32>,
    /// The number of commands at which a turn takes no more inputs. One for tests that crash between
    /// any two.
    pub(crate) max_batch: usize,
    pub(crate) trees: IdMap<SessionId, TaskTree>,
    /// The views of the sessions in memory, as readers see them.
    pub(crate) views: IdMap<SessionId, Arc<SessionView>>,
    pub(crate) waiters: ClientWaits,
    pub(crate) timers: SessionTimers,
    /// Sessions with stops that were too large for one turn.
    pub(crate) sweeping_sessions: Vec<SessionId>,
    /// Task trees that were discarded and not loaded again yet, with attachments that only they
    /// hold.
    pub(crate) discarded_trees: IdMap<SessionId, TaskTree>,
    /// Sessions that another writer has taken. They are not acquired again.
    pub(crate) lost_sessions: HashSet<SessionId>,
    /// Reports whose commit failed, and requests that find another state now.
    pub(crate) retry_reports: Vec<LoopInput>,
    /// True if the last commit failed.
    pub(crate) last_commit_failed: bool,
    /// The number of turns since the last stored one that the store has refused.
    pub(crate) refused_turns: u32,
    /// The slots that all sessions of the runtime share.
    pub(crate) slots: RunningSlots,
    pub(crate) drain: DrainState,
    pub(crate) shutdown_reply: Option<tokio::sync::oneshot::Sender<SubmitResult<()>>>,
    /// The sessions of a node; `None` if this runtime is the only one.
    pub(crate) owned: Option<OwnedSessions>,
}

/// The work of one turn: received inputs, ready waits, and sessions that are due or have a sweep.
#[derive(Debug, Default)]
pub(crate) struct TurnInputs {
    pub(crate) received: Vec<LoopInput>,
    pub(crate) ready_waits: Vec<WaitInput>,
    pub(crate) due_sessions: Vec<SessionId>,
    pub(crate) sweeping_sessions: Vec<SessionId>,
}

impl Supervisor {
    pub(crate) async fn run(mut self) {
        self.remaining_tries = None;
        while let Some(inputs) = self.next_inputs().await {
            let decided = self.decide_all(inputs).await;
            if let Some(committed) = self.commit(decided).await {
                let done = committed.publish(&self.view, &self.feed).acknowledge();
                self.perform(done);
                self.finish_recovered();
            }
            if self.owned.is_some() {
                self.release_resting().await;
                self.set_load();
            }
            if self.slots.is_idle() {
                self.drain.finish();
            }
        }
        self.shutdown().await;
    }

    /// Returns the inputs of the next turn, or `None` when the loop is to end.
    async fn next_inputs(&mut self) -> Option<TurnInputs> {
        if self.shutdown_reply.is_some() || self.abandoned.is_cancelled() {
            return None;
        }
        let node = self.owned.as_ref().map(|owned| owned.node.clone());
        if node.as_ref().is_some_and(|node| !node.lease.is_held()) {
            self.rejoin().await;
        }
        let mut inputs = TurnInputs {
            received: std::mem::take(&mut self.retry_reports),
            ..TurnInputs::default()
        };
        // A turn that the store has refused is decided again at once, and only once.
        let must_pause = std::mem::take(&mut self.last_commit_failed)
            || !inputs.received.is_empty() && self.refused_turns == 0;
        if must_pause {
            // The store just failed: wait a moment before the next try.
            tokio::select! {
                () = self.abandoned.cancelled() => return None,
                () = tokio::time::sleep(RETRY_PAUSE) => {}
            }
        }
        let retried = inputs.received.len();
        inputs.sweeping_sessions = std::mem::take(&mut self.sweeping_sessions);
        let busy = !inputs.received.is_empty()
            || !inputs.sweeping_sessions.is_empty()
            || self.waiters.has_ready()
            || self.slots.can_grant()
            || self.timers.first().is_some_and(|due| due <= self.clock.now());
        if !busy {
            let next_release = self.owned.as_ref().and_then(OwnedSessions::next_release);
            let due = self.timers.first().into_iter().chain(next_release).min();
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
                input = self.inputs.recv() => inputs.received.push(input?),
                () = timer => {}
                () = node_changed(node.as_deref(), self.share.index) => {}
                () = self.slots.turn_changed() => {}
            }
        }
        // The callers that are ready to run add their inputs, so that one commit stores them.
        let_ready_tasks_run().await;
        self.receive_more(&mut inputs.received, retried);
        inputs.ready_waits = self.waiters.take_ready();
        inputs.due_sessions = self.timers.due(self.clock.now());
        Some(inputs)
    }

    /// Takes the inputs that are there, until the turn has a full batch of new commands. The first
    /// inputs are retried: if they counted, a store that fails for long could keep out a shutdown.
    fn receive_more(&mut self, received: &mut Vec<LoopInput>, retried: usize) {
        let mut commands: usize = received[retried..].iter().map(LoopInput::command_count).sum();
        while commands < self.max_batch
            && let Ok(input) = self.inputs.try_recv()
        {
            commands += input.command_count();
            received.push(input);
        }
    }

    pub(crate) async fn decide_all(&mut self, inputs: TurnInputs) -> Decided {
        let now = self.clock.now();
        let mut decided = Decided::default();
        let ticks = inputs.due_sessions.into_iter().map(|session| (session, Command::Tick));
        let sweeps = inputs.sweeping_sessions.into_iter().map(|session| (session, Command::Sweep));
        for (session, command) in ticks.chain(sweeps) {
            if self.decide(session, (&command).into(), now, &mut decided).await.is_err() {
                self.retry_later(session, now);
            }
        }
        for wait in inputs.ready_waits {
            self.decide_input(LoopInput::Wait(wait), now, &mut decided).await;
        }
        for input in inputs.received {
            self.decide_input(input, now, &mut decided).await;
        }
        self.grant_running_slots(now, &mut decided).await;
        self.decide_ready_waits(now, &mut decided).await;
        decided
    }

    async fn decide_input(&mut self, input: LoopInput, now: Time, decided: &mut Decided) {
        let input = match self.owned {
            Some(_) => self.forward(input).await,
            None => Some(input),
        };
        let Some(input) = input else { return };
        match input {
            LoopInput::Open { name, limits, reply } => {
                let opening = OpeningRequest { name, limits };
                let result = self.find_or_open_session(&opening, now, decided).await;
                decided.replies.push(DeferredReply::Open { opening, reply, result });
            }
            LoopInput::Submit { session, command, origin, reply } => {
                let submitted = SubmittedCommand { command: &command, origin: origin.as_ref() };
                let result = self.decide(session, submitted, now, decided).await;
                let deferred = DeferredReply::Submit { session, command, origin, reply, result };
                decided.replies.push(deferred);
            }
            LoopInput::SubmitAll { session, commands, origin, reply } => {
                let mut results = Vec::with_capacity(commands.len());
                for command in &commands {
                    let submitted = SubmittedCommand { command, origin: origin.as_ref() };
                    results.push(self.decide(session, submitted, now, decided).await);
                }
                let deferred =
                    DeferredReply::SubmitAll { session, commands, origin, reply, results };
                decided.replies.push(deferred);
            }
            LoopInput::Report { session, .. } if self.lost_sessions.contains(&session) => {
                tracing::debug!(%session, "ignored a report for a session of another writer");
            }
            LoopInput::Report { session, command } => {
                match self.decide(session, (&command).into(), now, decided).await {
                    Ok(_) => decided.replies.push(DeferredReply::Report { session, command }),
                    Err(refusal) if matches!(refusal.kind, UNAVAILABLE | INTERNAL) => {
                        decided.undecided.push(LoopInput::Report { session, command });
                    }
                    Err(refusal) => tracing::debug!(%refusal, "ignored a late report"),
                }
            }
            LoopInput::Wait(wait) => self.decide_wait(wait, now, decided).await,
            LoopInput::CancelWait { id } => self.cancel_wait(id),
            LoopInput::Move { session, to, reply } => {
                let result = self.move_session(session, to, now).await;
                decided.replies.push(DeferredReply::Move { session, to, reply, result });
            }
            LoopInput::Claimed { claimed, done } => {
                self.decide_claimed(claimed, now, decided).await;
                let _ = done.send(());
            }
            LoopInput::HoldOwned(owned) => self.hold_owned(owned).await,
            LoopInput::Hosts(nodes) => self.decide_hosts(nodes, now, decided).await,
            LoopInput::Calls(calls) => self.decide_calls(calls, now, decided).await,
            LoopInput::CancelCalls(calls) => {
                calls.into_iter().for_each(|call| self.waiters.remove_call(call));
            }
            LoopInput::Drain { reply } => self.drain.begin(reply),
            LoopInput::Shutdown { reply } => self.shutdown_reply = Some(reply),
        }
    }

    pub(crate) fn cancel_wait(&mut self, id: u64) {
        self.waiters.remove(id);
        if let Some(owned) = &self.owned {
            owned.calls.cancel_wait(id);
        }
    }

    pub(crate) async fn decide_wait(&mut self, wait: WaitInput, now: Time, decided: &mut Decided) {
        if wait.is_cancelled() {
            return wait.reply.send(Err(cancelled_refusal()));
        }
        match self.decide_collect(&wait, now, decided).await {
            Ok(CommandReply::Pending(pending)) => self.waiters.add(wait, pending),
            // Only the owner of a session answers its calls.
            Err(_) if !self.trees.contains_key(&wait.session) && wait.reply.call().is_some() => {
                self.turn_failed(wait.reply.call().as_slice());
            }
            // A wait of another node is answered only while the call is there.
            result if wait.reply.call().is_some() => {
                decided.replies.push(DeferredReply::Wait(wait, result));
            }
            result => decided.replies.push(DeferredReply::Collect(wait, result)),
        }
    }

    async fn decide_collect(
        &mut self,
        wait: &WaitInput,
        now: Time,
        decided: &mut Decided,
    ) -> SubmitResult<CommandReply> {
        let command = Command::Collect(wait.collect.clone());
        let submitted = SubmittedCommand { command: &command, origin: wait.origin.as_ref() };
        self.decide(wait.session, submitted, now, decided).await
    }

    /// Decides the waits for tasks that have ended in this turn. Their results are collected in the
    /// commit of the ends.
    async fn decide_ready_waits(&mut self, now: Time, decided: &mut Decided) {
        if self.waiters.is_empty() {
            return;
        }
        for task in decided.ended_tasks() {
            self.waiters.task_ended(task.session, task.no);
        }
        for wait in self.waiters.take_ready() {
            if wait.is_cancelled() {
                wait.reply.send(Err(cancelled_refusal()));
                continue;
            }
            match self.decide_collect(&wait, now, decided).await {
                Ok(CommandReply::Pending(pending)) => self.waiters.add(wait, pending),
                // If the commit fails, the task has not ended, and the wait goes on.
                result => decided.replies.push(DeferredReply::Wait(wait, result)),
            }
        }
    }

    /// Decides one command against the session in memory, after loading the rows that it needs.
    pub(crate) async fn decide(
        &mut self,
        id: SessionId,
        submitted: SubmittedCommand<'_>,
        now: Time,
        decided: &mut Decided,
    ) -> SubmitResult<CommandReply> {
        self.load_session(id).await?;
        if self.owned.is_some() {
            self.recover_acquired(id, decided).await;
        }
        let request = SlotRequest { session: id, slot_use: SlotUse::Command };
        self.decide_with_slots(request, submitted, now, decided).await
    }

    /// Decides one command with the slots that its session may use.
    pub(crate) async fn decide_with_slots(
        &mut self,
        request: SlotRequest,
        submitted: SubmittedCommand<'_>,
        now: Time,
        decided: &mut Decided,
    ) -> SubmitResult<CommandReply> {
        let SlotRequest { session: id, slot_use } = request;
        self.load_session(id).await?;
        let resolved = self.performers.resolve(submitted.command);
        let command = resolved.as_ref().unwrap_or(submitted.command);
        let Some(tree) = self.trees.get_mut(&id) else {
            return Err(Refusal::not_found("there is no such session"));
        };
        let mut requested = Vec::new();
        loop {
            let missing = needs(tree, command);
            if missing.is_empty() || missing == requested {
                break;
            }
            decided.loaded_sessions.push(id);
            let node = self.owned.as_ref().map(|owned| &*owned.node);
            let loading = load_needed_rows(&*self.store, tree, &missing);
            while_held(node, loading).await.map_err(|error| store_refusal(&error))?;
            requested = missing;
        }
        self.drain.check(tree, command, now)?;
        let outputs = decided.session_outputs(id, tree.row().seq);
        let submitted = SubmittedCommand { command, ..submitted };
        self.slots.decide(tree, slot_use, |tree| handle_command_into(tree, submitted, now, outputs))
    }

    /// Stores the decisions of a turn. Returns `None` if that failed; callers have got the error.
    pub(crate) async fn commit(&mut self, decided: Decided) -> Option<Committed> {
        let (mut pending, batch) = decided.into_batch(&mut self.trees, self.lane);
        if batch.is_empty() {
            self.refused_turns = 0;
            self.retry_reports.append(&mut pending.undecided);
            return Some(Committed::replies_only(pending));
        }
        let answered: Vec<CallId> = batch.answers.iter().map(|answer| answer.id).collect();
        let started_at = Instant::now();
        let error = match self.while_held(self.store.commit(&batch)).await {
            Ok(first) => {
                self.refused_turns = 0;
                self.turn_stored(&answered);
                self.meters.count_batch(&batch, &self.trees, started_at.elapsed());
                self.retry_reports.append(&mut pending.undecided);
                return Some(Committed::new(first, batch, pending));
            }
            Err(error) => error,
        };
        tracing::warn!(%error, "a commit failed");
        self.meters.count_commit_failure();
        let is_refused = matches!(
            error,
            StoreError::Fenced(_) | StoreError::NameTaken(_) | StoreError::CallClosed { .. }
        );
        let found = match is_refused {
            true => Ok(None),
            false => self.find_committed(&batch).await,
        };
        if let Ok(Some(first)) = found {
            self.turn_stored(&answered);
            self.meters.count_batch(&batch, &self.trees, started_at.elapsed());
            self.retry_reports.append(&mut pending.undecided);
            return Some(Committed::new(first, batch, pending));
        }
        if matches!(error, StoreError::Fenced(_)) {
            self.check_node().await;
        }
        self.turn_failed(&answered);
        for part in &batch.sessions {
            self.reload_session(part.row.id).await;
        }
        match found {
            Err(in_doubt) => self.fail_turn(pending, &in_doubt),
            Ok(_) if is_refused => self.decide_again(pending),
            Ok(_) => self.fail_turn(pending, &store_refusal(&error)),
        }
        self.repeat_recovery();
        None
    }

    /// Refuses the callers of a turn that was not stored.
    fn fail_turn(&mut self, pending: PendingCommit, refusal: &Refusal) {
        self.last_commit_failed = true;
        for input in pending.fail(refusal) {
            match input {
                LoopInput::Wait(wait) => self.waiters.requeue(wait),
                input => self.retry_reports.push(input),
            }
        }
    }

    /// Decides the inputs of a turn again that the store has refused, so that their callers notice
    /// nothing. The store has nothing of the turn. Another writer has a session of it, or a name, or a
    /// wait of another node has no call any more. The sessions were loaded again or given up, and calls
    /// that still exist are read again.
    fn decide_again(&mut self, pending: PendingCommit) {
        self.refused_turns += 1;
        if self.refused_turns > REFUSED_TURNS_MAX {
            return self.fail_turn(pending, &refused_turn_refusal());
        }
        self.last_commit_failed = self.refused_turns > 1;
        self.retry_reports.extend(pending.into_inputs());
    }

    /// Reloads a session from the store. Waits and stops that were decided against the discarded
    /// state are decided again.
    async fn reload_session(&mut self, id: SessionId) {
        let discarded = self.trees.remove(&id);
        self.timers.set(id, None);
        self.discarded_trees.extend(discarded.map(|tree| (id, tree)));
        if let Err(refusal) = self.load_session(id).await {
            tracing::warn!(%refusal, "a session could not be reloaded");
            self.retry_later(id, self.clock.now());
        }
    }

    /// Tries a session that cannot be loaded now again a little later, unless it is lost.
    pub(crate) fn retry_later(&mut self, id: SessionId, now: Time) {
        let is_lost = self.lost_sessions.contains(&id);
        self.timers.set(id, (!is_lost).then(|| now.after(RELOAD_PAUSE)));
    }

    /// Returns the position of a batch whose commit failed but which the store holds.
    ///
    /// A batch is one transaction, so its first event is enough to tell. An event of another writer in
    /// its place is in another lane. Refuses if the store does not say and there is no more time to
    /// wait for it.
    async fn find_committed(&mut self, batch: &Batch) -> SubmitResult<Option<Position>> {
        let Some(first) = batch.events().next() else { return Ok(None) };
        let query = EventQuery {
            session: Some(first.session),
            after: self.feed.visible_cursor(),
            limit: usize::MAX,
        };
        loop {
            // Without this, a batch that is not there could still arrive.
            let request = async {
                self.store.refuse_late_commits(self.lane).await?;
                self.store.events(&query).await
            };
            match self.while_held(request).await {
                Ok(page) => {
                    let found = page.items.iter().find(|item| {
                        item.position.lane == self.lane
                            && item.record.seq == first.seq
                            && item.record.at == first.at
                    });
                    return Ok(found.map(|item| item.position));
                }
                Err(error) => {
                    tracing::warn!(%error, "the store does not say whether it has the commit");
                }
            }
            if !self.is_held() || !self.wait_for_store().await {
                return Err(in_doubt_refusal());
            }
        }
    }

    /// Waits a moment for a failing store. Returns false when no retries remain.
    pub(crate) async fn wait_for_store(&mut self) -> bool {
        if self.shutdown_token.is_cancelled() {
            self.remaining_tries.get_or_insert(STORE_TRIES_MAX);
        }
        if let Some(tries) = &mut self.remaining_tries {
            let Some(fewer) = tries.checked_sub(1) else { return false };
            *tries = fewer;
        }
        tokio::select! {
            () = self.abandoned.cancelled() => false,
            () = tokio::time::sleep(RETRY_PAUSE) => true,
        }
    }

    /// Decides for every task of a session how it continues without its performer. Children come
    /// before their parents.
    pub(crate) async fn recover_session(
        &mut self,
        id: SessionId,
        finding: &RecoveryFinding,
        decided: &mut Decided,
    ) {
        let now = self.clock.now();
        let Some(tree) = self.trees.get(&id) else { return };
        let all: Vec<_> = tree.rows().map(|(no, _)| no).collect();
        for no in all.into_iter().rev() {
            let command = Command::Recover(RecoverCommand { no, finding: finding.clone() });
            let _ = self.decide(id, (&command).into(), now, decided).await;
        }
    }
}

/// Lets the tasks that are ready on this thread run first. Tokio's `yield_now` also polls its driver,
/// which costs more than a commit to memory.
async fn let_ready_tasks_run() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits until a node has lost its lease, or begins to drain.
async fn node_changed(node: Option<&Node>, loop_index: usize) {
    let Some(node) = node else { return std::future::pending().await };
    tokio::select! {
        () = node.lease.wait_lost() => {}
        () = node.loops[loop_index].drain_changed.notified() => {}
    }
}

const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// The number of turns in succession that are decided again after the store has refused them.
const REFUSED_TURNS_MAX: u32 = 8;
/// The number of retries for a failing store at start and shutdown, so that neither hangs.
pub(crate) const STORE_TRIES_MAX: u32 = 10;
pub(crate) const RELOAD_PAUSE: Millis = Millis(1_000);
const UNAVAILABLE: RefusalKind = RefusalKind::Unavailable;
const INTERNAL: RefusalKind = RefusalKind::Internal;
