//! Messages to processes on other hosts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::action::Action;
use brigade_model::command::{AttemptReport, PushResult};
use brigade_model::ids::{Attempt, SessionId};
use brigade_model::message::Message;
use brigade_model::task::TaskRow;
use brigade_model::work::Work;
use tokio::sync::mpsc;

use super::HostClient;
use super::host_watch::is_elsewhere;
use crate::performer::{Reporter, TaskId};
use crate::processes::{
    HostMessage, HostPushResult, HostReply, HostRequest, NO_INPUT, ProcessExecution, render_line,
};
use crate::supervisor::Supervisor;

/// The messages on their way to processes on other hosts, in order for each process.
#[derive(Debug, Default)]
pub(super) struct HostPushes(Mutex<HashMap<(TaskId, Attempt), MessageSender>>);

type MessageSender = mpsc::UnboundedSender<Arc<Message>>;

/// Pushes the messages of one process.
struct HostPusher {
    client: HostClient,
    host: Arc<str>,
    execution: ProcessExecution,
    reads_input: bool,
    reporter: Reporter,
}

impl Supervisor {
    /// Lets the node of its host push a message to a process. Returns false for what is done here.
    pub(crate) fn push_at_host(&self, row: &TaskRow, action: &Action, reporter: &Reporter) -> bool {
        let (Some(owned), Action::Push { message, .. }) = (&self.owned, action) else {
            return false;
        };
        let Some(host) = row.host().filter(|_| is_elsewhere(row, &owned.node.host)).cloned() else {
            return false;
        };
        let Reporter { task, attempt, .. } = *reporter;
        let start = || {
            let (sender, messages) = mpsc::unbounded_channel();
            let pusher = HostPusher {
                client: HostClient::new(owned.node.clone()),
                host,
                execution: ProcessExecution { task, run: row.run, attempt },
                reads_input: matches!(&row.spec.work, Work::Process(work) if work.reads_messages()),
                reporter: reporter.clone(),
            };
            owned.node.start(pusher.run(messages));
            sender
        };
        let mut pushes = owned.host_pushes.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !pushes.contains_key(&(task, attempt)) {
            pushes.retain(|(task, attempt), _| self.is_performed(*task, *attempt));
        }
        let sender = pushes.entry((task, attempt)).or_insert_with(start);
        // The pusher exists as long as its sender.
        let _ = sender.send(message.clone());
        true
    }

    fn is_performed(&self, task: TaskId, attempt: Attempt) -> bool {
        let row = self.trees.get(&task.session).and_then(|tree| tree.get(task.no));
        row.is_some_and(|row| row.is_performed() && row.attempt == attempt)
    }
}

impl HostPushes {
    /// Pushes nothing more of a session that this node has given up.
    pub(super) fn forget(&self, session: SessionId) {
        let mut pushes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pushes.retain(|(task, _), _| task.session != session);
    }
}

impl HostPusher {
    async fn run(self, mut messages: mpsc::UnboundedReceiver<Arc<Message>>) {
        while let Some(message) = messages.recv().await {
            let result = self.push(&message).await;
            self.reporter.post(AttemptReport::Pushed { message: message.no, result }).await;
        }
    }

    /// Asks once: the message may have arrived whenever there is no clear reply.
    async fn push(&self, message: &Message) -> PushResult {
        if !self.reads_input {
            return PushResult::Refused { reason: NO_INPUT.into() };
        }
        let request = HostRequest::Push(HostMessage {
            execution: self.execution.into(),
            line: render_line(message),
            closes_input: message.closes_input,
        });
        match self.client.ask_host(&self.host, &request).await {
            Ok(HostReply::Pushed(HostPushResult::Delivered)) => PushResult::Delivered,
            Ok(HostReply::Pushed(HostPushResult::Refused { reason })) => {
                PushResult::Refused { reason: reason.into() }
            }
            Ok(_) => PushResult::Unknown,
            Err(refusal) => {
                tracing::warn!(%refusal, no = %self.reporter.task.no, "a message to another host");
                PushResult::Unknown
            }
        }
    }
}
