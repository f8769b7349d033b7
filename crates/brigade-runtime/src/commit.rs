//! From decided to performed, each step consuming the one before.

use std::collections::HashMap;
use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::decide::Reply;
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{Position, Seq, TaskNo, TreeId};
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::tree::Tree;
use brigade_model::turn::Outputs;
use brigade_store::{Batch, TreeBatch};
use tokio::sync::oneshot;

use crate::feed::Feed;
use crate::input::{Input, Outcome};
use crate::view::{TreeView, View};

/// What one turn came to, before it is stored.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    parts: Vec<Part>,
    index: HashMap<TreeId, usize>,
    pub(crate) acks: Vec<Ack>,
    /// Reports that were taken in, to be tried again if storing fails.
    pub(crate) reports: Vec<Input>,
    /// Reports that could not even be looked at.
    pub(crate) unheard: Vec<Input>,
    pub(crate) opened: Vec<(SessionName, Arc<TreeView>)>,
    /// Trees into which rows were loaded, perhaps only to look at them.
    pub(crate) looked_at: Vec<TreeId>,
}

#[derive(Debug)]
struct Part {
    tree: TreeId,
    base: Seq,
    outputs: Outputs,
}

/// Who is told what, once it is stored.
#[derive(Debug)]
pub(crate) enum Ack {
    One(oneshot::Sender<Outcome<Reply>>, Outcome<Reply>),
    Many(oneshot::Sender<Vec<Outcome<Reply>>>, Vec<Outcome<Reply>>),
    Open(oneshot::Sender<Outcome<Arc<TreeView>>>, Outcome<Arc<TreeView>>),
}

/// What waits for a batch to be stored.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) acks: Vec<Ack>,
    actions: Vec<(TreeId, Action)>,
    reports: Vec<Input>,
    pub(crate) unheard: Vec<Input>,
    looked_at: Vec<TreeId>,
}

/// Stored. Nothing else can be published.
#[derive(Debug)]
pub(crate) struct Committed {
    first: Position,
    batch: Batch,
    acks: Vec<Ack>,
    actions: Vec<(TreeId, Action)>,
    looked_at: Vec<TreeId>,
}

/// Stored and visible: whoever is told of it now also finds it.
#[derive(Debug)]
pub(crate) struct Published {
    acks: Vec<Ack>,
    acknowledged: Acknowledged,
}

/// Stored, visible and acknowledged: what is left is to do it.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    pub(crate) actions: Vec<(TreeId, Action)>,
    pub(crate) ended: Vec<(TreeId, TaskNo)>,
    pub(crate) touched: Vec<TreeId>,
}

impl Decided {
    pub(crate) fn add_first(&mut self, tree: TreeId, record: Arc<EventRecord>) {
        self.outputs(tree, Seq(0)).events.push(record);
    }

    /// What the turn has come to so far for a tree; `base` is its last event if that is nothing.
    pub(crate) fn outputs(&mut self, tree: TreeId, base: Seq) -> &mut Outputs {
        if let Some(last) = self.parts.last()
            && last.tree == tree
        {
            let at = self.parts.len() - 1;
            return &mut self.parts[at].outputs;
        }
        let at = *self.index.entry(tree).or_insert_with(|| {
            self.parts.push(Part { tree, base, outputs: Outputs::default() });
            self.parts.len() - 1
        });
        &mut self.parts[at].outputs
    }

    /// Splits into what is to be stored and what waits for that.
    pub(crate) fn into_batch(self, trees: &mut HashMap<TreeId, Tree>) -> (Pending, Batch) {
        let mut pending = Pending {
            acks: self.acks,
            actions: Vec::new(),
            reports: self.reports,
            unheard: self.unheard,
            looked_at: self.looked_at,
        };
        let mut batch = Batch::default();
        for Part { tree: id, base, outputs } in self.parts {
            let Some(tree) = trees.get_mut(&id) else { continue };
            if outputs.events.is_empty() {
                continue;
            }
            pending.actions.extend(outputs.actions.into_iter().map(|action| (id, action)));
            let (tasks, messages) = tree.take_touched();
            batch.trees.push(TreeBatch {
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

impl Pending {
    /// Storing failed: callers are told, reports are kept.
    pub(crate) fn fail(self, refusal: &Refusal) -> Vec<Input> {
        for ack in self.acks {
            match ack {
                Ack::One(reply, result) => {
                    let _ = reply.send(result.and(Err(refusal.clone())));
                }
                Ack::Many(reply, results) => {
                    let failed = results.into_iter().map(|r| r.and(Err(refusal.clone())));
                    let _ = reply.send(failed.collect());
                }
                Ack::Open(reply, result) => {
                    let _ = reply.send(result.and(Err(refusal.clone())));
                }
            }
        }
        let mut kept = self.reports;
        kept.extend(self.unheard);
        kept
    }
}

impl Committed {
    pub(crate) fn new(first: Position, batch: Batch, pending: Pending) -> Self {
        let Pending { acks, actions, looked_at, .. } = pending;
        Self { first, batch, acks, actions, looked_at }
    }

    /// Nothing was changed, so there is nothing to store: only answers.
    pub(crate) fn nothing_new(pending: Pending) -> Self {
        Self::new(Position(0), Batch::default(), pending)
    }

    #[must_use]
    pub(crate) fn publish(mut self, view: &View, feed: &Feed) -> Published {
        let mut ended = Vec::new();
        for record in self.batch.events() {
            if let Event::Ended { no, .. } = record.event {
                ended.push((record.tree, no));
            }
        }
        let mut touched = self.looked_at;
        for part in &mut self.batch.trees {
            touched.push(part.row.id);
            view.open(&part.row).update(&part.row, std::mem::take(&mut part.tasks));
        }
        // After the view, so that whoever hears of something also finds it.
        if !self.batch.is_empty() {
            feed.publish(self.first, self.batch.events());
        }
        let acknowledged = Acknowledged { actions: self.actions, ended, touched };
        Published { acks: self.acks, acknowledged }
    }
}

impl Published {
    #[must_use]
    pub(crate) fn acknowledge(self) -> Acknowledged {
        for ack in self.acks {
            // A caller that has gone away is not an error.
            match ack {
                Ack::One(reply, result) => drop(reply.send(result)),
                Ack::Many(reply, results) => drop(reply.send(results)),
                Ack::Open(reply, result) => drop(reply.send(result)),
            }
        }
        self.acknowledged
    }
}
