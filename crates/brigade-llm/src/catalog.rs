//! The known providers, and the names of models: `anthropic/claude-sonnet-4-5`, `ollama/qwen3`, or
//! `mine/some-model` for a provider from the user's configuration.

use std::collections::BTreeMap;
use std::fmt::{self, Formatter};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rig_core::providers::anthropic::wire as anthropic;
use rig_core::providers::openai::wire as openai;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{ModelError, ModelErrorKind};
use crate::model::Model;
use crate::providers::{Provider, ProviderOptions};

/// The API of a provider, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderKind {
    /// OpenAI's Responses API: `openai`.
    OpenAi,
    /// The chat completions API of OpenAI or a compatible service: `openai-chat`.
    OpenAiChat,
    /// Anthropic's Messages API: `anthropic`.
    Anthropic,
    /// Google's Gemini API: `gemini`.
    Gemini,
    /// Ollama's own API: `ollama`.
    Ollama,
    /// A named service with a dialect of OpenAI's API.
    Other(&'static str),
}

/// Dialects that need more than a key and a base URL, or that have their own kind here.
const EXCLUDED_DIALECTS: [&str; 5] = ["azure.openai", "chatgpt", "copilot", "ollama", "openai"];

impl ProviderKind {
    /// Returns every kind: first the variants above, then the dialects.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [Self::OpenAi, Self::OpenAiChat, Self::Anthropic, Self::Gemini, Self::Ollama];
        own.into_iter().chain(openai::all().map(|dialect| dialect.name).filter_map(dialect_kind))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiChat => "openai-chat",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Other(name) => name,
        }
    }

    /// Returns the default base URL.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiChat => openai::OPENAI.base_url,
            Self::Anthropic => anthropic::ANTHROPIC.base_url,
            Self::Gemini => rig_core::providers::gemini::BASE_URL,
            Self::Ollama => "http://localhost:11434",
            Self::Other(name) => openai::by_name(name).map_or("", |dialect| dialect.base_url),
        }
    }

    /// Returns the environment variable that usually holds the provider's key.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiChat => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
            Self::Other(name) => match openai::by_name(name) {
                Some(dialect) if dialect.quirks.auth == openai::Auth::OptionalBearer => None,
                Some(dialect) => Some(dialect.api_key_env),
                None => None,
            },
        }
    }
}

fn dialect_kind(name: &'static str) -> Option<ProviderKind> {
    (!EXCLUDED_DIALECTS.contains(&name)).then_some(ProviderKind::Other(name))
}

impl FromStr for ProviderKind {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Self, ModelError> {
        Self::all().find(|kind| kind.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::all().map(Self::name).collect();
            ModelError::new(
                ModelErrorKind::Invalid,
                format!("no provider is named `{name}`; there are {}", known.join(", ")),
            )
        })
    }
}

impl Serialize for ProviderKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ProviderKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A model's full name: the provider stands before the first `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelName {
    pub provider: Arc<str>,
    pub model: Arc<str>,
}

impl FromStr for ModelName {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Self, ModelError> {
        match name.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(Self { provider: provider.into(), model: model.into() })
            }
            _ => Err(ModelError::new(
                ModelErrorKind::Invalid,
                format!("`{name}` names no model; write provider/model, as ollama/qwen3"),
            )),
        }
    }
}

/// The providers of one program: each kind under its own name with its defaults, and the providers
/// that the user configured. A provider is created on first use.
#[derive(Debug, Default)]
pub struct ProviderCatalog {
    configured: BTreeMap<String, ProviderOptions>,
    providers: Mutex<BTreeMap<String, Arc<Provider>>>,
}

/// A resolved model: the provider to call, and the value for [`ModelRequest::model`].
///
/// [`ModelRequest::model`]: crate::ModelRequest::model
#[derive(Clone, Debug)]
pub struct ResolvedModel {
    pub provider: Arc<dyn Model>,
    pub model: Arc<str>,
}

impl ProviderCatalog {
    pub fn new() -> Self {
        Self::default()
    }

    /// Configures the provider of this name. It may replace a default.
    #[must_use]
    pub fn with_provider(mut self, name: impl Into<String>, options: ProviderOptions) -> Self {
        self.configured.insert(name.into(), options);
        self
    }

    /// Returns the options of the provider of this name.
    pub fn options(&self, provider: &str) -> Result<ProviderOptions, ModelError> {
        if let Some(options) = self.configured.get(provider) {
            return Ok(options.clone());
        }
        let kind = provider.parse().map_err(|mut error: ModelError| {
            for name in self.configured.keys() {
                error.message.push_str(&format!(", {name}"));
            }
            error
        })?;
        Ok(ProviderOptions::new(kind))
    }

    /// Resolves a model name. Sends nothing and reads no key.
    pub fn find(&self, name: &str) -> Result<ResolvedModel, ModelError> {
        let name: ModelName = name.parse()?;
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let provider = match providers.get(&*name.provider) {
            Some(provider) => provider.clone(),
            None => {
                let provider = Arc::new(Provider::new(self.options(&name.provider)?)?);
                providers.insert(name.provider.to_string(), provider.clone());
                provider
            }
        };
        Ok(ResolvedModel { provider, model: name.model })
    }
}
