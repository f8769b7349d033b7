//! The messages that a job sends.

use std::future::Future;

use brigade_model::address::TaskRef;
use brigade_model::call::CallCompletion;
use brigade_model::command::{Command, Recipient, SendCommand};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::MessageNo;
use brigade_model::json::Json;
use brigade_model::message::{MessageSender, Receipt};
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::MessageRow;
use serde::Serialize;

use super::child_task::ChildTask;
use super::context::{
    JobCall, JobContext, completion_result, first_message_no, unexpected_completion,
};
use crate::error::store_refusal;

/// The end of a process's input: more messages follow, or this is the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputEnd {
    More,
    Last,
}

impl JobContext {
    /// Sends a message to a child.
    pub fn send<T>(
        &self,
        to: &ChildTask<T>,
        body: impl Serialize,
    ) -> impl Future<Output = Result<MessageNo, Refusal>> {
        let to = Recipient::Task(TaskRef::from(to.no));
        let sent = Json::of(&body).map(|body| self.send_to(to, body, InputEnd::More));
        async move { first_message_no(&sent?.await?) }
    }

    /// Closes the input of a child that is a process. It reads the end of its input after all that
    /// was sent before.
    pub fn close_input<T>(
        &self,
        of: &ChildTask<T>,
    ) -> impl Future<Output = Result<MessageNo, Refusal>> {
        let to = Recipient::Task(TaskRef::from(of.no));
        let sent = self.send_to(to, Json::null(), InputEnd::Last);
        async move { first_message_no(&sent.await?) }
    }

    /// Sends a message to the parent of this job.
    pub fn send_parent(
        &self,
        body: impl Serialize,
    ) -> impl Future<Output = Result<MessageNo, Refusal>> {
        let sent =
            Json::of(&body).map(|body| self.send_to(Recipient::Parent, body, InputEnd::More));
        async move { first_message_no(&sent?.await?) }
    }

    /// Sends a message to all children that are alive.
    pub fn send_children(
        &self,
        body: impl Serialize,
    ) -> impl Future<Output = Result<Vec<MessageNo>, Refusal>> {
        let sent =
            Json::of(&body).map(|body| self.send_to(Recipient::Children, body, InputEnd::More));
        async move { sent?.await }
    }

    fn send_to(
        &self,
        to: Recipient,
        body: Json,
        end: InputEnd,
    ) -> impl Future<Output = Result<Vec<MessageNo>, Refusal>> {
        let call = self.begin(&EntryLabel::Send);
        async move {
            let index = match call? {
                JobCall::Known(completion) => {
                    return match &*completion_result(completion.await?)? {
                        CallCompletion::Sent(numbers) => Ok(numbers.clone()),
                        other => Err(unexpected_completion("send", other)),
                    };
                }
                JobCall::New(index) => index,
            };
            let _running = self.inner.calls.mark_running();
            let send = SendCommand {
                closes_input: end == InputEnd::Last,
                call: Some(index),
                ..SendCommand::new(self.caller(), to, body)
            };
            match &*self.submit_recorded(index, EntryLabel::Send, Command::Send(send)).await? {
                CallCompletion::Sent(numbers) => Ok(numbers.clone()),
                other => Err(unexpected_completion("send", other)),
            }
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
