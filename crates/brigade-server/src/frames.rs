//! The daemon's protocol: one JSON value a line, both ways, over a Unix socket.
//!
//! ```text
//! client: {"protocol":2,"oldest_protocol":2,"version":"0.1.0","role":"operator","operator_key":".."}
//! daemon: {"protocol":2,"version":"0.1.0","pid":4242}, or {"refused":{..},"version":"0.1.0"}
//! client: {"id":1,"request":{"exec":{..}},"window":1048576}
//! daemon: {"id":1,"item":..} any number of times, then {"id":1,"reply":..} or {"id":1,"refused":..}
//! client: {"id":1,"ack_bytes":65536}         confirms that many bytes of items
//! client: {"id":1,"cancel":true}             cancels a request
//! daemon: {"id":7,"shutting_down":true}      last frame: the daemon read no request after 7
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
//! Hello, welcome, `status` and `shutdown` are the same in every version, as
//! `docs/design/2026-11-17-frozen-frames.md` defines them: a client of any version learns which daemon
//! runs, and can shut it down. A daemon serves no other request to a client of an unknown protocol.

use std::io;

use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::operator_key::OperatorKey;

/// The version of the protocol. A daemon serves this one and the one before.
pub const PROTOCOL_VERSION: u32 = 2;
pub const OLDEST_PROTOCOL_VERSION: u32 = 2;

/// Whether this version knows a protocol.
pub(crate) fn is_supported_protocol(protocol: u32) -> bool {
    (OLDEST_PROTOCOL_VERSION..=PROTOCOL_VERSION).contains(&protocol)
}

/// The longest line that is written or read, with its end. Whatever is longer is a mistake or an attack.
pub const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloFrame {
    /// The newest that the client speaks.
    pub protocol: u32,
    /// The oldest; the same, when it does not say.
    #[serde(default)]
    pub oldest_protocol: Option<u32>,
    pub version: String,
    pub role: ClientRole,
    /// Makes the client the operator or a named client. A process of a task needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_key: Option<OperatorKey>,
    /// The conversation of a client that has them: an id that it made when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl HelloFrame {
    /// The protocol for this conversation, if both sides know one.
    pub(crate) fn negotiate_protocol(&self) -> Option<u32> {
        let oldest = self.oldest_protocol.unwrap_or(self.protocol);
        Some(self.protocol.min(PROTOCOL_VERSION))
            .filter(|common| is_supported_protocol(*common) && *common >= oldest)
    }
}

/// As whom a client acts. A process below a command of Brigade's acts as that task, whatever it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientRole {
    /// Sees and controls everything, consumes nothing.
    Operator,
    /// Sees all top-level work in each session, takes its results, and steers what it started itself.
    Client(String),
    /// A client that also steers what others have started, because its user said so.
    SharedClient(String),
}

impl ClientRole {
    /// The client's name.
    pub fn client_name(&self) -> Option<&str> {
        match self {
            Self::Operator => None,
            Self::Client(name) | Self::SharedClient(name) => Some(name),
        }
    }
}

/// As whom a client acts, and in which of its conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIntroduction {
    pub role: ClientRole,
    pub conversation: Option<ConversationId>,
}

impl From<ClientRole> for ClientIntroduction {
    fn from(who: ClientRole) -> Self {
        Self { role: who, conversation: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WelcomeFrame {
    Accepted { protocol: u32, version: String, pid: u32 },
    Refused { refused: Refusal, version: String },
}

/// What a client says after its hello.
#[derive(Debug, Deserialize)]
pub(crate) struct ClientFrame<'a> {
    pub(crate) id: u64,
    #[serde(default, borrow)]
    pub(crate) request: Option<&'a RawValue>,
    /// How many bytes of items may be on their way.
    #[serde(default)]
    pub(crate) window: Option<u32>,
    /// So many of them were taken.
    #[serde(default)]
    pub(crate) ack_bytes: u32,
    #[serde(default)]
    pub(crate) cancel: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestFrame<A> {
    pub(crate) id: u64,
    pub(crate) request: A,
    pub(crate) window: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct AckFrame {
    pub(crate) id: u64,
    pub(crate) ack_bytes: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct CancelFrame {
    pub(crate) id: u64,
    pub(crate) cancel: bool,
}

/// The room that an item takes.
pub(crate) fn window_cost(item: &RawValue, room: u32) -> u32 {
    u32::try_from(item.get().len()).unwrap_or(u32::MAX).min(room)
}

/// What the daemon says to one question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "ServerFrameJson", into = "ServerFrameJson")]
pub(crate) struct ServerFrame {
    pub(crate) id: u64,
    pub(crate) body: ServerFrameBody,
}

#[derive(Clone, Debug)]
pub(crate) enum ServerFrameBody {
    Item(Box<RawValue>),
    Reply(Box<RawValue>),
    Refused(Refusal),
    /// The last word: no question after this one was read.
    ShuttingDown,
}

/// As it is written. A raw value cannot be in an enum that is flattened.
#[derive(Debug, Serialize, Deserialize)]
struct ServerFrameJson {
    id: u64,
    #[serde(
        default,
        deserialize_with = "deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    item: Option<Box<RawValue>>,
    #[serde(
        default,
        deserialize_with = "deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    reply: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<Refusal>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shutting_down: bool,
}

/// A `null` is an answer too.
fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl From<ServerFrame> for ServerFrameJson {
    fn from(line: ServerFrame) -> Self {
        let mut said =
            Self { id: line.id, item: None, reply: None, refused: None, shutting_down: false };
        match line.body {
            ServerFrameBody::Item(item) => said.item = Some(item),
            ServerFrameBody::Reply(done) => said.reply = Some(done),
            ServerFrameBody::Refused(refusal) => said.refused = Some(refusal),
            ServerFrameBody::ShuttingDown => said.shutting_down = true,
        }
        said
    }
}

impl From<ServerFrameJson> for ServerFrame {
    fn from(line: ServerFrameJson) -> Self {
        let what = match (line.item, line.reply, line.refused) {
            (Some(item), _, _) => ServerFrameBody::Item(item),
            (_, Some(done), _) => ServerFrameBody::Reply(done),
            (_, _, Some(refusal)) => ServerFrameBody::Refused(refusal),
            (None, None, None) if line.shutting_down => ServerFrameBody::ShuttingDown,
            (None, None, None) => {
                ServerFrameBody::Refused(Refusal::internal("the daemon said nothing"))
            }
        };
        Self { id: line.id, body: what }
    }
}

pub(crate) fn parse_line<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// A value as a line. One that is too long to be read is [`io::ErrorKind::FileTooLarge`].
pub(crate) fn encode_line<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    if line.len() as u64 > LINE_BYTES_MAX {
        let what = format!("it is {} bytes long, and {LINE_BYTES_MAX} is the most", line.len());
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
    writer.write_all(&encode_line(value)?).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        for (what, expect) in [
            (ServerFrameBody::Item(raw("[1]")), r#"{"id":7,"item":[1]}"#),
            (ServerFrameBody::Reply(raw("null")), r#"{"id":7,"reply":null}"#),
            (ServerFrameBody::ShuttingDown, r#"{"id":7,"shutting_down":true}"#),
            (
                ServerFrameBody::Refused(Refusal::ended("late")),
                r#"{"id":7,"refused":{"kind":"ended","message":"late"}}"#,
            ),
        ] {
            let line = serde_json::to_string(&ServerFrame { id: 7, body: what }).unwrap();
            assert_eq!(line, expect);
            let back: ServerFrame = parse_line(line.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&back).unwrap(), expect);
        }
    }
}
