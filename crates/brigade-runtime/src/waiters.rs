//! Clients that wait. They hold nothing in a tree: each is asked again when it may be answered.

use std::collections::HashMap;

use brigade_model::call::WaitMode;
use brigade_model::ids::{TaskNo, TreeId};

use crate::input::WaitInput;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waits: HashMap<u64, Waiting>,
    by_task: HashMap<(TreeId, TaskNo), Vec<u64>>,
    /// Waits that may be answered now.
    ready: Vec<WaitInput>,
}

#[derive(Debug)]
struct Waiting {
    input: WaitInput,
    pending: Vec<TaskNo>,
    left: usize,
}

impl Waiters {
    /// Keeps a wait until the tasks it is pending on have ended.
    pub(crate) fn keep(&mut self, input: WaitInput, pending: Vec<TaskNo>) {
        for no in &pending {
            self.by_task.entry((input.tree, *no)).or_default().push(input.id);
        }
        let left = match input.collect.mode {
            WaitMode::Any => 1,
            WaitMode::All => pending.len(),
        };
        self.waits.insert(input.id, Waiting { input, pending, left });
    }

    pub(crate) fn ended(&mut self, tree: TreeId, no: TaskNo) {
        for id in self.by_task.remove(&(tree, no)).unwrap_or_default() {
            let Some(waiting) = self.waits.get_mut(&id) else { continue };
            waiting.left -= 1;
            if waiting.left == 0 {
                let ready = self.take(id);
                self.ready.extend(ready);
            }
        }
    }

    /// The state that these waits were decided against is given up.
    pub(crate) fn ask_again(&mut self, tree: TreeId) {
        let of_tree = self.waits.iter().filter(|(_, waiting)| waiting.input.tree == tree);
        let ids: Vec<u64> = of_tree.map(|(id, _)| *id).collect();
        for id in ids {
            let ready = self.take(id);
            self.ready.extend(ready);
        }
    }

    /// Nobody will be answered any more.
    pub(crate) fn close(&mut self) {
        let waits = std::mem::take(&mut self.waits).into_values().map(|waiting| waiting.input);
        for wait in waits.chain(std::mem::take(&mut self.ready)) {
            let _ = wait.reply.send(Err(crate::error::gone()));
        }
        self.by_task.clear();
    }

    pub(crate) fn waits_in(&self, tree: TreeId) -> bool {
        self.waits.values().any(|waiting| waiting.input.tree == tree)
    }

    pub(crate) fn forget(&mut self, id: u64) {
        self.take(id);
    }

    fn take(&mut self, id: u64) -> Option<WaitInput> {
        let waiting = self.waits.remove(&id)?;
        let tree = waiting.input.tree;
        for no in waiting.pending {
            if let Some(ids) = self.by_task.get_mut(&(tree, no)) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.by_task.remove(&(tree, no));
                }
            }
        }
        Some(waiting.input)
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn take_ready(&mut self) -> Vec<WaitInput> {
        std::mem::take(&mut self.ready)
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.by_task.is_empty() && self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::command::{Caller, Collect};
    use tokio::sync::oneshot;

    use super::*;

    fn tree() -> TreeId {
        crate::ids::new_tree_id()
    }

    fn numbers(all: &[u32]) -> Vec<TaskNo> {
        all.iter().filter_map(|no| TaskNo::new(*no)).collect()
    }

    fn keep(waiters: &mut Waiters, (id, tree): (u64, TreeId), mode: WaitMode, on: &[u32]) {
        let collect = Collect { caller: Caller::Operator, tasks: Vec::new(), mode };
        let (reply, _) = oneshot::channel();
        waiters.keep(WaitInput { id, tree, collect, reply }, numbers(on));
    }

    fn ready(waiters: &mut Waiters) -> Vec<u64> {
        waiters.take_ready().into_iter().map(|wait| wait.id).collect()
    }

    #[test]
    fn a_wait_is_ready_when_any_or_all_have_ended_and_leaves_nothing_behind() {
        let (mut waiters, tree) = (Waiters::default(), tree());
        keep(&mut waiters, (1, tree), WaitMode::Any, &[1, 2]);
        keep(&mut waiters, (2, tree), WaitMode::All, &[1, 2]);
        let [one, two] = numbers(&[1, 2])[..] else { unreachable!("two were given") };
        waiters.ended(tree, one);
        assert_eq!(ready(&mut waiters), [1]);
        waiters.ended(tree, two);
        assert_eq!(ready(&mut waiters), [2]);
        assert!(waiters.is_empty());
    }

    #[test]
    fn a_wait_that_is_forgotten_leaves_nothing_behind() {
        let (mut waiters, tree) = (Waiters::default(), tree());
        keep(&mut waiters, (1, tree), WaitMode::Any, &[1, 2]);
        waiters.forget(1);
        assert!(waiters.is_empty());
    }

    #[test]
    fn only_the_waits_of_a_tree_that_is_given_up_are_asked_again() {
        let (mut waiters, given_up, other) = (Waiters::default(), tree(), tree());
        keep(&mut waiters, (1, given_up), WaitMode::All, &[1]);
        keep(&mut waiters, (2, other), WaitMode::All, &[1]);
        waiters.ask_again(given_up);
        assert_eq!(ready(&mut waiters), [1]);
        assert!(!waiters.is_empty());
    }
}
