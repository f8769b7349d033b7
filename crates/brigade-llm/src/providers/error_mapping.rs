//! Classifies errors of providers and redacts secrets from them.

use brigade_model::secret_redactor::SecretRedactor;
use std::time::Duration;

use brigade_model::truncate::truncate_chars;
use http::HeaderMap;
use rig_core::ProviderResponseError;
use rig_core::error::ProviderError;
use rig_core::http_client;
use serde_json::Value;

use super::ProviderOptions;
use crate::error::{ModelError, ModelErrorKind};
use crate::keys::{ApiKey, KeySource};
use crate::transport::{TransportError, parse_retry_after};

/// The maximum length of a provider's error text in characters. More is of no use to a person or a
/// model.
const ERROR_TEXT_MAX: usize = 600;

/// A redactor that removes the key and the URL's password from error texts.
pub(super) struct ErrorRedactor {
    secrets: SecretRedactor,
    provider: &'static str,
    /// The source of the key, named in errors about it. `None` if no key is sent.
    key_source: Option<String>,
}

impl ErrorRedactor {
    pub(super) fn new(options: &ProviderOptions, key: &ApiKey) -> Self {
        let mut secrets = SecretRedactor::default();
        secrets.add_key(key.expose());
        secrets.add_key(&percent_encode(key.expose()));
        if let Some(password) = options.base_url.as_deref().and_then(url_password) {
            secrets.add_key(&password);
        }
        Self {
            secrets,
            provider: options.kind.name(),
            key_source: (options.key != KeySource::None).then(|| options.key.to_string()),
        }
    }

    pub(super) fn to_model_error(&self, error: &ProviderError) -> ModelError {
        let mut model_error = classify_error(error);
        model_error.message = format!("{}: {}", self.provider, model_error.message);
        if model_error.kind == ModelErrorKind::Auth {
            model_error.message = match &self.key_source {
                Some(source) => format!("{} (the key is in {source})", model_error.message),
                None => {
                    format!(
                        "{} (no key is sent; `key` of the provider names one)",
                        model_error.message
                    )
                }
            };
        }
        self.redact(model_error)
    }

    pub(super) fn redact(&self, mut error: ModelError) -> ModelError {
        error.message = self.secrets.redact(error.message);
        error
    }
}

/// Encodes the key as a URL does.
fn percent_encode(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    key.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

fn url_password(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let (user, _) = rest.split('/').next()?.rsplit_once('@')?;
    Some(user.split_once(':').map_or(user, |(_, password)| password).to_owned())
}

fn classify_error(error: &ProviderError) -> ModelError {
    match error {
        ProviderError::Http(error) => transport_error(error),
        ProviderError::ProviderResponse(response)
        | ProviderError::InvalidAuthentication(response) => response_error(response),
        ProviderError::Json(error) => {
            ModelError::new(ModelErrorKind::Garbage, format!("the reply cannot be read: {error}"))
        }
        ProviderError::Response(text) => {
            ModelError::new(ModelErrorKind::Garbage, truncate_error(text))
        }
        ProviderError::Truncated => {
            ModelError::new(ModelErrorKind::Connection, "the reply was cut off")
        }
        ProviderError::Provider(text) => failed_reply_error(text),
        other => ModelError::new(ModelErrorKind::Invalid, truncate_error(&other.to_string())),
    }
}

/// Returns the error of a reply that the provider completed but marked as failed.
pub(super) fn failed_reply_error(text: &str) -> ModelError {
    let kind = kind_by_text(text).unwrap_or(ModelErrorKind::Garbage);
    ModelError::new(kind, truncate_error(text))
}

fn transport_error(error: &http_client::Error) -> ModelError {
    match error {
        http_client::Error::Instance(inner) => match inner.downcast_ref::<TransportError>() {
            Some(inner) => ModelError::new(inner.kind, inner.message.clone()),
            None => ModelError::new(ModelErrorKind::Connection, truncate_error(&inner.to_string())),
        },
        http_client::Error::InvalidContentType(found) => {
            let found = found.to_str().unwrap_or("another type");
            ModelError::new(
                ModelErrorKind::Garbage,
                format!("the reply is not an event stream but `{}`", truncate_error(found)),
            )
        }
        http_client::Error::StreamEnded => {
            ModelError::new(ModelErrorKind::Connection, "the reply was cut off")
        }
        other => ModelError::new(ModelErrorKind::Invalid, truncate_error(&other.to_string())),
    }
}

fn response_error(response: &ProviderResponseError) -> ModelError {
    let status = response.status.map(|status| status.as_u16());
    let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
    let body_error = ProviderErrorBody::parse(&body);
    let kind = classify_response(status, &body_error, &response.body);
    let text = match body_error.message {
        Some(text) => truncate_error(text),
        None => truncate_error(&response.body),
    };
    let message = match (status, text.is_empty()) {
        (Some(status), true) => format!("status {status}"),
        (Some(status), false) => format!("status {status}: {text}"),
        (None, _) => text,
    };
    let headers = response.headers.as_ref();
    let retry_after = headers.and_then(|headers: &HeaderMap| parse_retry_after(headers));
    ModelError {
        kind,
        message,
        status,
        retry_after: retry_after.or_else(|| parse_retry_delay(&body)),
    }
}

/// The codes and message of a provider's error body.
struct ProviderErrorBody<'a> {
    codes: Vec<&'a str>,
    message: Option<&'a str>,
}

impl<'a> ProviderErrorBody<'a> {
    fn parse(body: &'a Value) -> Self {
        // Gemini may send the error inside a list.
        let body = body.get(0).unwrap_or(body);
        let candidates = [body.pointer("/error"), body.pointer("/response/error"), Some(body)];
        let error = candidates.into_iter().flatten().find(|candidate| !candidate.is_null());
        let Some(error) = error else { return Self { codes: Vec::new(), message: None } };
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        let reasons = error.get("details").and_then(Value::as_array).into_iter().flatten();
        let reasons = reasons.filter_map(|detail| detail.get("reason")?.as_str());
        let codes = ["code", "type", "status"].into_iter().filter_map(text).chain(reasons);
        Self { codes: codes.collect(), message: text("message").or(error.as_str()) }
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        self.codes.iter().any(|code| codes.contains(code))
    }
}

fn classify_response(
    status: Option<u16>,
    body_error: &ProviderErrorBody<'_>,
    body: &str,
) -> ModelErrorKind {
    let exhausted = ["insufficient_quota", "billing_hard_limit_reached", "billing_error"];
    if status == Some(402) || body_error.has_code(&exhausted) {
        return ModelErrorKind::Exhausted;
    }
    if body_error.has_code(&[
        "context_length_exceeded",
        "exceed_context_size_error",
        "request_too_large",
    ]) {
        return ModelErrorKind::TooLong;
    }
    if let Some(kind @ (ModelErrorKind::TooLong | ModelErrorKind::Exhausted)) =
        kind_by_text(body_error.message.unwrap_or(body))
    {
        return kind;
    }
    if body_error.has_code(&["invalid_api_key", "API_KEY_INVALID"]) {
        return ModelErrorKind::Auth;
    }
    match status {
        Some(401 | 403) => ModelErrorKind::Auth,
        Some(413) => ModelErrorKind::TooLong,
        Some(429) => ModelErrorKind::RateLimited,
        Some(408 | 425 | 500..) => ModelErrorKind::Server,
        Some(300..=499) => ModelErrorKind::Invalid,
        Some(_) | None => kind_by_code(body_error).unwrap_or(ModelErrorKind::Server),
    }
}

/// Returns the kind of an error without a status, such as one in mid-stream.
fn kind_by_code(body_error: &ProviderErrorBody<'_>) -> Option<ModelErrorKind> {
    let table: [(ModelErrorKind, &[&str]); 4] = [
        (
            ModelErrorKind::RateLimited,
            &["rate_limit_error", "rate_limit_exceeded", "too_many_requests", "RESOURCE_EXHAUSTED"],
        ),
        (
            ModelErrorKind::Auth,
            &["authentication_error", "permission_error", "UNAUTHENTICATED", "PERMISSION_DENIED"],
        ),
        (
            ModelErrorKind::Server,
            &["overloaded_error", "api_error", "server_error", "timeout_error", "UNAVAILABLE"],
        ),
        (
            ModelErrorKind::Invalid,
            &["invalid_request_error", "invalid_prompt", "not_found_error", "INVALID_ARGUMENT"],
        ),
    ];
    table.into_iter().find(|(_, codes)| body_error.has_code(codes)).map(|(kind, _)| kind)
}

/// Returns the kind of an error that only its text reveals.
fn kind_by_text(text: &str) -> Option<ModelErrorKind> {
    let text = text.to_ascii_lowercase();
    let any = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
    if any(&[
        "context length",
        "context window",
        "context size",
        "prompt is too long",
        "input is too long",
        "input token count",
        "maximum number of tokens",
    ]) {
        Some(ModelErrorKind::TooLong)
    } else if any(&["credit balance", "exceeded your current quota, please check your plan"])
        && !any(&["retry in"])
    {
        Some(ModelErrorKind::Exhausted)
    } else if any(&["rate_limit_exceeded", "rate limit"]) {
        Some(ModelErrorKind::RateLimited)
    } else if any(&["server_error", "overloaded"]) {
        Some(ModelErrorKind::Server)
    } else {
        None
    }
}

/// Parses the wait that Gemini puts into the body: `{"retryDelay": "13s"}`.
fn parse_retry_delay(body: &Value) -> Option<Duration> {
    let body = body.get(0).unwrap_or(body);
    let mut details = body.pointer("/error/details")?.as_array()?.iter();
    let delay = details.find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

fn truncate_error(text: &str) -> String {
    truncate_chars(text.trim(), ERROR_TEXT_MAX)
}
