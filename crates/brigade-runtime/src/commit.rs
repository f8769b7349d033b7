//! The types of a batch on its way from decided to performed. Each step consumes the one before.

use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::decide::CommandReply;
use brigade_model::event::{Event, EventRecord};
use brigade_model::id_map::IdMap;
use brigade_model::ids::{Lane, Position, Seq, SessionId, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::{ChangedRows, TaskTree};
use brigade_model::transition::CommandOutputs;
use brigade_store::{Batch, CallAnswer, CallId, SessionBatch};
use tokio::sync::oneshot;

use crate::feed::Feed;
use crate::fleet::CallReply;
use crate::loop_input::{LoopInput, OpenReply, ReplyTo, SubmitResult, WaitInput};
use crate::performer::TaskId;
use crate::view::{CommittedView, SessionView};

/// The decisions of one turn, before they are stored.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    parts: Vec<SessionOutputs>,
    index: IdMap<SessionId, usize>,
    pub(crate) replies: Vec<DeferredReply>,
    /// Reports that were decided, to be retried if the commit fails.
    pub(crate) reports: Vec<LoopInput>,
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

/// A reply and its receiver, to be sent after the commit.
#[derive(Debug)]
pub(crate) enum DeferredReply {
    One(ReplyTo, SubmitResult<CommandReply>),
    /// Replies to the commands of a call of another node.
    ManyOfCall(CallId, Vec<SubmitResult<CommandReply>>),
    Many(oneshot::Sender<Vec<SubmitResult<CommandReply>>>, Vec<SubmitResult<CommandReply>>),
    Wait(WaitInput, SubmitResult<CommandReply>),
    Open {
        opening: OpeningRequest,
        reply: oneshot::Sender<SubmitResult<OpenReply>>,
        result: SubmitResult<OpenReply>,
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
    reports: Vec<LoopInput>,
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
            reports: self.reports,
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
        let (id, reply, must_exist) = match self {
            Self::One(to, result) => (to.call()?, CallReply::One(result.clone()), false),
            // A result that nobody waits for any more is not collected.
            Self::Wait(wait, result) => (wait.reply.call()?, CallReply::One(result.clone()), true),
            Self::ManyOfCall(id, results) => (*id, CallReply::Many(results.clone()), false),
            Self::Many(..) | Self::Open { .. } => return None,
        };
        let unencoded = |refusal| CallReply::One(Err(refusal)).encode();
        let reply = reply.encode().or_else(unencoded).unwrap_or_default();
        Some(CallAnswer { id, reply, must_exist })
    }
}

impl PendingCommit {
    /// Takes out the requests to open sessions, to be decided again.
    pub(crate) fn take_openings(&mut self) -> Vec<LoopInput> {
        let openings = self.replies.extract_if(.., |it| matches!(it, DeferredReply::Open { .. }));
        let inputs = openings.filter_map(|deferred| match deferred {
            DeferredReply::Open { opening: OpeningRequest { name, limits }, reply, .. } => {
                Some(LoopInput::Open { name, limits, reply })
            }
            _ => None,
        });
        inputs.collect()
    }

    /// Takes out the waits, to be decided again.
    pub(crate) fn take_waits(&mut self) -> Vec<WaitInput> {
        let waits = self.replies.extract_if(.., |it| matches!(it, DeferredReply::Wait(..)));
        let inputs = waits.filter_map(|deferred| match deferred {
            DeferredReply::Wait(input, _) => Some(input),
            _ => None,
        });
        inputs.collect()
    }

    /// Answers callers with the refusal and returns the reports to retry.
    pub(crate) fn fail(self, refusal: &Refusal) -> Vec<LoopInput> {
        for deferred in self.replies {
            match deferred {
                DeferredReply::One(reply, result)
                | DeferredReply::Wait(WaitInput { reply, .. }, result) => {
                    reply.send(result.and(Err(refusal.clone())));
                }
                // The call is decided again.
                DeferredReply::ManyOfCall(..) => {}
                DeferredReply::Many(reply, results) => {
                    let failed = results.into_iter().map(|r| r.and(Err(refusal.clone())));
                    let _ = reply.send(failed.collect());
                }
                DeferredReply::Open { reply, result, .. } => {
                    let _ = reply.send(result.and(Err(refusal.clone())));
                }
            }
        }
        let mut to_retry = self.reports;
        to_retry.extend(self.undecided);
        to_retry
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
            match deferred {
                DeferredReply::One(reply, result)
                | DeferredReply::Wait(WaitInput { reply, .. }, result) => reply.send(result),
                DeferredReply::ManyOfCall(..) => {}
                DeferredReply::Many(reply, results) => drop(reply.send(results)),
                DeferredReply::Open { reply, result, .. } => drop(reply.send(result)),
            }
        }
        self.acknowledged
    }
}
