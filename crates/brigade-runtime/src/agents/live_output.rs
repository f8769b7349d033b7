//! The newest output of running agents, in memory, for readers that follow it.
//!
//! An agent never waits for a reader. A reader that is too slow, or comes too late, reads the steps that it
//! missed from the journal.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use brigade_agent::AgentOutput;
use brigade_model::ids::RunNo;
use tokio::sync::watch;

use crate::performer::TaskId;

/// The bytes of output in memory of one agent.
const LIVE_BYTES_MAX: usize = 128 * 1024;
/// The bytes that an item is counted with in addition to its text.
const ITEM_BYTES: usize = 64;

/// The output of all runs that an agent produces or a reader follows.
#[derive(Debug, Default)]
pub(crate) struct LiveOutputs {
    by_run: Mutex<HashMap<AgentRun, Weak<LiveOutput>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AgentRun {
    task: TaskId,
    run: RunNo,
}

/// The newest output of one run.
#[derive(Debug)]
pub(crate) struct LiveOutput {
    /// True if the first item here is the first of the run.
    is_whole: AtomicBool,
    items: Mutex<LiveItems>,
    /// The number of items so far.
    count: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct LiveItems {
    items: VecDeque<AgentOutput>,
    /// The number of items that were removed.
    removed: u64,
    bytes: usize,
}

/// A step and the position of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveStep {
    pub(crate) step: u32,
    pub(crate) position: u64,
}

/// The result of reading at a position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LiveRead {
    Item(AgentOutput),
    /// The item is not there yet.
    Later,
    /// The item was removed.
    Removed,
}

impl LiveOutputs {
    /// Returns the output of a run for its agent. `is_first` is true if nothing of the run is stored.
    pub(crate) fn open_for_agent(
        &self,
        task: TaskId,
        run: RunNo,
        is_first: bool,
    ) -> Arc<LiveOutput> {
        self.open(AgentRun { task, run }, is_first)
    }

    /// Returns the output of a run for a reader.
    pub(crate) fn open_for_reader(&self, task: TaskId, run: RunNo) -> Arc<LiveOutput> {
        self.open(AgentRun { task, run }, false)
    }

    fn open(&self, run: AgentRun, is_whole: bool) -> Arc<LiveOutput> {
        let mut by_run = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(output) = by_run.get(&run).and_then(Weak::upgrade) {
            return output;
        }
        if by_run.len() == by_run.capacity() {
            by_run.retain(|_, output| output.strong_count() > 0);
        }
        let output = Arc::new(LiveOutput::new(is_whole));
        by_run.insert(run, Arc::downgrade(&output));
        output
    }
}

impl LiveOutput {
    fn new(is_whole: bool) -> Self {
        let (count, _) = watch::channel(0);
        Self { is_whole: AtomicBool::new(is_whole), items: Mutex::default(), count }
    }

    fn lock(&self) -> MutexGuard<'_, LiveItems> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, output: AgentOutput) {
        let mut live = self.lock();
        live.bytes += item_bytes(&output);
        live.items.push_back(output);
        while live.bytes > LIVE_BYTES_MAX && live.items.len() > 1 {
            let Some(removed) = live.items.pop_front() else { break };
            live.bytes -= item_bytes(&removed);
            live.removed += 1;
        }
        let count = live.removed + live.items.len() as u64;
        drop(live);
        self.count.send_replace(count);
    }

    /// Returns a receiver that changes with each new item.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// Marks the output as whole: nothing of the run was stored before it was opened.
    pub(crate) fn mark_whole(&self) {
        self.is_whole.store(true, Ordering::Release);
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    pub(crate) fn read(&self, position: u64) -> LiveRead {
        let live = self.lock();
        let Some(index) = position.checked_sub(live.removed) else { return LiveRead::Removed };
        let item = usize::try_from(index).ok().and_then(|index| live.items.get(index));
        item.map_or(LiveRead::Later, |item| LiveRead::Item(item.clone()))
    }

    /// Returns the newest step, if its start is still here. All steps before it are stored.
    pub(crate) fn newest_step(&self) -> Option<LiveStep> {
        let live = self.lock();
        live.items.iter().enumerate().rev().find_map(|(index, item)| match item {
            AgentOutput::Step { step } => {
                Some(LiveStep { step: *step, position: live.removed + index as u64 })
            }
            _ => None,
        })
    }

    /// Returns the position after the newest item.
    pub(crate) fn end(&self) -> u64 {
        let live = self.lock();
        live.removed + live.items.len() as u64
    }
}

fn item_bytes(output: &AgentOutput) -> usize {
    let text = match output {
        AgentOutput::Text(text) | AgentOutput::Reasoning(text) => text.len(),
        AgentOutput::ToolCall { arguments, .. } => arguments.len(),
        AgentOutput::ToolResult { text, .. } => text.len(),
        _ => 0,
    };
    text + ITEM_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> AgentOutput {
        AgentOutput::Text(text.into())
    }

    #[test]
    fn old_items_are_removed_and_a_reader_resumes_at_the_newest_step() {
        let live = LiveOutput::new(true);
        let long = "x".repeat(LIVE_BYTES_MAX / 2);
        for item in [text(&long), text("end of one"), AgentOutput::Step { step: 2 }, text(&long)] {
            live.publish(item);
        }
        assert_eq!(live.read(0), LiveRead::Removed);
        assert_eq!(live.read(1), LiveRead::Item(text("end of one")));
        assert_eq!(live.newest_step(), Some(LiveStep { step: 2, position: 2 }));
        assert_eq!(live.read(4), LiveRead::Later);
    }

    #[test]
    fn a_run_is_shared_while_somebody_holds_it() {
        let outputs = LiveOutputs::default();
        let task = TaskId {
            session: brigade_model::ids::SessionId::from_uuid(uuid::Uuid::nil()),
            no: brigade_model::ids::TaskNo::FIRST,
        };
        let run = RunNo(1);
        let reader = outputs.open_for_reader(task, run);
        let agent = outputs.open_for_agent(task, run, true);
        assert!(Arc::ptr_eq(&reader, &agent));
        drop((reader, agent));
        assert!(outputs.open_for_agent(task, run, true).is_whole());
    }
}
