//! The loops of a node that has lost its lease: all give up their sessions, then one joins for all.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brigade_model::ids::{Attempt, SessionId};
use brigade_store::StoreError;

use super::node::unheld_refusal;
use super::{AttemptLease, Node};
use crate::feed::Feed;
use crate::loop_input::LoopInput;
use crate::loops::{RejoinTurn, RejoinWait};
use crate::performer::{Reporter, TaskId};
use crate::supervisor::Supervisor;
use crate::view::CommittedView;

/// The pause between two attempts to join again.
const REJOIN_PAUSE: Duration = Duration::from_millis(250);

impl Supervisor {
    /// Gives up all sessions after the lease was lost. When all loops have done so, the node joins the
    /// fleet again. Callers that wait get their results from the new owners.
    pub(crate) async fn rejoin(&mut self) {
        let Some(owned) = &self.owned else { return };
        let node = owned.node.clone();
        let ids: Vec<SessionId> =
            self.trees.keys().chain(self.discarded_trees.keys()).copied().collect();
        for id in ids {
            self.give_up_session(id);
        }
        if let Some(owned) = &mut self.owned {
            owned.recovered.clear();
            owned.failed_recoveries.clear();
            owned.moving.clear();
        }
        for input in std::mem::take(&mut self.retry_reports) {
            self.refuse_unheld(input);
        }
        let ended = self.abandoned.clone();
        let shutdown = self.shutdown_token.clone();
        let wait = self.member.wait_to_rejoin();
        let feed = self.feed.clone();
        let view = self.view.clone();
        let joining = async {
            tokio::select! {
                biased;
                () = join_for_all(wait, &node, &feed, &view) => true,
                () = ended.cancelled() => false,
                () = shutdown.cancelled() => false,
            }
        };
        if !self.refuse_during(joining).await {
            return;
        }
        self.lane = node.lanes()[self.share.index];
        if let Some(owned) = &mut self.owned {
            owned.lease = AttemptLease::new(&node);
        }
    }

    /// Waits for a request of the store, while the node has its lease. Without it, no caller waits for a
    /// database that does not answer. A write that is given up arrives at a closed lane, or has happened.
    pub(crate) async fn while_held<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        while_held(self.node(), request).await
    }

    /// Returns true if this runtime may act: as the only one, or as a node with a lease.
    pub(crate) fn is_held(&self) -> bool {
        self.node().is_none_or(|node| node.lease.is_held())
    }

    /// Returns a reporter of an attempt that this runtime performs.
    pub(crate) fn reporter(&self, task: TaskId, attempt: Attempt) -> Reporter {
        let lease = self.owned.as_ref().map(|owned| owned.lease.clone());
        Reporter { task, attempt, inputs: self.sender.clone(), lease }
    }

    fn node(&self) -> Option<&Node> {
        self.owned.as_ref().map(|owned| &*owned.node)
    }

    /// Refuses the inputs that arrive until a join ends.
    async fn refuse_during<T>(&mut self, joining: impl Future<Output = T>) -> T {
        let mut joining = pin!(joining);
        loop {
            tokio::select! {
                biased;
                joined = &mut joining => return joined,
                input = self.inputs.recv() => match input {
                    Some(input) => self.refuse_unheld(input),
                    None => return joining.await,
                },
            }
        }
    }

    /// Refuses an input that the node cannot decide without a lease. Waits go on when it has joined again.
    fn refuse_unheld(&mut self, input: LoopInput) {
        let refusal = unheld_refusal();
        match input {
            LoopInput::Open { reply, .. } => drop(reply.send(Err(refusal))),
            LoopInput::Submit { reply, .. } | LoopInput::Move { reply, .. } => {
                drop(reply.send(Err(refusal)));
            }
            LoopInput::SubmitAll { commands, reply, .. } => {
                drop(reply.send(vec![Err(refusal); commands.len()]));
            }
            LoopInput::Wait(wait) => self.waiters.requeue(wait),
            LoopInput::CancelWait { id } => self.cancel_wait(id),
            LoopInput::Drain { reply } => self.drain.begin(reply),
            LoopInput::Shutdown { reply } => self.shutdown_reply = Some(reply),
            // They were claimed with the lease that is over, and their performers were halted.
            LoopInput::Claimed { done, .. } => drop(done.send(())),
            LoopInput::Report { .. } | LoopInput::HoldOwned(_) | LoopInput::Hosts(_) => {}
            LoopInput::Calls(calls) => calls.iter().for_each(|call| self.forget_call(call.id)),
            LoopInput::CancelCalls(calls) => {
                calls.into_iter().for_each(|call| self.waiters.remove_call(call));
            }
        }
    }

    /// Finds out whether a refused commit means that this node is closed.
    pub(crate) async fn check_node(&mut self) {
        let Some(owned) = &self.owned else { return };
        let node = owned.node.clone();
        let id = node.id();
        match self.while_held(node.fleet().renew(id, &node.load())).await {
            Ok(Some(_)) => tracing::error!("a commit of an open lane was refused"),
            Ok(None) => node.lease.lose(id),
            Err(error) => tracing::warn!(%error, "the state of the node is unknown"),
        }
    }
}

/// Waits for a request of the store, while a node has its lease.
pub(crate) async fn while_held<T>(
    node: Option<&Node>,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let Some(node) = node else { return request.await };
    tokio::select! {
        biased;
        done = request => done,
        () = node.lease.wait_lost() => {
            Err(StoreError::Unavailable("the node has lost its lease".into()))
        }
    }
}

/// Joins again as soon as no loop has sessions, unless another loop does.
async fn join_for_all(mut wait: RejoinWait, node: &Node, feed: &Feed, view: &CommittedView) {
    if wait.turn().await == RejoinTurn::Joined {
        return;
    }
    node.served_calls.forget_all();
    let rejoined = node.rejoin_until_joined(REJOIN_PAUSE).await;
    if rejoined.may_have_lost_commits {
        tracing::error!(
            "the database continues from an earlier state; commits that it had not replicated are lost"
        );
        node.shows_lost_state.store(true, Ordering::Relaxed);
    }
    feed.change_lanes(&rejoined.lanes);
    if node.shows_lost_state.load(Ordering::Relaxed) && forget_lost(node, view).await.is_ok() {
        node.shows_lost_state.store(false, Ordering::Relaxed);
    }
    wait.finish();
    node.claimable.notify_one();
    node.joined_again.notify_one();
}

/// Shows the sessions as the store has them, whatever was shown before. The next join goes on if this one
/// is lost.
async fn forget_lost(node: &Node, view: &CommittedView) -> Result<(), StoreError> {
    for session in view.discard_unheld() {
        let loaded = loop {
            match while_held(Some(node), node.store().load(session)).await {
                Ok(loaded) => break loaded,
                Err(error) if node.lease.is_held() => {
                    tracing::warn!(%error, "a session cannot be read again yet");
                    tokio::time::sleep(REJOIN_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        if let (Some(loaded), Some(view)) = (loaded, view.get(session)) {
            view.refresh(&loaded.row, loaded.tasks);
        }
    }
    Ok(())
}
