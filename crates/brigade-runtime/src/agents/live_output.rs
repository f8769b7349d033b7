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
    /// Changes with each item and each commit.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct LiveItems {
    items: VecDeque<AgentOutput>,
    /// The number of items that were removed.
    removed: u64,
    bytes: usize,
    /// The newest step, also if its start was removed.
    newest_step: Option<LiveStep>,
    /// The number of commits of journal entries.
    commits: u64,
}

/// A step and the position of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveStep {
    pub(crate) step: u32,
    pub(crate) position: u64,
}

/// The extent of the output in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveExtent {
    /// The position of the oldest item in memory.
    pub(crate) first: u64,
    /// The newest step that started here. All steps before it are stored.
    pub(crate) newest_step: Option<LiveStep>,
    /// The number of commits of journal entries so far.
    pub(crate) commits: u64,
}

impl LiveExtent {
    /// Returns the newest step, if it is in memory from its start.
    pub(crate) fn step_in_memory(&self) -> Option<LiveStep> {
        self.newest_step.filter(|step| step.position >= self.first)
    }
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
        let (changes, _) = watch::channel(());
        Self { is_whole: AtomicBool::new(is_whole), items: Mutex::default(), changes }
    }

    fn lock(&self) -> MutexGuard<'_, LiveItems> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, output: AgentOutput) {
        let mut live = self.lock();
        if let AgentOutput::Step { step } = output {
            let position = live.removed + live.items.len() as u64;
            live.newest_step = Some(LiveStep { step, position });
        }
        live.bytes += item_bytes(&output);
        live.items.push_back(output);
        while live.bytes > LIVE_BYTES_MAX && live.items.len() > 1 {
            let Some(removed) = live.items.pop_front() else { break };
            live.bytes -= item_bytes(&removed);
            live.removed += 1;
        }
        drop(live);
        self.changes.send_replace(());
    }

    /// Notes that entries of the journal were committed. They may be output that was removed here.
    pub(crate) fn note_commit(&self) {
        self.lock().commits += 1;
        self.changes.send_replace(());
    }

    /// Returns a receiver that changes with each new item and each commit.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
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

    pub(crate) fn extent(&self) -> LiveExtent {
        let live = self.lock();
        let LiveItems { removed, newest_step, commits, .. } = *live;
        LiveExtent { first: removed, newest_step, commits }
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
        let newest = Some(LiveStep { step: 2, position: 2 });
        assert_eq!(live.extent().step_in_memory(), newest);
        assert_eq!(live.read(4), LiveRead::Later);
        live.publish(text(&long));
        assert_eq!(live.extent(), LiveExtent { first: 4, newest_step: newest, commits: 0 });
        assert_eq!(live.extent().step_in_memory(), None);
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
