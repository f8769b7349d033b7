//! A client of one remote agent, over the JSON-RPC binding.

use std::net::IpAddr;
use std::time::Duration;

use a2a::{
    AgentCard, Message, Part, Role, SVC_PARAM_VERSION, SendMessageResponse,
    TRANSPORT_PROTOCOL_JSONRPC, Task, VERSION, methods,
};
use brigade_model::refusal::Refusal;
use reqwest::{Client, Method, Response, Url};
use serde_json::{Value, json};

use super::remote_journal::MessageRecord;

const CARD_PATH: &str = "/.well-known/agent-card.json";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const RESPONSE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The reason why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RemoteError {
    /// The request was not sent.
    NotConnected(String),
    /// The request may have been executed.
    Interrupted(String),
    /// The remote side answered with an error.
    Refused { code: i64, text: String },
}

#[derive(Clone, Debug)]
pub(super) struct RemoteClient {
    url: Url,
    http: Client,
    pub(super) token_variable: Option<String>,
}

/// A message as it is sent.
#[derive(Clone, Debug)]
pub(super) struct OutgoingMessage(Message);

impl OutgoingMessage {
    pub(super) fn of(record: &MessageRecord) -> Self {
        Self(Message {
            message_id: record.id.clone(),
            context_id: record.context_id.clone(),
            task_id: record.task_id.clone(),
            role: Role::User,
            parts: vec![Part::text(&record.text)],
            metadata: None,
            extensions: None,
            reference_task_ids: None,
        })
    }
}

impl RemoteClient {
    pub(super) fn new(url: &str) -> Result<Self, Refusal> {
        let url = check_url(url)?;
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // An error means that another thread was first.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        // A redirect could lead the token to another server.
        let builder =
            Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(REQUEST_TIMEOUT);
        let http = builder
            .build()
            .map_err(|error| Refusal::internal(format!("no HTTP client: {error}")))?;
        Ok(Self { url, http, token_variable: None })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a message, and returns its task at once.
    pub(super) async fn send(&self, message: &OutgoingMessage) -> Result<Task, RemoteError> {
        let params =
            json!({ "message": message.0, "configuration": { "returnImmediately": true } });
        let result = self.call(methods::SEND_MESSAGE, params).await?;
        match serde_json::from_value(result) {
            Ok(SendMessageResponse::Task(task)) => Ok(task),
            Ok(SendMessageResponse::Message(reply)) => Ok(completed_task(reply)),
            Err(error) => Err(unreadable(&error)),
        }
    }

    pub(super) async fn get(&self, id: &str) -> Result<Task, RemoteError> {
        let params = json!({ "id": id, "historyLength": 0 });
        let result = self.call(methods::GET_TASK, params).await?;
        serde_json::from_value(result).map_err(|error| unreadable(&error))
    }

    /// Cancels a task, and returns it as it is then.
    pub(super) async fn cancel(&self, id: &str) -> Result<Task, RemoteError> {
        let result = self.call(methods::CANCEL_TASK, json!({ "id": id })).await?;
        serde_json::from_value(result).map_err(|error| unreadable(&error))
    }

    /// Cancels a task. A failure is only logged: the run that wanted it has ended.
    pub(super) async fn cancel_logged(&self, id: &str) {
        if let Err(error) = self.cancel(id).await {
            tracing::warn!(?error, task = id, "a remote task was not canceled");
        }
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value, RemoteError> {
        let endpoint = self.find_endpoint().await?;
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut answer = self.request(Method::POST, endpoint, Some(body)).await?;
        if let Some(error) = answer.get("error") {
            let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
            let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
            return Err(RemoteError::Refused { code, text: text.to_owned() });
        }
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(wrong_answer("the answer has no result")),
        }
    }

    /// Returns the JSON-RPC endpoint of the card. It must be one of the same server, which gets the
    /// token.
    async fn find_endpoint(&self) -> Result<Url, RemoteError> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{CARD_PATH}", self.url.path().trim_end_matches('/')));
        // Without a card nothing was sent.
        let card = self.request(Method::GET, url, None).await.map_err(|error| match error {
            RemoteError::Interrupted(text) => RemoteError::NotConnected(text),
            error => error,
        })?;
        let card: AgentCard = serde_json::from_value(card).map_err(|error| unreadable(&error))?;
        let mut interfaces = card.supported_interfaces.iter();
        let found = interfaces.find(|interface| {
            interface.protocol_binding == TRANSPORT_PROTOCOL_JSONRPC
                && interface.protocol_version.starts_with(VERSION)
        });
        let Some(found) = found else {
            return Err(wrong_answer("the card names no JSON-RPC interface of A2A 1.0"));
        };
        let endpoint = Url::parse(&found.url).ok();
        let endpoint = endpoint.filter(|endpoint| endpoint.origin() == self.url.origin());
        endpoint.ok_or_else(|| wrong_answer("the card names an interface of another server"))
    }

    async fn request(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Value, RemoteError> {
        let mut request = self.http.request(method, url).header(SVC_PARAM_VERSION, VERSION);
        if let Some(token) = self.token()? {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.map_err(|error| describe(&error))?;
        let status = response.status();
        let bytes = read_bounded(response).await?;
        if status.is_server_error() {
            return Err(RemoteError::Interrupted(format!("status {status}")));
        }
        if !status.is_success() {
            return Err(wrong_answer(&format!("status {status}")));
        }
        serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))
    }

    fn token(&self) -> Result<Option<String>, RemoteError> {
        let Some(name) = &self.token_variable else { return Ok(None) };
        match std::env::var(name) {
            Ok(token) => Ok(Some(token)),
            Err(_) => Err(wrong_answer(&format!("the variable {name} with its token is not set"))),
        }
    }
}

/// Returns the URL, or refuses one that would send the token over an open network.
fn check_url(text: &str) -> Result<Url, Refusal> {
    let invalid = |problem: &str| Refusal::invalid(format!("{text:?} {problem}"));
    let url = Url::parse(text).map_err(|error| invalid(&format!("is not a URL: {error}")))?;
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("has a password: pass the token in a variable"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback => Ok(url),
        _ => Err(invalid("is neither https nor of this machine")),
    }
}

async fn read_bounded(mut response: Response) -> Result<Vec<u8>, RemoteError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| describe(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > RESPONSE_BYTES_MAX {
            return Err(wrong_answer(&format!("it has more than {RESPONSE_BYTES_MAX} bytes")));
        }
    }
    Ok(bytes)
}

fn describe(error: &reqwest::Error) -> RemoteError {
    let text = error.to_string();
    match error.is_connect() || error.is_builder() {
        true => RemoteError::NotConnected(text),
        false => RemoteError::Interrupted(text),
    }
}

fn unreadable(error: &serde_json::Error) -> RemoteError {
    wrong_answer(&format!("the answer cannot be read: {error}"))
}

fn wrong_answer(text: &str) -> RemoteError {
    RemoteError::Refused { code: 0, text: text.to_owned() }
}

/// Returns the task of an agent that answers with a message alone.
fn completed_task(reply: Message) -> Task {
    Task {
        id: reply.task_id.clone().unwrap_or_default(),
        context_id: reply.context_id.clone().unwrap_or_default(),
        status: a2a::TaskStatus {
            state: a2a::TaskState::Completed,
            message: Some(reply),
            timestamp: None,
        },
        artifacts: None,
        history: None,
        metadata: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_leave_the_machine_only_over_https() {
        for url in
            ["https://x.example/a", "http://127.0.0.1:7/a", "http://[::1]/", "http://localhost:1"]
        {
            assert!(check_url(url).is_ok(), "{url}");
        }
        for url in
            ["http://x.example", "http://10.0.0.1", "ftp://localhost", "x", "https://a:b@x.example"]
        {
            assert!(check_url(url).is_err(), "{url}");
        }
    }
}
