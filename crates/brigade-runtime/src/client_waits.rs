//! Clients that wait. They hold nothing in a tree: each is asked again when it may be answered.

use std::collections::HashMap;

use brigade_model::call::WaitMode;
use brigade_model::ids::{SessionId, TaskNo};

use crate::loop_input::WaitInput;

#[derive(Debug, Default)]
pub(crate) struct ClientWaits {
    waits: HashMap<u64, PendingWait>,
    by_task: HashMap<(SessionId, TaskNo), Vec<u64>>,
    /// Waits that may be answered now.
    ready: Vec<WaitInput>,
}

#[derive(Debug)]
struct PendingWait {
    input: WaitInput,
    pending: Vec<TaskNo>,
    remaining: usize,
}

impl ClientWaits {
    /// Keeps a wait until the tasks it is pending on have ended.
    pub(crate) fn add(&mut self, input: WaitInput, pending: Vec<TaskNo>) {
        for no in &pending {
            self.by_task.entry((input.session, *no)).or_default().push(input.id);
        }
        let left = match input.collect.mode {
            WaitMode::Any => 1,
            WaitMode::All => pending.len(),
        };
        self.waits.insert(input.id, PendingWait { input, pending, remaining: left });
    }

    pub(crate) fn task_ended(&mut self, tree: SessionId, no: TaskNo) {
        for id in self.by_task.remove(&(tree, no)).unwrap_or_default() {
            let Some(waiting) = self.waits.get_mut(&id) else { continue };
            waiting.remaining -= 1;
            if waiting.remaining == 0 {
                let ready = self.take(id);
                self.ready.extend(ready);
            }
        }
    }

    /// The state that these waits were decided against is given up.
    pub(crate) fn requeue_session(&mut self, tree: SessionId) {
        let of_tree = self.waits.iter().filter(|(_, waiting)| waiting.input.session == tree);
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
            let _ = wait.reply.send(Err(crate::error::shutdown_refusal()));
        }
        self.by_task.clear();
    }

    pub(crate) fn has_waits_in(&self, tree: SessionId) -> bool {
        self.waits.values().any(|waiting| waiting.input.session == tree)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.take(id);
    }

    fn take(&mut self, id: u64) -> Option<WaitInput> {
        let waiting = self.waits.remove(&id)?;
        let tree = waiting.input.session;
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
    use brigade_model::command::{Caller, CollectCommand};
    use tokio::sync::oneshot;

    use super::*;

    fn tree() -> SessionId {
        crate::ids::new_session_id()
    }

    fn numbers(all: &[u32]) -> Vec<TaskNo> {
        all.iter().filter_map(|no| TaskNo::new(*no)).collect()
    }

    fn keep(waiters: &mut ClientWaits, (id, tree): (u64, SessionId), mode: WaitMode, on: &[u32]) {
        let collect = CollectCommand { caller: Caller::Operator, tasks: Vec::new(), mode };
        let (reply, _) = oneshot::channel();
        waiters.add(WaitInput { id, session: tree, collect, reply }, numbers(on));
    }

    fn ready(waiters: &mut ClientWaits) -> Vec<u64> {
        waiters.take_ready().into_iter().map(|wait| wait.id).collect()
    }

    #[test]
    fn a_wait_is_ready_when_any_or_all_have_ended_and_leaves_nothing_behind() {
        let (mut waiters, tree) = (ClientWaits::default(), tree());
        keep(&mut waiters, (1, tree), WaitMode::Any, &[1, 2]);
        keep(&mut waiters, (2, tree), WaitMode::All, &[1, 2]);
        let [one, two] = numbers(&[1, 2])[..] else { unreachable!("two were given") };
        waiters.task_ended(tree, one);
        assert_eq!(ready(&mut waiters), [1]);
        waiters.task_ended(tree, two);
        assert_eq!(ready(&mut waiters), [2]);
        assert!(waiters.is_empty());
    }

    #[test]
    fn a_wait_that_is_forgotten_leaves_nothing_behind() {
        let (mut waiters, tree) = (ClientWaits::default(), tree());
        keep(&mut waiters, (1, tree), WaitMode::Any, &[1, 2]);
        waiters.remove(1);
        assert!(waiters.is_empty());
    }

    #[test]
    fn only_the_waits_of_a_tree_that_is_given_up_are_asked_again() {
        let (mut waiters, given_up, other) = (ClientWaits::default(), tree(), tree());
        keep(&mut waiters, (1, given_up), WaitMode::All, &[1]);
        keep(&mut waiters, (2, other), WaitMode::All, &[1]);
        waiters.requeue_session(given_up);
        assert_eq!(ready(&mut waiters), [1]);
        assert!(!waiters.is_empty());
    }
}
