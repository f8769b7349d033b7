//! Pending approvals and client tool calls as streams: each once, and none is missed.

use std::collections::{BTreeSet, VecDeque};

#[cfg(feature = "agents")]
use brigade_agent::ClientToolCall;
#[cfg(feature = "agents")]
use brigade_model::address::TaskRef;
#[cfg(feature = "agents")]
use brigade_model::call::Condition;
#[cfg(feature = "agents")]
use brigade_model::command::{Caller, GivenAnswer};
use brigade_model::event::Event;
use brigade_model::ids::{CallIndex, TaskNo};
#[cfg(feature = "agents")]
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
#[cfg(feature = "agents")]
use brigade_model::task::{StoredTask, TaskRow};
use futures_util::stream::{self, StreamExt};
#[cfg(feature = "agents")]
use serde::Serialize;
#[cfg(feature = "agents")]
use std::sync::Arc;

use super::ResultStream;
use crate::approvals::PendingApproval;
use crate::feed::{FeedSubscription, FeedUpdate};
use crate::session::Session;

/// A call of a client tool that waits for its result.
#[cfg(feature = "agents")]
#[derive(Clone, Debug)]
pub struct PendingClientCall {
    pub task: TaskNo,
    pub row: Arc<TaskRow>,
    pub call: CallIndex,
    /// The tool and its arguments.
    pub request: ClientToolCall,
}

/// A call of a task that waits for somebody outside.
trait PendingCall: Send + Sized + 'static {
    fn id(&self) -> PendingCallId;

    /// Returns all pending calls that this caller may decide.
    fn list(session: &Session) -> Vec<Self>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PendingCallId {
    task: TaskNo,
    call: CallIndex,
}

impl PendingCall for PendingApproval {
    fn id(&self) -> PendingCallId {
        PendingCallId { task: self.task, call: self.call }
    }

    fn list(session: &Session) -> Vec<Self> {
        session.approvals()
    }
}

#[cfg(feature = "agents")]
impl PendingCall for PendingClientCall {
    fn id(&self) -> PendingCallId {
        PendingCallId { task: self.task, call: self.call }
    }

    fn list(session: &Session) -> Vec<Self> {
        let client = match &session.caller {
            Caller::Client(client) => Some(&client.identity.name),
            Caller::Operator | Caller::Task { .. } => None,
        };
        // The tools of another client are not executed here, even if its tasks are visible.
        let is_own = |row: &TaskRow| {
            client.is_none() || row.client.as_ref().map(|started_by| &started_by.name) == client
        };
        let mut rows = session.view.list(session.owner_scope());
        rows.retain(|task| is_own(&task.row));
        let mut pending = Vec::new();
        for StoredTask { no: task, row } in rows {
            for call in &row.parked_calls {
                if let Condition::ClientTool { request } = &call.condition
                    && let Ok(request) = request.decode()
                {
                    let row = row.clone();
                    pending.push(PendingClientCall { task, row, call: call.index, request });
                }
            }
        }
        pending
    }
}

impl Session {
    /// Returns the approvals that this caller may decide: first those that are pending already,
    /// then new ones, each once. It ends when the runtime has shut down.
    ///
    /// Decide with [`Session::approve_shown`], or register a function with
    /// [`Session::on_approval`]. An approval that was decided before it was read is left out.
    ///
    #[cfg_attr(feature = "agents", doc = include_str!("approval_stream_example.md"))]
    pub fn approval_stream(&self) -> ResultStream<PendingApproval> {
        self.pending_calls()
    }

    /// Returns the client tool calls of this caller's tasks: first those that are pending already,
    /// then new ones, each once. It ends when the runtime has shut down.
    ///
    /// Return their results with [`Session::complete_client_call`], or register a function with
    /// [`Session::on_client_call`], which has an example.
    #[cfg(feature = "agents")]
    pub fn client_calls(&self) -> ResultStream<PendingClientCall> {
        self.pending_calls()
    }

    /// Returns the result of a client tool call to its agent. Text stays as it is; other results
    /// are JSON for the model.
    #[cfg(feature = "agents")]
    pub async fn complete_client_call(
        &self,
        task: impl Into<TaskRef>,
        call: CallIndex,
        result: impl Serialize,
    ) -> Result<(), Refusal> {
        let answer = GivenAnswer::Reply(Json::of(&result)?);
        self.answer_call(task, Some(call), answer).await
    }

    fn pending_calls<C: PendingCall>(&self) -> ResultStream<C> {
        // Calls of descendants are visible to clients only here, so the feed has no scope. It is
        // opened before the first listing, so that no call is missed between the two.
        let feed = self.runtime.inner.feed.subscribe(Some(self.id), self.runtime.cursor());
        let reader = PendingCallReader {
            session: self.clone(),
            feed,
            seen: BTreeSet::new(),
            found: VecDeque::new(),
            is_current: false,
        };
        let calls = stream::unfold(reader, |mut reader: PendingCallReader<C>| async move {
            let next = reader.next().await.transpose()?;
            Some((next, reader))
        });
        calls.boxed()
    }

    fn is_pending(&self, id: PendingCallId) -> bool {
        self.view.get(id.task).is_some_and(|row| row.parked_call(id.call).is_some())
    }
}

struct PendingCallReader<C> {
    session: Session,
    feed: FeedSubscription,
    /// The pending calls that were found before.
    seen: BTreeSet<PendingCallId>,
    found: VecDeque<C>,
    /// True if no call has parked since the last listing.
    is_current: bool,
}

impl<C: PendingCall> PendingCallReader<C> {
    async fn next(&mut self) -> Result<Option<C>, Refusal> {
        loop {
            while let Some(call) = self.found.pop_front() {
                if self.session.is_pending(call.id()) {
                    return Ok(Some(call));
                }
            }
            if !self.is_current {
                self.is_current = true;
                self.find_new();
                continue;
            }
            match self.feed.next_to(None).await? {
                Some(FeedUpdate::Event(item)) => {
                    self.is_current = !matches!(item.record.event, Event::Parked { .. });
                }
                Some(FeedUpdate::Gap { .. }) => self.is_current = false,
                None => return Ok(None),
            }
        }
    }

    fn find_new(&mut self) {
        let pending = C::list(&self.session);
        let ids = pending.iter().map(PendingCall::id).collect();
        let seen = std::mem::replace(&mut self.seen, ids);
        self.found.extend(pending.into_iter().filter(|call| !seen.contains(&call.id())));
    }
}
