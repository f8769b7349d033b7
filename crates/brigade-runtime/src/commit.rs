//! From decided to performed, each step consuming the one before.

use std::collections::HashMap;
use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::decide::CommandReply;
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{Position, Seq, SessionId, TaskNo};
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::TaskTree;
use brigade_model::transition::CommandOutputs;
use brigade_store::{Batch, SessionBatch};
use tokio::sync::oneshot;

use crate::feed::Feed;
use crate::loop_input::{LoopInput, SubmitResult};
use crate::view::{CommittedView, SessionView};

/// What one turn came to, before it is stored.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    parts: Vec<SessionOutputs>,
    index: HashMap<SessionId, usize>,
    pub(crate) replies: Vec<DeferredReply>,
    /// Reports that were taken in, to be tried again if storing fails.
    pub(crate) reports: Vec<LoopInput>,
    /// Reports that could not even be looked at.
    pub(crate) undecided: Vec<LoopInput>,
    pub(crate) opened_sessions: Vec<(SessionName, Arc<SessionView>)>,
    /// Trees into which rows were loaded, perhaps only to look at them.
    pub(crate) loaded_sessions: Vec<SessionId>,
}

#[derive(Debug)]
struct SessionOutputs {
    session: SessionId,
    base_seq: Seq,
    outputs: CommandOutputs,
}

/// Who is told what, once it is stored.
#[derive(Debug)]
pub(crate) enum DeferredReply {
    One(oneshot::Sender<SubmitResult<CommandReply>>, SubmitResult<CommandReply>),
    Many(oneshot::Sender<Vec<SubmitResult<CommandReply>>>, Vec<SubmitResult<CommandReply>>),
    Open(oneshot::Sender<SubmitResult<Arc<SessionView>>>, SubmitResult<Arc<SessionView>>),
}

/// What waits for a batch to be stored.
#[derive(Debug, Default)]
pub(crate) struct PendingCommit {
    pub(crate) replies: Vec<DeferredReply>,
    actions: Vec<(SessionId, Action)>,
    reports: Vec<LoopInput>,
    pub(crate) undecided: Vec<LoopInput>,
    loaded_sessions: Vec<SessionId>,
}

/// Stored. Nothing else can be published.
#[derive(Debug)]
pub(crate) struct Committed {
    first_position: Position,
    batch: Batch,
    replies: Vec<DeferredReply>,
    actions: Vec<(SessionId, Action)>,
    loaded_sessions: Vec<SessionId>,
}

/// Stored and visible: whoever is told of it now also finds it.
#[derive(Debug)]
pub(crate) struct Published {
    replies: Vec<DeferredReply>,
    acknowledged: Acknowledged,
}

/// Stored, visible and acknowledged: what is left is to do it.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    pub(crate) actions: Vec<(SessionId, Action)>,
    pub(crate) ended_tasks: Vec<(SessionId, TaskNo)>,
    pub(crate) touched_sessions: Vec<SessionId>,
}

impl Decided {
    pub(crate) fn add_session_opened(&mut self, tree: SessionId, record: Arc<EventRecord>) {
        self.session_outputs(tree, Seq(0)).events.push(record);
    }

    /// What the turn has come to so far for a tree; `base` is its last event if that is nothing.
    pub(crate) fn session_outputs(&mut self, tree: SessionId, base: Seq) -> &mut CommandOutputs {
        if let Some(last) = self.parts.last()
            && last.session == tree
        {
            let at = self.parts.len() - 1;
            return &mut self.parts[at].outputs;
        }
        let at = *self.index.entry(tree).or_insert_with(|| {
            self.parts.push(SessionOutputs {
                session: tree,
                base_seq: base,
                outputs: CommandOutputs::default(),
            });
            self.parts.len() - 1
        });
        &mut self.parts[at].outputs
    }

    /// Splits into what is to be stored and what waits for that.
    pub(crate) fn into_batch(
        self,
        trees: &mut HashMap<SessionId, TaskTree>,
    ) -> (PendingCommit, Batch) {
        let mut pending = PendingCommit {
            replies: self.replies,
            actions: Vec::new(),
            reports: self.reports,
            undecided: self.undecided,
            loaded_sessions: self.loaded_sessions,
        };
        let mut batch = Batch::default();
        for SessionOutputs { session: id, base_seq: base, outputs } in self.parts {
            let Some(tree) = trees.get_mut(&id) else { continue };
            if outputs.events.is_empty() {
                continue;
            }
            pending.actions.extend(outputs.actions.into_iter().map(|action| (id, action)));
            let (tasks, messages) = tree.take_dirty();
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

impl PendingCommit {
    /// Storing failed: callers are told, reports are kept.
    pub(crate) fn fail(self, refusal: &Refusal) -> Vec<LoopInput> {
        for ack in self.replies {
            match ack {
                DeferredReply::One(reply, result) => {
                    let _ = reply.send(result.and(Err(refusal.clone())));
                }
                DeferredReply::Many(reply, results) => {
                    let failed = results.into_iter().map(|r| r.and(Err(refusal.clone())));
                    let _ = reply.send(failed.collect());
                }
                DeferredReply::Open(reply, result) => {
                    let _ = reply.send(result.and(Err(refusal.clone())));
                }
            }
        }
        let mut kept = self.reports;
        kept.extend(self.undecided);
        kept
    }
}

impl Committed {
    pub(crate) fn new(first: Position, batch: Batch, pending: PendingCommit) -> Self {
        let PendingCommit { replies: acks, actions, loaded_sessions: looked_at, .. } = pending;
        Self { first_position: first, batch, replies: acks, actions, loaded_sessions: looked_at }
    }

    /// Nothing was changed, so there is nothing to store: only answers.
    pub(crate) fn replies_only(pending: PendingCommit) -> Self {
        Self::new(Position(0), Batch::default(), pending)
    }

    #[must_use]
    pub(crate) fn publish(mut self, view: &CommittedView, feed: &Feed) -> Published {
        let mut ended = Vec::new();
        for record in self.batch.events() {
            if let Event::Ended { no, .. } = record.event {
                ended.push((record.session, no));
            }
        }
        let mut touched = self.loaded_sessions;
        for part in &mut self.batch.sessions {
            touched.push(part.row.id);
            view.open(&part.row).update(&part.row, std::mem::take(&mut part.tasks));
        }
        // After the view, so that whoever hears of something also finds it.
        if !self.batch.is_empty() {
            feed.publish(self.first_position, self.batch.events());
        }
        let acknowledged =
            Acknowledged { actions: self.actions, ended_tasks: ended, touched_sessions: touched };
        Published { replies: self.replies, acknowledged }
    }
}

impl Published {
    #[must_use]
    pub(crate) fn acknowledge(self) -> Acknowledged {
        for ack in self.replies {
            // A caller that has gone away is not an error.
            match ack {
                DeferredReply::One(reply, result) => drop(reply.send(result)),
                DeferredReply::Many(reply, results) => drop(reply.send(results)),
                DeferredReply::Open(reply, result) => drop(reply.send(result)),
            }
        }
        self.acknowledged
    }
}
