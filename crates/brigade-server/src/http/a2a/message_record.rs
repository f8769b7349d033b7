//! The effect of a message to a task, which is decided once.
//!
//! A client repeats a message whose answer it has not received. Meanwhile the task may have asked a
//! question, or may have gone on: the repeated message must have the effect of the first. So the
//! effect is stored before it takes place, under the id of the message, and marked when it has taken
//! place. A refused message leaves no record.

use std::time::Duration;

use a2a::A2AError;
use brigade_model::refusal::Refusal;
use brigade_protocol::http::TaskId;
use brigade_runtime::Runtime;
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, RecordKey, RecordKind, RecordVersion,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::incoming_message::{IncomingMessage, hex};
use super::protocol_error::error_of;

const MESSAGE_KIND: RecordKind = RecordKind::from_static("a2a-message");
/// The time for which a repeated message is recognized.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The effect of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageEffect {
    /// It is delivered to the inbox.
    Inbox,
    /// It answers this question, or is the result of this call of a client tool.
    Answer { call: u32 },
    /// It decides an approval.
    Approval { task: TaskId, call: u32 },
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredMessage {
    digest: String,
    effect: MessageEffect,
    /// The effect has taken place.
    #[serde(default)]
    is_done: bool,
}

/// The stored effect of a message.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEffect {
    pub(crate) effect: MessageEffect,
    /// It has taken place.
    pub(crate) is_done: bool,
    /// The version of the record, if this request stored it.
    pub(crate) stored: Option<RecordVersion>,
}

/// The messages of one token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageRecords<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) token: &'a str,
}

impl MessageRecords<'_> {
    /// Returns the effect of an earlier message with this id. Another message with the same id is
    /// refused.
    pub(crate) async fn find(
        &self,
        message: &IncomingMessage,
    ) -> Result<Option<RecordedEffect>, A2AError> {
        let key = self.key(message).map_err(|refusal| error_of(&refusal))?;
        let record = self.runtime.records().get(&key).await;
        let Some(record) = record.map_err(|refusal| error_of(&refusal))? else { return Ok(None) };
        let stored: StoredMessage = serde_json::from_slice(&record.value)
            .map_err(|error| A2AError::internal(format!("a stored message is wrong: {error}")))?;
        if stored.digest != message.digest() {
            return Err(A2AError::invalid_params(
                "another message had this `messageId`; each message needs its own",
            ));
        }
        let StoredMessage { effect, is_done, .. } = stored;
        Ok(Some(RecordedEffect { effect, is_done, stored: None }))
    }

    /// Stores the effect of a message. Returns the stored one if another request was first.
    pub(crate) async fn put(
        &self,
        message: &IncomingMessage,
        effect: MessageEffect,
    ) -> Result<RecordedEffect, A2AError> {
        let message_of = StoredMessage { digest: message.digest(), effect, is_done: false };
        let put = self.store(message, &message_of, ExpectedVersion::Absent).await;
        let new = |stored| RecordedEffect { effect: message_of.effect, is_done: false, stored };
        match put.map_err(|refusal| error_of(&refusal))? {
            PutRecordResult::Stored(version) => Ok(new(Some(version))),
            PutRecordResult::Conflict(_) => {
                Ok(self.find(message).await?.unwrap_or_else(|| new(None)))
            }
        }
    }

    /// Stores that the effect has taken place.
    pub(crate) async fn mark_done(
        &self,
        message: &IncomingMessage,
        effect: MessageEffect,
    ) -> Result<(), Refusal> {
        let stored = StoredMessage { digest: message.digest(), effect, is_done: true };
        self.store(message, &stored, ExpectedVersion::Any).await.map(drop)
    }

    /// Removes the record of a message that was refused, which may be sent again. A later version
    /// stays: the same message had its effect by another request meanwhile.
    pub(crate) async fn remove(
        &self,
        message: &IncomingMessage,
        version: RecordVersion,
    ) -> Result<(), Refusal> {
        self.runtime.records().remove(&self.key(message)?, Some(version)).await.map(drop)
    }

    async fn store(
        &self,
        message: &IncomingMessage,
        stored: &StoredMessage,
        expected: ExpectedVersion,
    ) -> Result<PutRecordResult, Refusal> {
        let value = serde_json::to_vec(stored)
            .map_err(|error| Refusal::internal(format!("a message cannot be stored: {error}")))?;
        let record = NewRecord::new(self.key(message)?, value)?;
        self.runtime.records().put_for(LIFETIME, record, expected).await
    }

    fn key(&self, message: &IncomingMessage) -> Result<RecordKey, Refusal> {
        let id = hex(&Sha256::digest(&message.id));
        Ok(RecordKey::new(MESSAGE_KIND, format!("{}.{id}", self.token))?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn new_message(id: &str) -> IncomingMessage {
        let message =
            json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": "blue" }] });
        IncomingMessage::parse(serde_json::from_value(message).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_refused_message_removes_only_its_own_record() {
        let runtime = Runtime::builder().start().await.unwrap();
        let records = MessageRecords { runtime: &runtime, token: "token" };
        let message = new_message("1");
        let effect = MessageEffect::Answer { call: 1 };
        let first = records.put(&message, effect.clone()).await.unwrap();
        // The same message arrives again, and is the one that has the effect.
        let second = records.put(&message, effect.clone()).await.unwrap();
        assert_eq!(second.stored, None);
        records.mark_done(&message, effect.clone()).await.unwrap();
        records.remove(&message, first.stored.unwrap()).await.unwrap();
        let found = records.find(&message).await.unwrap().expect("the message had its effect");
        assert!(found.is_done);
        // Without the other one, the record is removed.
        let other = new_message("2");
        let put = records.put(&other, effect).await.unwrap();
        records.remove(&other, put.stored.unwrap()).await.unwrap();
        assert!(records.find(&other).await.unwrap().is_none());
    }
}
