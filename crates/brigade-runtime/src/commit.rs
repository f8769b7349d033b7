//! The types of a batch on its way from decided to performed. Each step consumes the one before.

use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::command::Command;
use brigade_model::decide::CommandReply;
use brigade_model::event::{Event, EventRecord};
use brigade_model::event_author::CallerOrigin;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{Lane, Position, Seq, SessionId, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task_tree::{ChangedRows, TaskTree};
use brigade_model::transition::CommandOutputs;
use brigade_store::{Batch, CallAnswer, CallId, NodeId, SessionBatch};
use tokio::sync::oneshot;

use crate::feed::Feed;
use crate::fleet::CallReply;
use crate::loop_input::{LoopInput, OpenReply, SubmitResult, WaitInput};
use crate::performer::TaskId;
use crate::view::{CommittedView, SessionView};

/// The decisions of one turn, before they are stored.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    parts: Vec<SessionOutputs>,
    index: IdMap<SessionId, usize>,
    /// The decided inputs, in their order.
    pub(crate) replies: Vec<DeferredReply>,
    /// Reports that could not be decided.
    pub(crate) undecided: Vec<LoopInput>,
    pub(crate) opened_sessions: Vec<(SessionName, Arc<SessionView>)>,
    /// Sessions into which rows were loaded, perhaps only to read them.
    pub(crate) loaded_sessions: Vec<SessionId>,
}

#[derive(Debug)]
struct SessionOutputs {
    session: SessionId,
    base_seq: Seq,
    outputs: CommandOutputs,
}

/// A decided input and its reply, to be sent after the commit. If the store refuses the batch, the input
/// is decided again.
#[derive(Debug)]
pub(crate) enum DeferredReply {
    Submit {
        session: SessionId,
        command: Command,
        origin: Option<CallerOrigin>,
        reply: oneshot::Sender<SubmitResult<CommandReply>>,
        result: SubmitResult<CommandReply>,
    },
    SubmitAll {
        session: SessionId,
        commands: Vec<Command>,
        origin: Option<CallerOrigin>,
        reply: oneshot::Sender<Vec<SubmitResult<CommandReply>>>,
        results: Vec<SubmitResult<CommandReply>>,
    },
    Open {
        opening: OpeningRequest,
        reply: oneshot::Sender<SubmitResult<OpenReply>>,
        result: SubmitResult<OpenReply>,
    },
    Move {
        session: SessionId,
        to: NodeId,
        reply: oneshot::Sender<SubmitResult<CommandReply>>,
        result: SubmitResult<CommandReply>,
    },
    /// A wait whose condition was met when it arrived.
    Collect(WaitInput, SubmitResult<CommandReply>),
    /// A wait that has waited. It goes on if the ends of its tasks are not stored.
    Wait(WaitInput, SubmitResult<CommandReply>),
    /// A call of another node, which is read again if its answer is not stored.
    Call(CallId, CallReply),
    Report {
        session: SessionId,
        command: Command,
    },
}

/// A request for the open session of a name.
#[derive(Debug)]
pub(crate) struct OpeningRequest {
    pub(crate) name: SessionName,
    /// The limits of a new session.
    pub(crate) limits: Limits,
}

/// The replies, actions and reports that wait for a batch to be stored.
#[derive(Debug, Default)]
pub(crate) struct PendingCommit {
    pub(crate) replies: Vec<DeferredReply>,
    actions: Vec<(SessionId, Action)>,
    pub(crate) undecided: Vec<LoopInput>,
    loaded_sessions: Vec<SessionId>,
}

/// A stored batch. Only this can be published.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The position of the first event; `None` if there is none.
    first_position: Option<Position>,
    batch: Batch,
    replies: Vec<DeferredReply>,
    actions: Vec<(SessionId, Action)>,
    loaded_sessions: Vec<SessionId>,
}

/// A stored and visible batch: a reader who gets an event now also finds its state.
#[derive(Debug)]
pub(crate) struct Published {
    replies: Vec<DeferredReply>,
    acknowledged: Acknowledged,
}

/// A stored, visible and acknowledged batch, whose actions remain to be performed.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    pub(crate) actions: Vec<(SessionId, Action)>,
    pub(crate) ended_tasks: Vec<(SessionId, TaskNo)>,
    pub(crate) touched_sessions: Vec<SessionId>,
}

impl Decided {
    pub(crate) fn add_session_opened(&mut self, session: SessionId, record: Arc<EventRecord>) {
        self.session_outputs(session, Seq(0)).events.push(record);
    }

    /// Returns the outputs of this turn for a session. `base` is its last event before the turn.
    pub(crate) fn session_outputs(&mut self, session: SessionId, base: Seq) -> &mut CommandOutputs {
        if let Some(last) = self.parts.last()
            && last.session == session
        {
            let at = self.parts.len() - 1;
            return &mut self.parts[at].outputs;
        }
        let at = *self.index.entry(session).or_insert_with(|| {
            self.parts.push(SessionOutputs {
                session,
                base_seq: base,
                outputs: CommandOutputs::default(),
            });
            self.parts.len() - 1
        });
        &mut self.parts[at].outputs
    }

    /// Returns the tasks that have ended in this turn.
    pub(crate) fn ended_tasks(&self) -> Vec<TaskId> {
        let events = self.parts.iter().flat_map(|part| &part.outputs.events);
        let ended = events.filter_map(|record| match record.event {
            Event::Ended { no, .. } => Some(TaskId { session: record.session, no }),
            _ => None,
        });
        ended.collect()
    }

    /// Splits the decisions into the batch to store and the part that waits for it.
    pub(crate) fn into_batch(
        self,
        trees: &mut IdMap<SessionId, TaskTree>,
        lane: Lane,
    ) -> (PendingCommit, Batch) {
        let mut pending = PendingCommit {
            replies: self.replies,
            actions: Vec::new(),
            undecided: self.undecided,
            loaded_sessions: self.loaded_sessions,
        };
        let answers = pending.replies.iter().filter_map(DeferredReply::answer).collect();
        let mut batch = Batch { lane, answers, ..Batch::default() };
        for SessionOutputs { session: id, base_seq: base, outputs } in self.parts {
            let Some(tree) = trees.get_mut(&id) else { continue };
            if outputs.events.is_empty() {
                continue;
            }
            pending.actions.extend(outputs.actions.into_iter().map(|action| (id, action)));
            let ChangedRows { tasks, messages } = tree.take_dirty();
            batch.sessions.push(SessionBatch {
                row: tree.row().clone(),
                base,
                events: outputs.events,
                tasks,
                journal: outputs.journal,
                messages,
            });
        }
        (pending, batch)
    }
}

impl DeferredReply {
    /// Returns the reply as it is stored for another node.
    fn answer(&self) -> Option<CallAnswer> {
        let (id, encoded, must_exist) = match self {
            // A result that nobody waits for any more is not collected.
            Self::Wait(wait, result) | Self::Collect(wait, result) => {
                (wait.reply.call()?, CallReply::One(result.clone()).encode(), true)
            }
            Self::Call(id, reply) => (*id, reply.encode(), false),
            _ => return None,
        };
        let unencoded = |refusal| CallReply::One(Err(refusal)).encode();
        let reply = encoded.or_else(unencoded).unwrap_or_default();
        Some(CallAnswer { id, reply, must_exist })
    }

    /// Returns the input to decide again. A call of another node is read again instead.
    fn into_input(self) -> Option<LoopInput> {
        Some(match self {
            Self::Submit { session, command, origin, reply, .. } => {
                LoopInput::Submit { session, command, origin, reply }
            }
            Self::SubmitAll { session, commands, origin, reply, .. } => {
                LoopInput::SubmitAll { session, commands, origin, reply }
            }
            Self::Open { opening: OpeningRequest { name, limits }, reply, .. } => {
                LoopInput::Open { name, limits, reply }
            }
            Self::Move { session, to, reply, .. } => LoopInput::Move { session, to, reply },
            Self::Collect(wait, _) | Self::Wait(wait, _) if wait.reply.call().is_none() => {
                LoopInput::Wait(wait)
            }
            Self::Report { session, command } => LoopInput::Report { session, command },
            Self::Wait(..) | Self::Collect(..) | Self::Call(..) => return None,
        })
    }

    /// Sends the reply, or a refusal in place of it. A refusal that was decided stays. Returns what goes
    /// on instead: reports, and waits if the refusal may pass.
    fn fail(self, refusal: &Refusal) -> Option<LoopInput> {
        let is_passing = refusal.kind == RefusalKind::Unavailable;
        let failed = |result: SubmitResult<CommandReply>| result.and(Err(refusal.clone()));
        match self {
            Self::Submit { reply, result, .. } | Self::Move { reply, result, .. } => {
                let _ = reply.send(failed(result));
            }
            Self::SubmitAll { reply, results, .. } => {
                let _ = reply.send(results.into_iter().map(failed).collect());
            }
            Self::Open { reply, result, .. } => {
                let _ = reply.send(result.and(Err(refusal.clone())));
            }
            // The call of a wait is read again, if it is still there.
            Self::Wait(wait, _) if is_passing && wait.reply.call().is_none() => {
                return Some(LoopInput::Wait(wait));
            }
            Self::Wait(wait, result) | Self::Collect(wait, result) => {
                wait.reply.send(failed(result));
            }
            Self::Call(..) => {}
            Self::Report { session, command } => {
                return Some(LoopInput::Report { session, command });
            }
        }
        None
    }

    fn send(self) {
        match self {
            // A caller that dropped its receiver is not an error.
            Self::Submit { reply, result, .. } | Self::Move { reply, result, .. } => {
                drop(reply.send(result));
            }
            Self::SubmitAll { reply, results, .. } => drop(reply.send(results)),
            Self::Open { reply, result, .. } => drop(reply.send(result)),
            Self::Wait(wait, result) | Self::Collect(wait, result) => wait.reply.send(result),
            Self::Call(..) | Self::Report { .. } => {}
        }
    }
}

impl PendingCommit {
    /// Returns the inputs of a turn that the store has refused, to be decided again.
    pub(crate) fn into_inputs(self) -> Vec<LoopInput> {
        let inputs = self.replies.into_iter().filter_map(DeferredReply::into_input);
        inputs.chain(self.undecided).collect()
    }

    /// Answers callers with the refusal. Returns the inputs to retry.
    pub(crate) fn fail(self, refusal: &Refusal) -> Vec<LoopInput> {
        let failed = self.replies.into_iter().filter_map(|deferred| deferred.fail(refusal));
        failed.chain(self.undecided).collect()
    }
}

impl Committed {
    pub(crate) fn new(first: Position, batch: Batch, pending: PendingCommit) -> Self {
        Self { first_position: Some(first), batch, ..Self::replies_only(pending) }
    }

    /// Returns a commit that changed nothing, so that only replies remain.
    pub(crate) fn replies_only(pending: PendingCommit) -> Self {
        let PendingCommit { replies, actions, loaded_sessions, .. } = pending;
        let batch = Batch::default();
        Self { first_position: None, batch, replies, actions, loaded_sessions }
    }

    #[must_use]
    pub(crate) fn publish(mut self, view: &CommittedView, feed: &Feed) -> Published {
        let mut ended = Vec::new();
        let mut event_count = 0;
        for record in self.batch.events() {
            event_count += 1;
            // The worktree of a lingering task is released with its slot.
            if let Event::Ended { no, .. } | Event::SlotReturned { no } = record.event {
                ended.push((record.session, no));
            }
        }
        // Before the view, so that a reader who finds a state knows up to where its events reach.
        if let Some(first) = self.first_position {
            feed.announce(Position { no: first.no + event_count - 1, ..first });
        }
        let mut touched = self.loaded_sessions;
        for part in &mut self.batch.sessions {
            touched.push(part.row.id);
            view.open(&part.row).update(&part.row, std::mem::take(&mut part.tasks));
        }
        // After the view, so that a subscriber who gets an event also finds its state.
        if let Some(first) = self.first_position {
            feed.publish(first, self.batch.events());
        }
        let acknowledged =
            Acknowledged { actions: self.actions, ended_tasks: ended, touched_sessions: touched };
        Published { replies: self.replies, acknowledged }
    }
}

impl Published {
    #[must_use]
    pub(crate) fn acknowledge(self) -> Acknowledged {
        for deferred in self.replies {
            deferred.send();
        }
        self.acknowledged
    }
}
