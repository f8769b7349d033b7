//! The providers, on top of rig-core, which knows their wire formats. No type of rig leaves this
//! crate.
//!
//! - `request`: translates our conversation to rig's types
//! - `reply`: translates rig's reply to our types
//! - `native_items`: stores provider items without duplicated text
//! - `bounded_wire`: bounds the input of rig's decoders
//! - `error_mapping`: classifies and redacts errors

mod bounded_wire;
mod error_mapping;
mod native_items;
mod reply;
mod request;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use futures_util::StreamExt;
use http::Uri;
use rig_core::completion::CompletionRequest;
use rig_core::error::ProviderError;
use rig_core::operation::Completion;
use rig_core::providers::anthropic::wire::AnthropicConfig;
use rig_core::providers::gemini::GeminiConfig;
use rig_core::providers::ollama::OllamaConfig;
use rig_core::providers::openai::OpenAIConfig;
use rig_core::providers::openai::responses_api::wire::Responses;
use rig_core::providers::openai::wire::{Auth, Dialect, OPENAI, Route, by_name};
use rig_core::streaming::{Item, PartKind, StreamEvent, Streamed};
use rig_core::wire::{Encoded, Wire, WireFrame};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::catalog::ProviderKind;
use crate::error::{ModelError, ModelErrorKind};
use crate::keys::{ApiKey, KeySource};
use crate::model::{Model, ModelRequest, PartStream, ReplyPart};
use crate::transport::{BoundedHttpClient, TransportLimits, is_loopback};

use bounded_wire::BoundedWire;
use error_mapping::ErrorRedactor;

/// The connection settings of a provider. A settings file has `kind`, and `base_url`, `key` and
/// `extra` where they differ from the defaults of the kind.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "ProviderSettings", into = "ProviderSettings")]
pub struct ProviderOptions {
    pub kind: ProviderKind,
    /// The base URL, if it differs from the default of the kind.
    pub base_url: Option<String>,
    pub key: KeySource,
    /// True if the key may be sent over http to another machine, where anyone on the network path
    /// can read it.
    pub allow_http: bool,
    pub limits: TransportLimits,
    /// Fields added verbatim to the body of every request, such as `options.num_ctx` of Ollama.
    pub extra: Map<String, Value>,
}

impl ProviderOptions {
    /// Returns the defaults of the kind, with the key in its usual environment variable.
    pub fn new(kind: ProviderKind) -> Self {
        let key = match kind.key_variable() {
            Some(name) => KeySource::Env(name.to_owned()),
            None => KeySource::None,
        };
        let allow_http = false;
        let limits = TransportLimits::default();
        Self { kind, base_url: None, key, allow_http, limits, extra: Map::new() }
    }

    /// Checks that a key is not sent unencrypted to another machine. A provider without a key may
    /// be anywhere.
    pub fn check(&self) -> Result<(), ModelError> {
        let url = self.url()?;
        let has_password =
            url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let has_secret = self.key != KeySource::None || has_password;
        let is_open = url.scheme_str() == Some("http") && !is_loopback(&url);
        if has_secret && is_open && !self.allow_http {
            return Err(ModelError::new(
                ModelErrorKind::Invalid,
                "a key is sent to other machines over https only; say `key = \"none\"` where none is \
                 wanted, or `allow_http = true`",
            ));
        }
        Ok(())
    }

    fn url(&self) -> Result<Uri, ModelError> {
        parse_base_url(self.base_url.as_deref().unwrap_or(self.kind.base_url()))
    }

    /// Allows sending the key over http to another machine.
    #[must_use]
    pub fn allow_http(mut self) -> Self {
        self.allow_http = true;
        self
    }

    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    #[must_use]
    pub fn key(mut self, key: KeySource) -> Self {
        self.key = key;
        self
    }

    #[must_use]
    pub fn limits(mut self, limits: TransportLimits) -> Self {
        self.limits = limits;
        self
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderSettings {
    kind: ProviderKind,
    base_url: Option<String>,
    key: Option<KeySource>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allow_http: bool,
    #[serde(default)]
    extra: Map<String, Value>,
}

impl From<ProviderOptions> for ProviderSettings {
    fn from(options: ProviderOptions) -> Self {
        let ProviderOptions { kind, base_url, key, allow_http, limits: _, extra } = options;
        Self { kind, base_url, key: Some(key), allow_http, extra }
    }
}

impl From<ProviderSettings> for ProviderOptions {
    fn from(settings: ProviderSettings) -> Self {
        let defaults = Self::new(settings.kind);
        let ProviderSettings { kind, base_url, key, allow_http, extra } = settings;
        let key = key.unwrap_or(defaults.key);
        Self { kind, base_url, key, allow_http, limits: defaults.limits, extra }
    }
}

impl Debug for ProviderOptions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A base URL may contain a password.
        let host = self.base_url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let host = host.as_ref().and_then(Uri::host);
        f.debug_struct("ProviderOptions")
            .field("kind", &self.kind)
            .field("host", &host)
            .field("key", &self.key)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// One provider, for all its models. Cheap to clone.
#[derive(Clone)]
pub struct Provider {
    options: Arc<ProviderOptions>,
    http_client: BoundedHttpClient,
}

impl Provider {
    pub fn new(options: ProviderOptions) -> Result<Self, ModelError> {
        options.check()?;
        let http_client = BoundedHttpClient::new(options.limits, &options.url()?)?;
        Ok(Self { http_client, options: Arc::new(options) })
    }

    pub fn options(&self) -> &ProviderOptions {
        &self.options
    }

    /// Opens the reply. rig sends nothing before the stream is polled.
    fn open_reply(
        &self,
        request: &ModelRequest,
        key: &ApiKey,
    ) -> Result<Streamed<Completion>, Box<ProviderError>> {
        let completion = request::translate_request(request, &self.options);
        let model = request.model.to_string();
        let base = self.options.base_url.as_deref();
        match self.options.kind {
            ProviderKind::OpenAi => {
                self.stream_responses(openai_config(&OPENAI, key, base), model, completion)
            }
            ProviderKind::OpenAiChat => {
                let config = openai_config(&OPENAI, key, base);
                self.stream_completion(config.chat(model), completion)
            }
            ProviderKind::Other(name) => {
                let dialect = by_name(name).ok_or_else(|| {
                    ProviderError::request(format!("no provider is named `{name}`"))
                })?;
                let config = openai_config(dialect, key, base);
                match config.completion_route() {
                    Route::Responses => self.stream_responses(config, model, completion),
                    _ => self.stream_completion(config.chat(model), completion),
                }
            }
            ProviderKind::Anthropic => {
                let mut config = AnthropicConfig::new(key.expose());
                if let Some(base) = base {
                    config = config.with_base_url(base);
                }
                let wire = config.connect(self.http_client.clone()).completion(model).wire;
                // A conversation only grows, so each request repeats the previous one as its
                // prefix.
                self.stream_completion(wire.with_prompt_caching(), completion)
            }
            ProviderKind::Gemini => {
                let mut config = GeminiConfig::new("");
                if let Some(base) = base {
                    config = config.with_base_url(base);
                }
                let http_client = self.http_client.with_key_header("x-goog-api-key", key);
                let wire = config.connect(http_client.clone()).completion(model).wire;
                BoundedWire::new(wire, self.options.limits.parts).stream(completion, http_client)
            }
            ProviderKind::Ollama => {
                let mut config = OllamaConfig::new().with_api_key(key.expose());
                if let Some(base) = base {
                    config = config.with_base_url(base);
                }
                let wire = config.connect(self.http_client.clone()).native_completion(model).wire;
                self.stream_completion(wire, completion)
            }
        }
    }

    fn stream_responses(
        &self,
        config: OpenAIConfig,
        model: String,
        completion: CompletionRequest,
    ) -> Result<Streamed<Completion>, Box<ProviderError>> {
        let completion = request::make_stateless(completion);
        let plain = request::is_without_reasoning(&model);
        let mut wire = BoundedWire::new(Responses::new(config, model), self.options.limits.parts);
        if plain {
            wire = wire.with_body_edit(|body| {
                body.shift_remove("include");
            });
        }
        wire.stream(completion, self.http_client.clone())
    }

    fn stream_completion<W>(
        &self,
        wire: W,
        completion: CompletionRequest,
    ) -> Result<Streamed<Completion>, Box<ProviderError>>
    where
        W: Wire<Op = Completion, Payload = Encoded, Frame = WireFrame>,
    {
        BoundedWire::new(wire, self.options.limits.parts)
            .stream(completion, self.http_client.clone())
    }
}

impl Model for Provider {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let provider = self.clone();
        Box::pin(async_stream::stream! {
            let key = match provider.options.key.read() {
                Ok(key) => key,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let redactor = ErrorRedactor::new(&provider.options, &key);
            let mut events = match provider.open_reply(&request, &key) {
                Ok(events) => events,
                Err(error) => {
                    yield Err(redactor.to_model_error(&error));
                    return;
                }
            };
            drop(key);
            let limits = provider.options.limits;
            let mut parts = 0;
            while let Some(item) = events.next().await {
                let event = match item {
                    Ok(Item::Event(event)) => event,
                    Ok(Item::Unknown(_)) => continue,
                    Err(error) => {
                        yield Err(redactor.to_model_error(&error));
                        return;
                    }
                };
                parts += usize::from(matches!(event, StreamEvent::Start { .. }));
                if parts > limits.parts {
                    yield Err(too_many_parts_error(&limits));
                    return;
                }
                if let Some(part) = translate_event(event) {
                    yield Ok(part);
                }
            }
            yield match events.finish().await {
                Ok(response) => reply::translate_reply(response, &limits)
                    .map(|reply| ReplyPart::Finished(Box::new(reply)))
                    .map_err(|error| redactor.redact(error)),
                Err(error) => Err(redactor.to_model_error(&error)),
            };
        })
    }
}

impl Debug for Provider {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("kind", &self.options.kind)
            .field("key", &self.options.key)
            .finish_non_exhaustive()
    }
}

fn translate_event(event: StreamEvent) -> Option<ReplyPart> {
    match event {
        StreamEvent::Start { kind: PartKind::ToolCall, name: Some(name), .. } => {
            Some(ReplyPart::Call { name: name.into() })
        }
        StreamEvent::Text { text, .. } => Some(ReplyPart::Text(text)),
        StreamEvent::Reasoning { text, .. } => Some(ReplyPart::Reasoning(text)),
        StreamEvent::Start { .. } | StreamEvent::Arguments { .. } | StreamEvent::End { .. } => None,
    }
}

fn too_many_parts_error(limits: &TransportLimits) -> ModelError {
    let message = format!("the provider sent a reply of more than {} parts", limits.parts);
    ModelError::new(ModelErrorKind::Garbage, message)
}

fn openai_config(dialect: &Dialect, key: &ApiKey, base: Option<&str>) -> OpenAIConfig {
    let mut config = OpenAIConfig::with_key(dialect, key.expose());
    if key.is_empty() && config.auth == Auth::Bearer {
        config.auth = Auth::OptionalBearer;
    }
    match base {
        Some(base) => config.with_base_url(base),
        None => config,
    }
}

/// Parses the user's base URL, so that a wrong one fails before anything is sent.
fn parse_base_url(url: &str) -> Result<Uri, ModelError> {
    match url.parse::<Uri>() {
        Ok(parsed) if matches!(parsed.scheme_str(), Some("http" | "https")) => Ok(parsed),
        _ => Err(ModelError::new(
            ModelErrorKind::Invalid,
            "begin the base URL of a provider with http:// or https://",
        )),
    }
}
