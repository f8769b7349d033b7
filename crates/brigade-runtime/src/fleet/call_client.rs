//! Sends requests for sessions that other nodes own, and waits for the replies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::decide::CommandReply;
use brigade_model::ids::SessionId;
use brigade_model::refusal::Refusal;
use brigade_store::{CallId, CallTarget, NewCall};
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::call_message::{CallReply, CallRequest};
use super::{Node, refresh_view};
use crate::error::{in_doubt_refusal, store_refusal};
use crate::ids::new_call_id;
use crate::loop_input::SubmitResult;
use crate::view::CommittedView;

/// The time between two looks for replies, without a hint.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The least time between two looks, also with hints.
const POLL_PAUSE: Duration = Duration::from_millis(2);
/// The time after which a command without a reply is given up.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The sender of requests to other nodes.
#[derive(Clone, Debug)]
pub(crate) struct CallClient {
    inputs: mpsc::UnboundedSender<ClientInput>,
}

#[derive(Debug)]
enum ClientInput {
    Ask(PendingCall),
    CancelWait { wait: u64 },
}

/// The receiver of a reply.
#[derive(Debug)]
pub(crate) enum CallerReply {
    One(oneshot::Sender<SubmitResult<CommandReply>>),
    Many { reply: oneshot::Sender<Vec<SubmitResult<CommandReply>>>, count: usize },
}

#[derive(Debug)]
struct PendingCall {
    id: CallId,
    session: SessionId,
    request: Vec<u8>,
    reply: CallerReply,
    /// The id of a wait, which has no timeout of its own.
    wait: Option<u64>,
    asked_at: tokio::time::Instant,
    state: CallState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// To be stored.
    New,
    /// Waits for its reply.
    Stored,
    /// To be removed, since its caller does not wait any more. Its request may have been stored.
    Removed,
}

impl CallClient {
    /// Starts the task that stores calls and reads their replies. It ends with the node.
    pub(crate) fn start(node: Arc<Node>, view: Arc<CommittedView>) -> Self {
        let (inputs, received) = mpsc::unbounded_channel();
        let ended = node.ended.clone();
        let task = CallTask { node, view, received, calls: HashMap::new() };
        #[expect(clippy::disallowed_methods, reason = "ends with the node")]
        tokio::spawn(async move { ended.run_until_cancelled(task.run()).await });
        Self { inputs }
    }

    /// Sends a request to the owner of a session. The reply comes later.
    pub(crate) fn ask(
        &self,
        session: SessionId,
        request: &CallRequest,
        wait: Option<u64>,
        reply: CallerReply,
    ) {
        let request = match request.encode() {
            Ok(request) => request,
            Err(refusal) => return reply.refuse(&refusal),
        };
        let asked_at = tokio::time::Instant::now();
        let id = new_call_id();
        let state = CallState::New;
        let call = PendingCall { id, session, request, reply, wait, asked_at, state };
        if let Err(mpsc::error::SendError(ClientInput::Ask(call))) =
            self.inputs.send(ClientInput::Ask(call))
        {
            call.reply.refuse(&crate::error::shutdown_refusal());
        }
    }

    /// Ends a wait. Its caller gets a result that is there already, or no reply.
    pub(crate) fn cancel_wait(&self, wait: u64) {
        let _ = self.inputs.send(ClientInput::CancelWait { wait });
    }
}

impl CallerReply {
    pub(crate) fn refuse(self, refusal: &Refusal) {
        match self {
            Self::One(reply) => drop(reply.send(Err(refusal.clone()))),
            Self::Many { reply, count } => drop(reply.send(vec![Err(refusal.clone()); count])),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::One(reply) => reply.is_closed(),
            Self::Many { reply, .. } => reply.is_closed(),
        }
    }

    fn send(self, reply: CallReply) {
        match (self, reply) {
            (Self::One(to), CallReply::One(result)) => drop(to.send(result)),
            (Self::Many { reply: to, count }, CallReply::Many(results))
                if results.len() == count =>
            {
                drop(to.send(results));
            }
            (to, CallReply::One(Err(refusal))) => to.refuse(&refusal),
            (to, _) => to.refuse(&Refusal::internal("a node replied with another kind of reply")),
        }
    }
}

struct CallTask {
    node: Arc<Node>,
    view: Arc<CommittedView>,
    received: mpsc::UnboundedReceiver<ClientInput>,
    calls: HashMap<CallId, PendingCall>,
}

impl CallTask {
    async fn run(mut self) {
        loop {
            let has_calls = !self.calls.is_empty();
            let node = self.node.clone();
            tokio::select! {
                input = self.received.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
                () = tokio::time::sleep(POLL_INTERVAL), if has_calls => {}
                () = node.fleet().next_hint(), if has_calls => {
                    tokio::time::sleep(POLL_PAUSE).await;
                }
            }
            while let Ok(input) = self.received.try_recv() {
                self.take(input);
            }
            self.store_calls().await;
            self.read_replies().await;
            self.give_up_old();
            self.remove_given_up().await;
        }
    }

    fn take(&mut self, input: ClientInput) {
        match input {
            ClientInput::Ask(call) => drop(self.calls.insert(call.id, call)),
            ClientInput::CancelWait { wait } => {
                let found = self.calls.values_mut().find(|call| call.wait == Some(wait));
                if let Some(call) = found {
                    call.state = CallState::Removed;
                }
            }
        }
    }

    /// Stores the calls that are not stored yet. A repeated request has the same id.
    async fn store_calls(&mut self) {
        let asked_by = self.node.id();
        let unsent = self.calls.values().filter(|call| call.state == CallState::New);
        let new: Vec<NewCall> = unsent
            .map(|call| NewCall {
                id: call.id,
                target: CallTarget::Session(call.session),
                asked_by,
                request: call.request.clone(),
            })
            .collect();
        if new.is_empty() {
            return;
        }
        let fleet = self.node.fleet();
        let results = join_all(new.iter().map(|call| fleet.ask(call))).await;
        let mut stored = false;
        for (call, result) in new.iter().zip(results) {
            match result {
                Ok(true) => {
                    stored = true;
                    self.calls.entry(call.id).and_modify(|call| call.state = CallState::Stored);
                }
                Ok(false) => {
                    if let Some(call) = self.calls.remove(&call.id) {
                        call.reply.refuse(&Refusal::not_found("there is no such session"));
                    }
                }
                Err(error) if !self.node.lease.is_held() => {
                    if let Some(call) = self.calls.remove(&call.id) {
                        call.reply.refuse(&store_refusal(&error));
                    }
                }
                Err(error) => tracing::debug!(%error, "a call cannot be stored yet"),
            }
        }
        if stored {
            let _ = fleet.notify().await;
        }
    }

    async fn read_replies(&mut self) {
        let stored = self.calls.values().filter(|call| call.state == CallState::Stored);
        let ids: Vec<CallId> = stored.map(|call| call.id).collect();
        if ids.is_empty() {
            return;
        }
        let results = match self.node.fleet().replies(&ids).await {
            Ok(results) => results,
            Err(error) => return tracing::debug!(%error, "replies cannot be read"),
        };
        let mut answered = Vec::new();
        for result in results {
            let Some(call) = self.calls.get_mut(&result.id) else { continue };
            match result.reply {
                Some(reply) => {
                    answered.push(result.id);
                    self.deliver(result.id, &reply).await;
                }
                // The call was removed with an earlier lease of this node. A wait has had no effect.
                None if call.wait.is_some() => {
                    if let Some(mut call) = self.calls.remove(&result.id) {
                        call.id = new_call_id();
                        call.state = CallState::New;
                        self.calls.insert(call.id, call);
                    }
                }
                None => {
                    if let Some(call) = self.calls.remove(&result.id) {
                        call.reply.refuse(&in_doubt_refusal());
                    }
                }
            }
        }
        if !answered.is_empty()
            && let Err(error) = self.node.fleet().remove_calls(&answered).await
        {
            tracing::debug!(%error, "answered calls are removed with the node");
        }
    }

    /// Gives a reply to its caller, who then reads the state that it reports.
    async fn deliver(&mut self, id: CallId, reply: &[u8]) {
        let Some(call) = self.calls.remove(&id) else { return };
        refresh_view(&self.view, &**self.node.store(), call.session).await;
        match CallReply::decode(reply) {
            Ok(reply) => call.reply.send(reply),
            Err(refusal) => call.reply.refuse(&refusal),
        }
    }

    /// Gives up waits whose callers have ended, and commands without a reply for long.
    fn give_up_old(&mut self) {
        for call in self.calls.values_mut() {
            let is_over = match call.wait {
                Some(_) => call.reply.is_closed(),
                None => call.asked_at.elapsed() >= COMMAND_TIMEOUT,
            };
            if is_over {
                call.state = CallState::Removed;
            }
        }
    }

    /// Removes calls that were given up. Their callers get a reply that is there. A removal that fails is
    /// repeated: otherwise a wait could consume results that nobody gets.
    async fn remove_given_up(&mut self) {
        let given_up = self.calls.values().filter(|call| call.state == CallState::Removed);
        let ids: Vec<CallId> = given_up.map(|call| call.id).collect();
        if ids.is_empty() {
            return;
        }
        match self.node.fleet().remove_calls(&ids).await {
            Ok(results) => {
                for result in results {
                    if let Some(reply) = result.reply {
                        self.deliver(result.id, &reply).await;
                    }
                }
                for id in ids {
                    if let Some(call) = self.calls.remove(&id)
                        && call.wait.is_none()
                    {
                        call.reply.refuse(&unanswered_refusal());
                    }
                }
            }
            Err(error) if self.node.lease.is_held() => {
                tracing::debug!(%error, "a removal of calls is repeated");
            }
            Err(error) => {
                tracing::debug!(%error, "calls are removed with the node");
                for id in ids {
                    if let Some(call) = self.calls.remove(&id) {
                        call.reply.refuse(&in_doubt_refusal());
                    }
                }
            }
        }
    }
}

/// Returns the refusal of a command that no node has answered for long.
fn unanswered_refusal() -> Refusal {
    Refusal::unknown(
        "no node has answered for this session; it may have happened: ask again with the same key",
    )
}
