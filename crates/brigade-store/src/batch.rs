//! What one commit writes.

use std::sync::Arc;

use brigade_model::call::Entry;
use brigade_model::event::EventRecord;
use brigade_model::ids::{Seq, TaskNo};
use brigade_model::task::TaskRow;
use brigade_model::tree::{MessageRow, TreeRow};

/// Everything that happened in one turn of the loop, in any number of trees.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub trees: Vec<TreeBatch>,
}

/// One tree's part of it.
#[derive(Clone, Debug)]
pub struct TreeBatch {
    /// The tree after the batch. Its epoch must be the stored one.
    pub row: TreeRow,
    /// The last event before the batch; zero for a new tree.
    pub base: Seq,
    /// Numbered from `base + 1` without a gap.
    pub events: Vec<Arc<EventRecord>>,
    pub tasks: Vec<(TaskNo, TaskRow)>,
    pub journal: Vec<(TaskNo, Entry)>,
    /// Later entries for the same message replace earlier ones.
    pub messages: Vec<MessageRow>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    pub fn events(&self) -> impl Iterator<Item = &Arc<EventRecord>> {
        self.trees.iter().flat_map(|tree| &tree.events)
    }
}
