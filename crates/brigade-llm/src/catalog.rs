//! Which providers there are, and how a person names a model: `anthropic/claude-sonnet-4-5`,
//! `ollama/qwen3`, or `mine/some-model` for a provider of the user's own.

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

/// What a provider speaks, and whose defaults it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// OpenAI's Responses: `openai`.
    OpenAi,
    /// Chat completions, of OpenAI or of anything compatible at a base URL: `openai-chat`.
    OpenAiChat,
    /// `anthropic`
    Anthropic,
    /// `gemini`
    Gemini,
    /// Ollama's own API: `ollama`.
    Ollama,
    /// A service that speaks a dialect of OpenAI's, by its name.
    Other(&'static str),
}

/// Dialects that want more than a key and a base URL, or have a kind of their own here.
const EXCLUDED_DIALECTS: [&str; 5] = ["azure.openai", "chatgpt", "copilot", "ollama", "openai"];

impl ProviderKind {
    /// Every kind, the ones of their own first.
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

    /// Where it is at home.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiChat => openai::OPENAI.base_url,
            Self::Anthropic => anthropic::ANTHROPIC.base_url,
            Self::Gemini => rig_core::providers::gemini::BASE_URL,
            Self::Ollama => "http://localhost:11434",
            Self::Other(name) => openai::by_name(name).map_or("", |dialect| dialect.base_url),
        }
    }

    /// The environment variable in which its key is usually found.
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

/// A model as a person names it: what stands before the first `/` is the provider.
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

/// The providers of one program: each kind under its own name with its defaults, and what the user
/// set up under a name of their choice. One is made when it is first asked for.
#[derive(Debug, Default)]
pub struct ProviderCatalog {
    configured: BTreeMap<String, ProviderOptions>,
    providers: Mutex<BTreeMap<String, Arc<Provider>>>,
}

/// A model that was found: whom to call, and what to put into [`Request::model`].
///
/// [`Request::model`]: crate::Request::model
#[derive(Clone, Debug)]
pub struct ResolvedModel {
    pub provider: Arc<dyn Model>,
    pub model: Arc<str>,
}

impl ProviderCatalog {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets up the provider of this name, also one that is there by default.
    pub fn with_provider(mut self, name: impl Into<String>, options: ProviderOptions) -> Self {
        self.configured.insert(name.into(), options);
        self
    }

    /// How the provider of this name is reached.
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

    /// Nothing is sent, and no key is read yet.
    pub fn find(&self, name: &str) -> Result<ResolvedModel, ModelError> {
        let name: ModelName = name.parse()?;
        let mut made = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let provider = match made.get(&*name.provider) {
            Some(provider) => provider.clone(),
            None => {
                let provider = Arc::new(Provider::new(self.options(&name.provider)?)?);
                made.insert(name.provider.to_string(), provider.clone());
                provider
            }
        };
        Ok(ResolvedModel { provider, model: name.model })
    }
}
