//! A small HTTP server that speaks the providers' formats. Tests and examples use real sockets and
//! real parsers with it, without a provider.
//!
//! ```text
//! Provider ──HTTP──> WireServer ──WireRequest──> a closure, or any `Model`
//!          <─events─            <──WireReply───
//! ```
//!
//! One file per format parses its requests and writes its streams; `http` carries them.

mod anthropic;
mod chat;
mod gemini;
mod http;
mod ollama;
mod responses;

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::catalog::ProviderKind;
use crate::conversation::ChatMessage;
use crate::error::{ModelError, ModelErrorKind};
use crate::keys::KeySource;
use crate::model::{Model, ModelReply, ModelRequest, ReplyPart, ToolSpec};
use crate::providers::ProviderOptions;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireFormat {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Anthropic,
    /// `POST /v1beta/models/MODEL:streamGenerateContent`
    Gemini,
    /// `POST /api/chat`
    Ollama,
}

impl WireFormat {
    pub const ALL: [Self; 5] =
        [Self::Chat, Self::Responses, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Returns the provider that uses the format.
    pub fn provider_kind(self) -> ProviderKind {
        match self {
            Self::Chat => ProviderKind::OpenAiChat,
            Self::Responses => ProviderKind::OpenAi,
            Self::Anthropic => ProviderKind::Anthropic,
            Self::Gemini => ProviderKind::Gemini,
            Self::Ollama => ProviderKind::Ollama,
        }
    }
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct WireRequest {
    pub format: WireFormat,
    /// The path with its query.
    pub target: String,
    /// Headers with names in lower case.
    pub headers: Vec<(String, String)>,
    pub model: String,
    pub system: String,
    /// The conversation. An `opaque` value is the item as it stood in the body.
    pub messages: Vec<ChatMessage>,
    pub tools: Vec<ToolSpec>,
    pub max_output: Option<u32>,
    /// The whole body as sent.
    pub body: Value,
}

impl WireRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The server's reaction to a request.
#[derive(Clone, Debug)]
pub enum WireReply {
    Reply(ModelReply),
    /// The reply with a pause before each event.
    Slow(ModelReply, Duration),
    /// The reply, sent byte by byte.
    ByteByByte(ModelReply),
    /// Half of the events, then nothing more.
    HangMidway(ModelReply),
    /// Half of the events, then a closed connection.
    DisconnectMidway(ModelReply),
    /// Half of the events, then the end of the body, as from a proxy that lost its server.
    EndMidway(ModelReply),
    /// Half of the events, then an error in the format's own form.
    FailMidway(ModelReply, WireFault),
    Status(WireStatus),
    /// No bytes at all.
    Hang,
    /// These bytes instead of the events.
    Bytes(Vec<u8>),
}

/// An error that a provider sends in mid-stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFault {
    Overloaded,
    RateLimited,
}

#[derive(Clone, Debug)]
pub struct WireStatus {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl WireStatus {
    pub fn new(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A server on a loopback port. It ends when dropped.
pub struct WireServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<WireRequest>>>,
    connection_count: watch::Receiver<usize>,
    _accepting: JoinSet<()>,
}

impl WireServer {
    pub async fn start(
        answer: impl Fn(WireRequest) -> WireReply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::serve(ReplySource::Closure(Box::new(answer))).await
    }

    /// Answers with the replies of this model. The name of the model stands in for the agent, which
    /// is not sent.
    pub async fn start_with_model(model: Arc<dyn Model>) -> io::Result<Self> {
        Self::serve(ReplySource::Model(model)).await
    }

    async fn serve(source: ReplySource) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let requests = Arc::default();
        let (count_sender, connection_count) = watch::channel(0);
        let handler = Arc::new(WireHandler { source, requests: Arc::clone(&requests) });
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            let count_sender = Arc::new(count_sender);
            while let Ok((socket, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let guard = OpenConnectionGuard::new(&count_sender);
                let handler = Arc::clone(&handler);
                connections.spawn(async move {
                    // Many tests close the connection early.
                    let _ = http::serve_connection(socket, &handler).await;
                    drop(guard);
                });
            }
        });
        Ok(Self { address, requests, connection_count, _accepting: accepting })
    }

    pub fn base_url(&self, format: WireFormat) -> String {
        match format {
            WireFormat::Chat | WireFormat::Responses => format!("http://{}/v1", self.address),
            _ => format!("http://{}", self.address),
        }
    }

    /// Returns options for a provider that calls this server without a key.
    pub fn options(&self, format: WireFormat) -> ProviderOptions {
        ProviderOptions::new(format.provider_kind())
            .base_url(self.base_url(format))
            .key(KeySource::None)
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<WireRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn open_connections(&self) -> usize {
        *self.connection_count.borrow()
    }

    /// Waits until this number of connections is open.
    pub async fn wait_for_connections(&mut self, count: usize) {
        let _ = self.connection_count.wait_for(|open| *open == count).await;
    }
}

impl Debug for WireServer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireServer").field("address", &self.address).finish_non_exhaustive()
    }
}

enum ReplySource {
    Closure(Box<dyn Fn(WireRequest) -> WireReply + Send + Sync>),
    Model(Arc<dyn Model>),
}

struct WireHandler {
    source: ReplySource,
    requests: Arc<Mutex<Vec<WireRequest>>>,
}

impl WireHandler {
    async fn reply(&self, request: WireRequest) -> WireReply {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        match &self.source {
            ReplySource::Closure(answer) => answer(request),
            ReplySource::Model(model) => {
                let format = request.format;
                reply_from_model(model, request)
                    .await
                    .unwrap_or_else(|error| WireReply::Status(error_status(format, &error)))
            }
        }
    }
}

async fn reply_from_model(
    model: &Arc<dyn Model>,
    request: WireRequest,
) -> Result<WireReply, ModelError> {
    let mut parts = model.call(Arc::new(ModelRequest {
        agent: request.model.as_str().into(),
        model: request.model.into(),
        system: request.system.into(),
        messages: request.messages,
        tools: request.tools.into(),
        max_output: request.max_output.unwrap_or(u32::MAX),
        temperature: None,
        effort: None,
    }));
    while let Some(part) = parts.next().await {
        if let ReplyPart::Finished(reply) = part? {
            return Ok(WireReply::Reply(*reply));
        }
    }
    Ok(WireReply::Status(WireStatus::new(500, "the model stopped in mid-reply")))
}

/// Returns the status with which a provider reports this error.
fn error_status(format: WireFormat, error: &ModelError) -> WireStatus {
    let (status, code) = match error.kind {
        ModelErrorKind::RateLimited => (429, "rate_limit_error"),
        ModelErrorKind::Exhausted => (429, "insufficient_quota"),
        ModelErrorKind::Server
        | ModelErrorKind::Connection
        | ModelErrorKind::Timeout
        | ModelErrorKind::Garbage => (500, "api_error"),
        ModelErrorKind::Auth => (401, "authentication_error"),
        ModelErrorKind::TooLong => (400, "context_length_exceeded"),
        ModelErrorKind::Invalid => (400, "invalid_request_error"),
    };
    let message = &error.message;
    let body = match format {
        WireFormat::Chat | WireFormat::Responses => {
            json!({ "error": { "message": message, "type": code, "code": code } })
        }
        WireFormat::Anthropic => {
            json!({ "type": "error", "error": { "type": code, "message": message } })
        }
        WireFormat::Gemini => {
            json!({ "error": { "code": status, "message": message, "status": code } })
        }
        WireFormat::Ollama => json!({ "error": message.as_str() }),
    };
    let reply = WireStatus::new(error.status.unwrap_or(status), body.to_string());
    match error.retry_after {
        Some(after) => reply.header("retry-after", after.as_secs_f64().to_string()),
        None => reply,
    }
}

/// A guard that counts one connection as open.
struct OpenConnectionGuard(Arc<watch::Sender<usize>>);

impl OpenConnectionGuard {
    fn new(count_sender: &Arc<watch::Sender<usize>>) -> Self {
        count_sender.send_modify(|open| *open += 1);
        Self(Arc::clone(count_sender))
    }
}

impl Drop for OpenConnectionGuard {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Splits a text in two pieces, as a model streams it.
fn split_in_two(text: &str) -> impl Iterator<Item = &str> {
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|piece| !piece.is_empty())
}

fn text_field(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn array_items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Returns a text, or the texts of a list of parts.
fn join_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn tool_spec(function: &Value, parameters: &str) -> ToolSpec {
    ToolSpec {
        name: text_field(function, "name").into(),
        description: text_field(function, "description").into(),
        parameters: Arc::new(function.get(parameters).cloned().unwrap_or_default()),
    }
}

/// Returns one server-sent event.
fn sse_data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

/// Adds a result to the previous ones, or starts the next message with it.
fn add_result(messages: &mut Vec<ChatMessage>, result: crate::conversation::ToolResult) {
    match messages.last_mut() {
        Some(ChatMessage::Results(results)) => results.push(result),
        _ => messages.push(ChatMessage::Results(vec![result])),
    }
}

/// Returns the name of the tool whose call has this id.
fn called_tool_name(messages: &[ChatMessage], id: &str) -> Arc<str> {
    let assistants = messages.iter().rev().filter_map(|message| match message {
        ChatMessage::Assistant(message) => Some(message),
        _ => None,
    });
    let mut calls = assistants.flat_map(|message| message.calls());
    calls.find(|call| &*call.id == id).map(|call| call.name.clone()).unwrap_or_default()
}
