//! Waits of clients. They hold nothing in a session: each is decided again when it may be ready.

use brigade_model::call::WaitMode;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_store::CallId;

use crate::loop_input::WaitInput;

#[derive(Debug, Default)]
pub(crate) struct ClientWaits {
    waits: IdMap<u64, PendingWait>,
    by_task: IdMap<(SessionId, TaskNo), Vec<u64>>,
    /// Waits that may be ready now.
    ready: Vec<WaitInput>,
}

#[derive(Debug)]
struct PendingWait {
    input: WaitInput,
    pending: Vec<TaskNo>,
    remaining: usize,
}

impl ClientWaits {
    /// Holds a wait until the tasks it is pending on have ended.
    pub(crate) fn add(&mut self, input: WaitInput, pending: Vec<TaskNo>) {
        for no in &pending {
            self.by_task.entry((input.session, *no)).or_default().push(input.id);
        }
        let remaining = match input.collect.mode {
            WaitMode::Any => 1,
            WaitMode::All => pending.len(),
        };
        self.waits.insert(input.id, PendingWait { input, pending, remaining });
    }

    pub(crate) fn task_ended(&mut self, session: SessionId, no: TaskNo) {
        for id in self.by_task.remove(&(session, no)).unwrap_or_default() {
            let Some(waiting) = self.waits.get_mut(&id) else { continue };
            waiting.remaining -= 1;
            if waiting.remaining == 0 {
                let ready = self.take(id);
                self.ready.extend(ready);
            }
        }
    }

    /// Requeues the waits of a session whose state, against which they were decided, was discarded.
    pub(crate) fn requeue_session(&mut self, session: SessionId) {
        let waits = self.take_session(session);
        self.ready.extend(waits);
    }

    /// Decides a wait again in the next turn.
    pub(crate) fn requeue(&mut self, wait: WaitInput) {
        self.ready.push(wait);
    }

    /// Refuses the waits of a session.
    pub(crate) fn refuse_session(&mut self, session: SessionId, refusal: &Refusal) {
        for wait in self.take_all_of(session) {
            wait.reply.send(Err(refusal.clone()));
        }
    }

    /// Takes the waits of a session that another node may own now.
    pub(crate) fn take_all_of(&mut self, session: SessionId) -> Vec<WaitInput> {
        let ready = self.ready.extract_if(.., |wait| wait.session == session);
        let mut waits: Vec<WaitInput> = ready.collect();
        waits.extend(self.take_session(session));
        waits
    }

    /// Removes the wait of a call.
    pub(crate) fn remove_call(&mut self, call: CallId) {
        let of_call = |input: &WaitInput| input.reply.call() == Some(call);
        let found = self.waits.iter().find(|(_, wait)| of_call(&wait.input)).map(|(id, _)| *id);
        if let Some(id) = found {
            self.take(id);
        }
        self.ready.retain(|wait| !of_call(wait));
    }

    fn take_session(&mut self, session: SessionId) -> Vec<WaitInput> {
        let waits = self.waits.iter().filter(|(_, wait)| wait.input.session == session);
        let ids: Vec<u64> = waits.map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Refuses all waits, since the runtime shuts down.
    pub(crate) fn close(&mut self) {
        let waits = std::mem::take(&mut self.waits).into_values().map(|waiting| waiting.input);
        for wait in waits.chain(std::mem::take(&mut self.ready)) {
            wait.reply.send(Err(crate::error::shutdown_refusal()));
        }
        self.by_task.clear();
    }

    pub(crate) fn has_waits_in(&self, session: SessionId) -> bool {
        self.waits.values().any(|waiting| waiting.input.session == session)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.take(id);
        self.ready.retain(|wait| wait.id != id);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    fn take(&mut self, id: u64) -> Option<WaitInput> {
        let waiting = self.waits.remove(&id)?;
        let session = waiting.input.session;
        for no in waiting.pending {
            if let Some(ids) = self.by_task.get_mut(&(session, no)) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.by_task.remove(&(session, no));
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
    fn holds_nothing(&self) -> bool {
        self.waits.is_empty() && self.by_task.is_empty() && self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::command::{Caller, CollectCommand};
    use tokio::sync::oneshot;

    use super::*;
    use crate::loop_input::ReplyTo;

    struct NewWait {
        id: u64,
        session: SessionId,
        mode: WaitMode,
    }

    fn new_session() -> SessionId {
        crate::ids::new_session_id()
    }

    fn numbers(all: &[u32]) -> Vec<TaskNo> {
        all.iter().filter_map(|no| TaskNo::new(*no)).collect()
    }

    fn add(waiters: &mut ClientWaits, wait: NewWait, on: &[u32]) {
        let NewWait { id, session, mode } = wait;
        let collect = CollectCommand { caller: Caller::Operator, tasks: Vec::new(), mode };
        let (reply, _) = oneshot::channel();
        let reply = ReplyTo::Local(reply);
        let wait = WaitInput { id, session, collect, origin: None, cancellation: None, reply };
        waiters.add(wait, numbers(on));
    }

    fn ready(waiters: &mut ClientWaits) -> Vec<u64> {
        waiters.take_ready().into_iter().map(|wait| wait.id).collect()
    }

    #[test]
    fn a_wait_is_ready_when_any_or_all_tasks_ended_and_is_removed() {
        let mut waiters = ClientWaits::default();
        let session = new_session();
        add(&mut waiters, NewWait { id: 1, session, mode: WaitMode::Any }, &[1, 2]);
        add(&mut waiters, NewWait { id: 2, session, mode: WaitMode::All }, &[1, 2]);
        let [one, two] = numbers(&[1, 2])[..] else { unreachable!("two were given") };
        waiters.task_ended(session, one);
        assert_eq!(ready(&mut waiters), [1]);
        waiters.task_ended(session, two);
        assert_eq!(ready(&mut waiters), [2]);
        assert!(waiters.holds_nothing());
    }

    #[test]
    fn a_cancelled_wait_is_removed() {
        let mut waiters = ClientWaits::default();
        let session = new_session();
        add(&mut waiters, NewWait { id: 1, session, mode: WaitMode::Any }, &[1, 2]);
        waiters.remove(1);
        assert!(waiters.holds_nothing());
    }

    #[test]
    fn only_the_waits_of_a_discarded_session_are_decided_again() {
        let mut waiters = ClientWaits::default();
        let discarded = new_session();
        let other = new_session();
        add(&mut waiters, NewWait { id: 1, session: discarded, mode: WaitMode::All }, &[1]);
        add(&mut waiters, NewWait { id: 2, session: other, mode: WaitMode::All }, &[1]);
        waiters.requeue_session(discarded);
        assert_eq!(ready(&mut waiters), [1]);
        assert!(!waiters.holds_nothing());
    }
}
