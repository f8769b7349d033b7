//! What an error means, told without a secret.

use std::time::Duration;

use http::HeaderMap;
use rig_core::ProviderResponseError;
use rig_core::error::ProviderError;
use rig_core::http_client;
use serde_json::Value;

use super::ProviderOptions;
use crate::error::{ErrorKind, ModelError};
use crate::keys::{Key, KeySource};
use crate::transport::{Interrupted, retry_after};

/// Of what a provider says about an error; the rest is of no use to a person or a model.
const TOLD: usize = 600;

/// What must stand in no text that leaves this crate.
pub(super) struct Secrets {
    words: Vec<String>,
    kind: &'static str,
    /// Where the key is, for whoever has to look there. None when no key is sent.
    source: Option<String>,
}

impl Secrets {
    pub(super) fn new(options: &ProviderOptions, key: &Key) -> Self {
        let mut words = Vec::new();
        if !key.is_empty() {
            words.push(key.expose().to_owned());
            words.push(escaped(key.expose()));
        }
        words.extend(options.base_url.as_deref().and_then(password));
        words.retain(|word| !word.is_empty());
        Self {
            words,
            kind: options.kind.name(),
            source: (options.key != KeySource::None).then(|| options.key.to_string()),
        }
    }

    pub(super) fn told(&self, error: &ProviderError) -> ModelError {
        let mut told = meaning(error);
        told.message = format!("{}: {}", self.kind, told.message);
        if told.kind == ErrorKind::Auth {
            told.message = match &self.source {
                Some(source) => format!("{} (the key is in {source})", told.message),
                None => {
                    format!("{} (no key is sent; `key` of the provider names one)", told.message)
                }
            };
        }
        self.stripped(told)
    }

    pub(super) fn stripped(&self, mut error: ModelError) -> ModelError {
        for word in &self.words {
            error.message = error.message.replace(word.as_str(), "[key]");
        }
        error
    }
}

/// The key as a URL would have it.
fn escaped(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    key.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

fn password(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let (user, _) = rest.split('/').next()?.rsplit_once('@')?;
    Some(user.split_once(':').map_or(user, |(_, password)| password).to_owned())
}

fn meaning(error: &ProviderError) -> ModelError {
    match error {
        ProviderError::Http(error) => interrupted(error),
        ProviderError::ProviderResponse(response)
        | ProviderError::InvalidAuthentication(response) => refused(response),
        ProviderError::Json(error) => {
            ModelError::new(ErrorKind::Garbage, format!("the reply cannot be read: {error}"))
        }
        ProviderError::Response(text) => ModelError::new(ErrorKind::Garbage, shortened(text)),
        ProviderError::Truncated => ModelError::new(ErrorKind::Connection, "the reply was cut off"),
        ProviderError::Provider(text) => ended_badly(text),
        other => ModelError::new(ErrorKind::Invalid, shortened(&other.to_string())),
    }
}

/// The provider closed the reply properly, and says in it that it failed.
pub(super) fn ended_badly(text: &str) -> ModelError {
    let kind = by_words(text).unwrap_or(ErrorKind::Garbage);
    ModelError::new(kind, shortened(text))
}

fn interrupted(error: &http_client::Error) -> ModelError {
    match error {
        http_client::Error::Instance(inner) => match inner.downcast_ref::<Interrupted>() {
            Some(inner) => ModelError::new(inner.kind, inner.message.clone()),
            None => ModelError::new(ErrorKind::Connection, shortened(&inner.to_string())),
        },
        http_client::Error::InvalidContentType(found) => {
            let found = found.to_str().unwrap_or("something else");
            ModelError::new(
                ErrorKind::Garbage,
                format!("the reply is no stream of events but `{}`", shortened(found)),
            )
        }
        http_client::Error::StreamEnded => {
            ModelError::new(ErrorKind::Connection, "the reply was cut off")
        }
        other => ModelError::new(ErrorKind::Invalid, shortened(&other.to_string())),
    }
}

fn refused(response: &ProviderResponseError) -> ModelError {
    let status = response.status.map(|status| status.as_u16());
    let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
    let said = Said::of(&body);
    let kind = kind(status, &said, &response.body);
    let text = match said.message {
        Some(text) => shortened(text),
        None => shortened(&response.body),
    };
    let message = match (status, text.is_empty()) {
        (Some(status), true) => format!("status {status}"),
        (Some(status), false) => format!("status {status}: {text}"),
        (None, _) => text,
    };
    let headers = response.headers.as_ref();
    let retry_after = headers.and_then(|headers: &HeaderMap| retry_after(headers));
    ModelError { kind, message, status, retry_after: retry_after.or_else(|| retry_delay(&body)) }
}

/// What an error of any provider says of itself.
struct Said<'a> {
    codes: Vec<&'a str>,
    message: Option<&'a str>,
}

impl<'a> Said<'a> {
    fn of(body: &'a Value) -> Self {
        // Gemini sends a list when it was asked for one.
        let body = body.get(0).unwrap_or(body);
        let places = [body.pointer("/error"), body.pointer("/response/error"), Some(body)];
        let error = places.into_iter().flatten().find(|place| !place.is_null());
        let Some(error) = error else { return Self { codes: Vec::new(), message: None } };
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        let reasons = error.get("details").and_then(Value::as_array).into_iter().flatten();
        let reasons = reasons.filter_map(|detail| detail.get("reason")?.as_str());
        let codes = ["code", "type", "status"].into_iter().filter_map(text).chain(reasons);
        Self { codes: codes.collect(), message: text("message").or(error.as_str()) }
    }

    fn has(&self, codes: &[&str]) -> bool {
        self.codes.iter().any(|code| codes.contains(code))
    }
}

fn kind(status: Option<u16>, said: &Said<'_>, body: &str) -> ErrorKind {
    let exhausted = ["insufficient_quota", "billing_hard_limit_reached", "billing_error"];
    if status == Some(402) || said.has(&exhausted) {
        return ErrorKind::Exhausted;
    }
    if said.has(&["context_length_exceeded", "exceed_context_size_error", "request_too_large"]) {
        return ErrorKind::TooLong;
    }
    if let Some(kind @ (ErrorKind::TooLong | ErrorKind::Exhausted)) =
        by_words(said.message.unwrap_or(body))
    {
        return kind;
    }
    if said.has(&["invalid_api_key", "API_KEY_INVALID"]) {
        return ErrorKind::Auth;
    }
    match status {
        Some(401 | 403) => ErrorKind::Auth,
        Some(413) => ErrorKind::TooLong,
        Some(429) => ErrorKind::RateLimited,
        Some(408 | 425 | 500..) => ErrorKind::Server,
        Some(300..=499) => ErrorKind::Invalid,
        Some(_) | None => by_codes(said).unwrap_or(ErrorKind::Server),
    }
}

/// An error in mid-stream has no status.
fn by_codes(said: &Said<'_>) -> Option<ErrorKind> {
    let table: [(ErrorKind, &[&str]); 4] = [
        (
            ErrorKind::RateLimited,
            &["rate_limit_error", "rate_limit_exceeded", "too_many_requests", "RESOURCE_EXHAUSTED"],
        ),
        (
            ErrorKind::Auth,
            &["authentication_error", "permission_error", "UNAUTHENTICATED", "PERMISSION_DENIED"],
        ),
        (
            ErrorKind::Server,
            &["overloaded_error", "api_error", "server_error", "timeout_error", "UNAVAILABLE"],
        ),
        (
            ErrorKind::Invalid,
            &["invalid_request_error", "invalid_prompt", "not_found_error", "INVALID_ARGUMENT"],
        ),
    ];
    table.into_iter().find(|(_, codes)| said.has(codes)).map(|(kind, _)| kind)
}

/// What is said nowhere but in prose.
fn by_words(text: &str) -> Option<ErrorKind> {
    let text = text.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if any(&[
        "context length",
        "context window",
        "context size",
        "prompt is too long",
        "input is too long",
        "input token count",
        "maximum number of tokens",
    ]) {
        Some(ErrorKind::TooLong)
    } else if any(&["credit balance", "exceeded your current quota, please check your plan"])
        && !any(&["retry in"])
    {
        Some(ErrorKind::Exhausted)
    } else if any(&["rate_limit_exceeded", "rate limit"]) {
        Some(ErrorKind::RateLimited)
    } else if any(&["server_error", "overloaded"]) {
        Some(ErrorKind::Server)
    } else {
        None
    }
}

/// Gemini puts it into the body: `{"retryDelay": "13s"}`.
fn retry_delay(body: &Value) -> Option<Duration> {
    let body = body.get(0).unwrap_or(body);
    let mut details = body.pointer("/error/details")?.as_array()?.iter();
    let delay = details.find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(TOLD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
