//! The messages that a job sends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{Caller, Command, Recipient, SendCommand};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::MessageNo;
use brigade_model::json::Json;
use brigade_model::message::{Message, MessageSender, Receipt};
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::MessageRow;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child_task::ChildTask;
use super::context::{
    JobCall, JobContext, completion_result, first_message_no, unexpected_completion,
};
use crate::error::store_refusal;
use crate::send_message::{MessageOrigin, SendMessage};

/// A call of a job that sends a message to one recipient. It is made when the message is created.
pub(crate) struct SendCall {
    context: JobContext,
    call: Result<JobCall, Refusal>,
}

impl SendCall {
    /// Sends the message, or returns the number of the one that was sent before.
    pub(crate) async fn send(
        self,
        command: impl FnOnce(Caller) -> SendCommand,
    ) -> Result<MessageNo, Refusal> {
        let command = || command(self.context.caller());
        first_message_no(&self.context.send_recorded(self.call, command).await?)
    }
}

impl JobContext {
    /// Sends a message to a child.
    pub fn send<T>(&self, to: &ChildTask<T>, body: impl Serialize) -> SendMessage {
        SendMessage::new(self.send_call(), Recipient::Task(TaskRef::from(to.no)), body)
    }

    /// Closes the input of a child that is a process. It reads the end of its input after all that
    /// was sent before.
    pub fn close_input<T>(&self, of: &ChildTask<T>) -> SendMessage {
        let to = Recipient::Task(TaskRef::from(of.no));
        SendMessage::new(self.send_call(), to, Json::null()).closing_input()
    }

    /// Sends a message to the parent of this job.
    pub fn send_parent(&self, body: impl Serialize) -> SendMessage {
        SendMessage::new(self.send_call(), Recipient::Parent, body)
    }

    fn send_call(&self) -> MessageOrigin {
        let call = self.begin(&EntryLabel::Send);
        MessageOrigin::Job(SendCall { context: self.clone(), call })
    }

    /// Waits for the next message of this name and decodes it. Other messages stay in the inbox.
    pub fn receive_as<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<T, Refusal>> + use<T> {
        let received = self.receive_named(name, None);
        async move {
            match received.await? {
                Some(message) => message.body.decode(),
                None => Err(Refusal::internal("a wait without a timeout timed out")),
            }
        }
    }

    /// Waits for the next message of this name with a timeout. Returns `None` when it passed.
    pub fn receive_as_within<T: DeserializeOwned>(
        &self,
        name: &str,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<T>, Refusal>> + use<T> {
        let received = self.receive_named(name, Some(timeout));
        async move { received.await?.map(|message| message.body.decode()).transpose() }
    }

    fn receive_named(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Option<Arc<Message>>, Refusal>> + use<> {
        let timeout = timeout.map(Into::into);
        let request = ConditionRequest::Message { timeout, name: Some(name.into()) };
        let received = self.park_call(request);
        async move {
            match &*received.await? {
                CallCompletion::Message(message) => Ok(Some(message.clone())),
                CallCompletion::Elapsed => Ok(None),
                other => Err(unexpected_completion("receive", other)),
            }
        }
    }

    /// Sends a message to all children that are alive.
    pub fn send_children(
        &self,
        body: impl Serialize,
    ) -> impl Future<Output = Result<Vec<MessageNo>, Refusal>> {
        let call = self.begin(&EntryLabel::Send);
        let body = Json::of(&body);
        async move {
            let body = body?;
            let command = || SendCommand::new(self.caller(), Recipient::Children, body);
            self.send_recorded(call, command).await
        }
    }

    async fn send_recorded(
        &self,
        call: Result<JobCall, Refusal>,
        command: impl FnOnce() -> SendCommand,
    ) -> Result<Vec<MessageNo>, Refusal> {
        let completion = match call? {
            JobCall::Known(completion) => completion_result(completion.await?)?,
            JobCall::New(index) => {
                let _running = self.inner.calls.mark_running();
                let send = Command::Send(SendCommand { call: Some(index), ..command() });
                self.submit_recorded(index, EntryLabel::Send, send).await?
            }
        };
        match &*completion {
            CallCompletion::Sent(numbers) => Ok(numbers.clone()),
            other => Err(unexpected_completion("send", other)),
        }
    }

    /// Returns the delivery state of a message that this job sent. Not recorded, so it belongs in a
    /// step.
    pub async fn receipt(&self, no: MessageNo) -> Result<Option<Receipt>, Refusal> {
        let found = self.inner.store.message(self.session_id(), no).await;
        let found = found.map_err(|error| store_refusal(&error))?;
        let me = self.task();
        let mine = |row: &MessageRow| {
            [MessageSender::Parent(me), MessageSender::Child(me)].contains(&row.message.from)
        };
        match found {
            Some(row) if !mine(&row) => {
                Err(Refusal::forbidden(format!("message {no} was sent by somebody else")))
            }
            found => Ok(found.map(|row| row.receipt)),
        }
    }
}
