//! The rules for messages: recipients, and the scope of keys.

use brigade_model::call::ConditionRequest;
use brigade_model::command::{Caller, Recipient, SendCommand};
use brigade_model::ids::{MessageNo, Owner, RunNo, TaskNo};
use brigade_model::refusal::RefusalKind;
use brigade_model::task::TaskRow;
use brigade_model::work::FollowUp;

use crate::naive::{Expected, Naive, Prediction};
use crate::rows::{has_no_input, is_alive, is_ending};

/// A key of a message with everything that it depends on.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NaiveMessageKey {
    /// The receiving task, or `None` for the session.
    pub(crate) to: Option<TaskNo>,
    pub(crate) from: Option<TaskNo>,
    pub(crate) run: RunNo,
    pub(crate) key: String,
}

impl Naive<'_> {
    pub(crate) fn send(self, send: &SendCommand) -> Prediction<Expected> {
        let caller = &send.caller;
        self.fence(caller)?;
        let no = match (&send.to, caller) {
            (Recipient::Task(task), _) => self.find_controllable(caller, task)?,
            (Recipient::Parent, Caller::Task { no, .. }) => {
                match self.row(*no).map(|row| row.owner) {
                    Some(Owner::Task(parent)) => parent,
                    _ => {
                        let before = self.sent_before(send, None)?;
                        return Ok(before.map_or(Expected::Accepted, Expected::SentBefore));
                    }
                }
            }
            (Recipient::Parent, _) => return Err(RefusalKind::Invalid),
            (Recipient::Children, _) => {
                let is_recipient = |row: &TaskRow| !is_ending(row) && !has_no_input(row);
                for (no, row) in self.rows().filter(|(_, row)| row.owner == caller.owner()) {
                    if is_recipient(row) && self.find_controllable(caller, &no.into()).is_ok() {
                        self.sent_before(send, Some(no))?;
                    }
                }
                return Ok(Expected::Accepted);
            }
        };
        if let Some(before) = self.sent_before(send, Some(no))? {
            return Ok(Expected::SentBefore(before));
        }
        match self.row(no) {
            Some(row) if !is_ending(row) && has_no_input(row) => Err(RefusalKind::Invalid),
            Some(row) if !is_ending(row) => Ok(Expected::Accepted),
            Some(row) if !is_alive(row) && row.spec.work.policy().follow_up == FollowUp::NewRun => {
                self.reopen(caller, no)
            }
            _ => Err(RefusalKind::Ended),
        }
    }

    /// Returns the message that the key stands for. The key is free in each run of the recipient,
    /// or of the sender if the recipient is the session.
    fn sent_before(self, send: &SendCommand, to: Option<TaskNo>) -> Prediction<Option<MessageNo>> {
        let Some(key) = &send.key else { return Ok(None) };
        let from = send.caller.owner().task();
        let run = to.or(from).and_then(|no| self.row(no)).map_or(RunNo::FIRST, |row| row.run);
        let key = NaiveMessageKey { to, from, run, key: key.as_str().to_owned() };
        let Some(before) = self.message_keys.get(&key) else { return Ok(None) };
        let is_same = before.body == send.body
            && before.name == send.name
            && before.interrupt == send.interrupt;
        if is_same { Ok(Some(before.no)) } else { Err(RefusalKind::Conflict) }
    }
}

/// Checks that the condition is met by messages of the inbox.
pub(crate) fn takes_messages(request: &ConditionRequest) -> bool {
    use ConditionRequest::{Inbox, Message, Messages};
    matches!(request, Message { .. } | Messages | Inbox)
}
