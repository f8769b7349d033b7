//! The daemon's protocol: one JSON value a line, both ways, over a Unix socket.
//!
//! ```text
//! client: {"protocol":1,"oldest":1,"version":"0.1.0","who":"operator","operator_key":".."}    hello
//! daemon: {"protocol":1,"version":"0.1.0","pid":4242}        welcome, or {"refused":..}
//! client: {"id":1,"ask":{"exec":{..}},"room":1048576}
//! daemon: {"id":1,"item":..} any number of times, then {"id":1,"done":..} or {"id":1,"refused":..}
//! client: {"id":1,"more":65536}              it has taken so many bytes of the items
//! client: {"id":1,"cancel":true}             takes a question back
//! daemon: {"id":7,"leaving":true}             it leaves; what came after question 7 was not read
//! ```
//!
//! Questions are answered as they come to an end, in any order. Each has room of its own: so many bytes
//! of items may be on their way until the client says that it took some. An item that is larger than
//! the room takes all of it. So a client can read every line at once, and whoever is slow to take the items
//! of one question slows down nothing but that. Without `room` they come as fast as they are read.
//!
//! Unknown fields are passed over, and both sides speak the highest protocol that both know, so that
//! each can be newer than the other by one number.
//!
//! A hello carries the operator key unless it comes from a process of a task, see
//! [`crate::operator_key`]. A client that has conversations says in which one it is (`"conversation"`),
//! with the same id whenever it connects again.
//!
//! Hello, welcome, `status` and `leave` are the same in every version: whatever the numbers, a daemon
//! says who it is and can be asked to make way. Nothing else is answered to who speaks another protocol.

use std::io;

use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::operator_key::OperatorKey;

/// The version of the protocol. A daemon serves this one and the one before.
pub const PROTOCOL: u32 = 1;
pub const OLDEST_SERVED: u32 = 1;

/// Whether this version knows a protocol.
pub(crate) fn is_spoken(protocol: u32) -> bool {
    (OLDEST_SERVED..=PROTOCOL).contains(&protocol)
}

/// The longest line that is written or read, with its end. Whatever is longer is a mistake or an attack.
pub const LINE_MAX: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest that the client speaks.
    pub protocol: u32,
    /// The oldest; the same, when it does not say.
    #[serde(default)]
    pub oldest: Option<u32>,
    pub version: String,
    pub who: As,
    /// Makes the client the operator or a named client. A process of a task needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_key: Option<OperatorKey>,
    /// The conversation of a client that has them: an id that it made when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl Hello {
    /// The protocol for this conversation, if both sides know one.
    pub(crate) fn common(&self) -> Option<u32> {
        let oldest = self.oldest.unwrap_or(self.protocol);
        Some(self.protocol.min(PROTOCOL)).filter(|common| is_spoken(*common) && *common >= oldest)
    }
}

/// As whom a client acts. A process below a command of Brigade's acts as that task, whatever it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum As {
    /// Sees and controls everything, consumes nothing.
    Operator,
    /// Sees all top-level work in each session, takes its results, and steers what it started itself.
    Client(String),
    /// A client that also steers what others have started, because its user said so.
    SharedClient(String),
}

impl As {
    /// The client's name.
    pub fn client(&self) -> Option<&str> {
        match self {
            Self::Operator => None,
            Self::Client(name) | Self::SharedClient(name) => Some(name),
        }
    }
}

/// As whom a client acts, and in which of its conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    pub who: As,
    pub conversation: Option<ConversationId>,
}

impl From<As> for Introduction {
    fn from(who: As) -> Self {
        Self { who, conversation: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Welcome {
    Welcome { protocol: u32, version: String, pid: u32 },
    Refused { refused: Refusal, version: String },
}

/// What a client says after its hello.
#[derive(Debug, Deserialize)]
pub(crate) struct FromClient<'a> {
    pub(crate) id: u64,
    #[serde(default, borrow)]
    pub(crate) ask: Option<&'a RawValue>,
    /// How many bytes of items may be on their way.
    #[serde(default)]
    pub(crate) room: Option<u32>,
    /// So many of them were taken.
    #[serde(default)]
    pub(crate) more: u32,
    #[serde(default)]
    pub(crate) cancel: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Asked<A> {
    pub(crate) id: u64,
    pub(crate) ask: A,
    pub(crate) room: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct More {
    pub(crate) id: u64,
    pub(crate) more: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct Cancel {
    pub(crate) id: u64,
    pub(crate) cancel: bool,
}

/// The room that an item takes.
pub(crate) fn cost(item: &RawValue, room: u32) -> u32 {
    u32::try_from(item.get().len()).unwrap_or(u32::MAX).min(room)
}

/// What the daemon says to one question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "SaidLine", into = "SaidLine")]
pub(crate) struct FromDaemon {
    pub(crate) id: u64,
    pub(crate) what: Said,
}

#[derive(Clone, Debug)]
pub(crate) enum Said {
    Item(Box<RawValue>),
    Done(Box<RawValue>),
    Refused(Refusal),
    /// The last word: no question after this one was read.
    Leaving,
}

/// As it is written. A raw value cannot be in an enum that is flattened.
#[derive(Debug, Serialize, Deserialize)]
struct SaidLine {
    id: u64,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    item: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    done: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<Refusal>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaving: bool,
}

/// A `null` is an answer too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl From<FromDaemon> for SaidLine {
    fn from(line: FromDaemon) -> Self {
        let mut said = Self { id: line.id, item: None, done: None, refused: None, leaving: false };
        match line.what {
            Said::Item(item) => said.item = Some(item),
            Said::Done(done) => said.done = Some(done),
            Said::Refused(refusal) => said.refused = Some(refusal),
            Said::Leaving => said.leaving = true,
        }
        said
    }
}

impl From<SaidLine> for FromDaemon {
    fn from(line: SaidLine) -> Self {
        let what = match (line.item, line.done, line.refused) {
            (Some(item), _, _) => Said::Item(item),
            (_, Some(done), _) => Said::Done(done),
            (_, _, Some(refusal)) => Said::Refused(refusal),
            (None, None, None) if line.leaving => Said::Leaving,
            (None, None, None) => Said::Refused(Refusal::internal("the daemon said nothing")),
        };
        Self { id: line.id, what }
    }
}

pub(crate) fn parse<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// A value as a line. One that is too long to be read is [`io::ErrorKind::FileTooLarge`].
pub(crate) fn line<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    if line.len() as u64 > LINE_MAX {
        let what = format!("it is {} bytes long, and {LINE_MAX} is the most", line.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(line)
}

/// Writes nothing of a line that is too long.
pub(crate) async fn write_line<W, T>(writer: &mut W, value: &T) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
    T: Serialize,
{
    writer.write_all(&line(value)?).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        for (what, expect) in [
            (Said::Item(raw("[1]")), r#"{"id":7,"item":[1]}"#),
            (Said::Done(raw("null")), r#"{"id":7,"done":null}"#),
            (Said::Leaving, r#"{"id":7,"leaving":true}"#),
            (
                Said::Refused(Refusal::ended("late")),
                r#"{"id":7,"refused":{"kind":"ended","message":"late"}}"#,
            ),
        ] {
            let line = serde_json::to_string(&FromDaemon { id: 7, what }).unwrap();
            assert_eq!(line, expect);
            let back: FromDaemon = parse(line.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&back).unwrap(), expect);
        }
    }
}
