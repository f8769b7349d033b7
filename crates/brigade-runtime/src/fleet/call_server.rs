//! Reads the calls of other nodes for the sessions of this one, and gives them to the loop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_store::{CallAnswer, CallId, CallTarget, OpenCall, StoreError};
use tokio::sync::mpsc;

use super::Node;
use super::call_message::CallReply;
#[cfg(feature = "processes")]
use super::call_message::{decode, encode};
use crate::loop_input::LoopInput;

/// The time between two looks for calls, without a hint.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The least time between two looks, also with hints.
const POLL_PAUSE: Duration = Duration::from_millis(3);
/// The most calls that one look returns.
const CALLS_MAX: usize = 10_000;

/// The calls that the loop has got. A look at the store may be older than an answer to one of them.
#[derive(Debug, Default)]
pub(crate) struct ServedCalls(Mutex<HashMap<CallId, ServedCall>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedCall {
    /// The loop decides it, or waits for its condition.
    Pending,
    Answered,
}

impl ServedCalls {
    pub(crate) fn set_answered(&self, id: CallId) {
        self.lock().insert(id, ServedCall::Answered);
    }

    /// Forgets a call that was not answered, so that the next look returns it again.
    pub(crate) fn forget(&self, id: CallId) {
        self.lock().remove(&id);
    }

    pub(crate) fn forget_all(&self) {
        self.lock().clear();
    }

    fn snapshot(&self) -> HashMap<CallId, ServedCall> {
        self.lock().clone()
    }

    /// Adds the calls of a look. Returns those that the loop has not got.
    fn add(&self, open: Vec<OpenCall>) -> Vec<OpenCall> {
        let mut served = self.lock();
        let mut new = Vec::new();
        for call in open {
            served.entry(call.id).or_insert_with(|| {
                new.push(call);
                ServedCall::Pending
            });
        }
        new
    }

    /// Removes answered calls of a look's beginning, and returns the pending ones that the look has not
    /// found: their askers have removed them.
    fn remove_missing(
        &self,
        before: &HashMap<CallId, ServedCall>,
        is_open: impl Fn(CallId) -> bool,
    ) -> Vec<CallId> {
        let mut served = self.lock();
        let mut removed = Vec::new();
        for (id, state) in before {
            if *state == ServedCall::Pending && !is_open(*id) && served.get(id) == Some(state) {
                removed.push(*id);
            }
            if *state == ServedCall::Answered || removed.last() == Some(id) {
                served.remove(id);
            }
        }
        removed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, ServedCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) async fn serve_calls(node: Arc<Node>, inputs: mpsc::Sender<LoopInput>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = node.fleet().next_hint() => tokio::time::sleep(POLL_PAUSE).await,
        }
        if !node.lease.is_held() {
            continue;
        }
        if let Err(error) = serve_once(&node, &inputs).await {
            tracing::debug!(%error, "calls of other nodes cannot be read");
        }
    }
}

async fn serve_once(node: &Arc<Node>, inputs: &mpsc::Sender<LoopInput>) -> Result<(), StoreError> {
    let before = node.served_calls.snapshot();
    let open = node.fleet().open_calls(node.id(), CALLS_MAX).await?;
    if open.len() < CALLS_MAX {
        let is_open = |id| open.iter().any(|call| call.id == id);
        let removed = node.served_calls.remove_missing(&before, is_open);
        if !removed.is_empty() {
            let _ = inputs.send(LoopInput::CancelCalls(removed)).await;
        }
    }
    let is_for_session = |call: &OpenCall| matches!(call.target, CallTarget::Session(_));
    let (of_sessions, of_node): (Vec<_>, Vec<_>) =
        node.served_calls.add(open).into_iter().partition(is_for_session);
    if !of_sessions.is_empty() {
        let _ = inputs.send(LoopInput::Calls(of_sessions)).await;
    }
    for call in of_node {
        // Reading files must not delay the calls for sessions.
        node.start(answer_node_call(node.clone(), call));
    }
    Ok(())
}

async fn answer_node_call(node: Arc<Node>, call: OpenCall) {
    let Ok(_permit) = node.host_calls.acquire().await else { return };
    let answered = match node.answer_host(&call.request).await {
        Ok(reply) => {
            node.fleet().answer(&CallAnswer { id: call.id, reply, must_exist: false }).await
        }
        Err(refusal) => return tracing::error!(%refusal, "a reply cannot be encoded"),
    };
    match answered {
        Ok(()) => {
            node.served_calls.set_answered(call.id);
            node.committed.notify_one();
        }
        Err(error) => {
            tracing::debug!(%error, "a call is answered later");
            node.served_calls.forget(call.id);
        }
    }
}

impl Node {
    /// Carries out a request about the processes of this host, and encodes the reply.
    async fn answer_host(&self, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        #[cfg(feature = "processes")]
        if let Some(processes) = self.processes.get() {
            let reply = match decode(request) {
                Ok(request) => processes.answer_host(request).await,
                Err(refusal) => Err(refusal),
            };
            return encode(&reply);
        }
        let _ = request;
        CallReply::One(Err(Refusal::unavailable("this node runs no processes"))).encode()
    }
}
