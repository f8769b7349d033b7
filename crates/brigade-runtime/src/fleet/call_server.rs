//! Reads the calls of other nodes for the sessions of this one, and gives them to the loops.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_store::{CallAnswer, CallId, CallTarget, OpenCall, OpenCallQuery, StoreError};

use super::Node;
use super::call_message::CallReply;
#[cfg(feature = "processes")]
use super::call_message::{decode, encode};
use crate::loop_input::LoopInput;
use crate::loops::LoopSenders;

/// The time between two looks for calls, without a hint.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The least time between two looks, also with hints.
const POLL_PAUSE: Duration = Duration::from_millis(3);
/// The most calls that one request returns. A look reads all of them, since those that wait stay open.
const PAGE_CALLS: usize = 1_000;

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

pub(crate) async fn serve_calls(node: Arc<Node>, inputs: LoopSenders) {
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

async fn serve_once(node: &Arc<Node>, inputs: &LoopSenders) -> Result<(), StoreError> {
    let before = node.served_calls.snapshot();
    let mut open = HashSet::new();
    let mut query = OpenCallQuery { node: node.id(), after: None, limit: PAGE_CALLS };
    loop {
        let page = node.fleet().open_calls(&query).await?;
        query.after = page.last().map(|call| call.place);
        let is_last = page.len() < query.limit;
        open.extend(page.iter().map(|call| call.id));
        serve_page(node, inputs, page).await?;
        if is_last {
            break;
        }
    }
    let removed = node.served_calls.remove_missing(&before, |id| open.contains(&id));
    if !removed.is_empty() {
        inputs.send_all(|| LoopInput::CancelCalls(removed.clone())).await;
    }
    Ok(())
}

/// Gives the calls that the loops have not got to them, and answers those for the node itself.
async fn serve_page(
    node: &Arc<Node>,
    inputs: &LoopSenders,
    page: Vec<OpenCall>,
) -> Result<(), StoreError> {
    let mut of_sessions = Vec::new();
    let mut of_node = Vec::new();
    for call in node.served_calls.add(page) {
        match call.target {
            CallTarget::Session(session) => of_sessions.push((session, call)),
            CallTarget::Node(_) => of_node.push(call),
        }
    }
    let calls = |part: Vec<_>| LoopInput::Calls(part.into_iter().map(|(_, call)| call).collect());
    inputs.send_parts(of_sessions, |(session, _)| *session, calls).await;
    for call in of_node {
        // Reading files must not delay the calls for sessions.
        node.start(answer_node_call(node.clone(), call));
    }
    Ok(())
}

/// Carries out a call for this node once, and stores the reply. A lost answer repeats the reply alone: the
/// request may have written to a process.
async fn answer_node_call(node: Arc<Node>, call: OpenCall) {
    let asked = node.id();
    let reply = {
        let Ok(_permit) = node.host_calls.acquire().await else { return };
        node.answer_host(&call.request).await
    };
    let answer = match reply {
        Ok(reply) => CallAnswer { id: call.id, reply, must_exist: false },
        Err(refusal) => return tracing::error!(%refusal, "a reply cannot be encoded"),
    };
    loop {
        match node.fleet().answer(&answer).await {
            // An earlier answer may have been stored.
            Ok(()) | Err(StoreError::CallClosed { .. }) => break,
            Err(error) => tracing::debug!(%error, "a call is answered later"),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        // The calls of a closed node are removed.
        if !node.lease.is_held_by(asked) {
            return;
        }
    }
    node.served_calls.set_answered(call.id);
    node.committed.notify_one();
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
