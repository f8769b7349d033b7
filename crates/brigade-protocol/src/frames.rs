//! The frames of the daemon's protocol: one JSON value per line, both ways, over a Unix socket.
//!
//! ```text
//! client: {"protocol":3,"oldest_protocol":2,"version":"0.1.0","role":"operator","operator_key":".."}
//! daemon: {"protocol":3,"version":"0.1.0","pid":4242}, or {"refused":{..},"version":"0.1.0","protocol":3}
//! client: {"id":1,"request":{"exec":{..}},"window":1048576}
//! daemon: {"id":1,"item":..} any number of times, then {"id":1,"reply":..} or {"id":1,"refused":..}
//! client: {"id":1,"ack_bytes":65536}         confirms that many bytes of items
//! client: {"id":1,"cancel":true}             cancels a request; with the id 0 it has no effect
//! daemon: {"id":7,"shutting_down":true}      last frame: the daemon read no request after 7
//! ```
//!
//! The daemon replies to requests in any order. Each request has its own flow-control window: at
//! most that many bytes of items are in flight until the client acknowledges some. An item that is
//! larger than the window takes all of it. A client can therefore read every line at once, and a
//! slow consumer of one request delays no other. Without `window`, the daemon sends items as fast
//! as the client reads.
//!
//! Both sides ignore unknown fields and use the highest protocol that both know, so that each can
//! be newer than the other by one number. Protocol 3 added keys and names of messages: a client
//! sends no request with one to a daemon of protocol 2, which would ignore it.
//!
//! A hello has the operator key, unless a process of a task sends it; see [`crate::operator_key`].
//! A client with conversations sends the id of its own (`"conversation"`), the same after a
//! reconnect.
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

/// The version of the protocol. A daemon also serves the versions from the oldest one on.
pub const PROTOCOL_VERSION: u32 = 3;
pub const OLDEST_PROTOCOL_VERSION: u32 = 2;

/// Returns true if this version supports the protocol.
pub fn is_supported_protocol(protocol: u32) -> bool {
    (OLDEST_PROTOCOL_VERSION..=PROTOCOL_VERSION).contains(&protocol)
}

/// The maximum length of a line with its newline. A longer line is a mistake or an attack.
pub const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloFrame {
    /// The newest protocol that the client supports.
    pub protocol: u32,
    /// The oldest protocol that the client supports; `None` is the newest.
    #[serde(default)]
    pub oldest_protocol: Option<u32>,
    pub version: String,
    pub role: ClientRole,
    /// The key that the operator and named clients need. A process of a task needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_key: Option<OperatorKey>,
    /// The conversation of a client: an id that the client created when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl HelloFrame {
    /// Returns the protocol for this connection, if both sides have one in common.
    pub fn negotiate_protocol(&self) -> Option<u32> {
        let oldest = self.oldest_protocol.unwrap_or(self.protocol);
        Some(self.protocol.min(PROTOCOL_VERSION))
            .filter(|common| is_supported_protocol(*common) && *common >= oldest)
    }
}

/// The role that a client asks for. A process of a task acts as that task, whatever its role is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientRole {
    /// The operator, who sees and controls everything and collects no results.
    Operator,
    /// A client, which sees all top-level tasks, collects their results, and controls its own.
    Client(String),
    /// A client that also controls the tasks of others, because its user allows that.
    SharedClient(String),
}

impl ClientRole {
    pub fn client_name(&self) -> Option<&str> {
        match self {
            Self::Operator => None,
            Self::Client(name) | Self::SharedClient(name) => Some(name),
        }
    }
}

/// The role and the conversation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIntroduction {
    pub role: ClientRole,
    pub conversation: Option<ConversationId>,
}

impl From<ClientRole> for ClientIntroduction {
    fn from(role: ClientRole) -> Self {
        Self { role, conversation: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WelcomeFrame {
    Accepted {
        protocol: u32,
        version: String,
        pid: u32,
    },
    Refused {
        refused: Refusal,
        version: String,
        /// The daemon's newest protocol. `None` of a daemon that does not know this hello frame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        protocol: Option<u32>,
    },
}

/// A frame of a client after its hello.
#[derive(Debug, Deserialize)]
pub struct ClientFrame<'a> {
    pub id: u64,
    #[serde(default, borrow)]
    pub request: Option<&'a RawValue>,
    /// The bytes of items that may be in flight.
    #[serde(default)]
    pub window: Option<u32>,
    /// The bytes of items that the client acknowledges.
    #[serde(default)]
    pub ack_bytes: u32,
    #[serde(default)]
    pub cancel: bool,
}

#[derive(Debug, Serialize)]
pub struct RequestFrame<A> {
    pub id: u64,
    pub request: A,
    pub window: u32,
}

#[derive(Debug, Serialize)]
pub struct AckFrame {
    pub id: u64,
    pub ack_bytes: u32,
}

#[derive(Debug, Serialize)]
pub struct CancelFrame {
    pub id: u64,
    pub cancel: bool,
}

/// Returns the bytes of the window that an item takes.
pub fn window_cost(item: &RawValue, window: u32) -> u32 {
    u32::try_from(item.get().len()).unwrap_or(u32::MAX).min(window)
}

/// A frame of the daemon for one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "ServerFrameJson", into = "ServerFrameJson")]
pub struct ServerFrame {
    pub id: u64,
    pub body: ServerFrameBody,
}

#[derive(Clone, Debug)]
pub enum ServerFrameBody {
    Item(Box<RawValue>),
    Reply(Box<RawValue>),
    Refused(Refusal),
    /// The last frame: no request after this one was read.
    ShuttingDown,
}

/// The JSON form of [`ServerFrame`]. A flattened enum cannot hold a raw value.
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

/// Deserializes a present field, also a `null`, which is a valid reply.
fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl From<ServerFrame> for ServerFrameJson {
    fn from(frame: ServerFrame) -> Self {
        let mut json =
            Self { id: frame.id, item: None, reply: None, refused: None, shutting_down: false };
        match frame.body {
            ServerFrameBody::Item(item) => json.item = Some(item),
            ServerFrameBody::Reply(reply) => json.reply = Some(reply),
            ServerFrameBody::Refused(refusal) => json.refused = Some(refusal),
            ServerFrameBody::ShuttingDown => json.shutting_down = true,
        }
        json
    }
}

impl From<ServerFrameJson> for ServerFrame {
    fn from(json: ServerFrameJson) -> Self {
        let body = match (json.item, json.reply, json.refused) {
            (Some(item), _, _) => ServerFrameBody::Item(item),
            (_, Some(reply), _) => ServerFrameBody::Reply(reply),
            (_, _, Some(refusal)) => ServerFrameBody::Refused(refusal),
            (None, None, None) if json.shutting_down => ServerFrameBody::ShuttingDown,
            (None, None, None) => {
                ServerFrameBody::Refused(Refusal::internal("empty frame from the daemon"))
            }
        };
        Self { id: json.id, body }
    }
}

pub fn parse_line<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Encodes a value as a line. A line over the maximum is [`io::ErrorKind::FileTooLarge`].
pub fn encode_line<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    if line.len() as u64 > LINE_BYTES_MAX {
        let problem = format!("it has {} bytes, more than {LINE_BYTES_MAX}", line.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(line)
}

/// Writes a value as a line. Of a line over the maximum, nothing is written.
pub async fn write_line<W, T>(writer: &mut W, value: &T) -> io::Result<()>
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
    fn frames_are_parsed_as_they_were_encoded() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        for (body, expect) in [
            (ServerFrameBody::Item(raw("[1]")), r#"{"id":7,"item":[1]}"#),
            (ServerFrameBody::Reply(raw("null")), r#"{"id":7,"reply":null}"#),
            (ServerFrameBody::ShuttingDown, r#"{"id":7,"shutting_down":true}"#),
            (
                ServerFrameBody::Refused(Refusal::ended("late")),
                r#"{"id":7,"refused":{"kind":"ended","message":"late"}}"#,
            ),
        ] {
            let line = serde_json::to_string(&ServerFrame { id: 7, body }).unwrap();
            assert_eq!(line, expect);
            let back: ServerFrame = parse_line(line.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&back).unwrap(), expect);
        }
    }
}
