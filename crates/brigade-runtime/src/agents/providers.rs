//! The models of real providers, for agents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_llm::{
    DeadlineModel, KeySource, Model, ModelError, ModelErrorKind, ModelName, PriceTable,
    ProviderCatalog, ProviderKind, ProviderOptions, RateLimitedModel, RateLimiter,
    RateLimiterOptions, RateLimiterStatus, RetryModel, RetryOptions, SharedLimits,
};
use brigade_model::refusal::Refusal;

use super::options::{ChosenModel, ModelCost, ModelSource};

/// The context window of a model without known facts. The configuration can override it.
const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;
const DEFAULT_MAX_OUTPUT: u32 = 8_192;
/// The time limit of one model call. Long reasoning takes many minutes, but not hours.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// All known providers and those of the user, by `provider/model`. All agents of one provider share
/// its rate limiter, and each call is retried.
#[derive(Debug)]
pub struct ModelProviders {
    catalog: ProviderCatalog,
    prices: PriceTable,
    default_rate_limit: RateLimiterOptions,
    provider_rate_limits: BTreeMap<String, RateLimiterOptions>,
    retry: RetryOptions,
    call_timeout: Duration,
    opened: Mutex<OpenedProviders>,
}

/// The providers that were used so far.
#[derive(Debug, Default)]
struct OpenedProviders {
    by_name: BTreeMap<Arc<str>, RateLimitedProvider>,
    /// The other processes with which their limits are divided.
    shared: Option<Arc<dyn SharedLimits>>,
}

/// One provider behind its rate limiter.
#[derive(Clone, Debug)]
struct RateLimitedProvider {
    model: Arc<dyn Model>,
    rate_limiter: RateLimiter,
    /// True for a model on the user's own machine, which costs nothing.
    is_free: bool,
}

impl ModelProviders {
    /// Creates the known providers with their defaults: usual address, key in the usual variable.
    pub fn new() -> Self {
        Self {
            catalog: ProviderCatalog::default(),
            prices: PriceTable::default(),
            default_rate_limit: RateLimiterOptions::default(),
            provider_rate_limits: BTreeMap::new(),
            retry: RetryOptions::default(),
            call_timeout: DEFAULT_CALL_TIMEOUT,
            opened: Mutex::default(),
        }
    }

    /// Sets the time limit of one call, however active it is.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Configures a provider under this name, also a built-in one.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>, options: ProviderOptions) -> Self {
        self.catalog = self.catalog.with_provider(name, options);
        self
    }

    /// Sets prices and limits of models that the built-in table does not have.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// Sets the rate limit of providers without one of their own. The nodes of a fleet keep it together.
    #[must_use]
    pub fn rate_limit(mut self, limit: RateLimiterOptions) -> Self {
        self.default_rate_limit = limit;
        self
    }

    /// Sets the rate limit of this provider. The nodes of a fleet keep it together.
    #[must_use]
    pub fn provider_rate_limit(
        mut self,
        provider: impl Into<String>,
        limit: RateLimiterOptions,
    ) -> Self {
        self.provider_rate_limits.insert(provider.into(), limit);
        self
    }

    /// Sets the retries of calls.
    #[must_use]
    pub fn retry(mut self, retry: RetryOptions) -> Self {
        self.retry = retry;
        self
    }

    /// Returns the state of the rate limiters of all providers that were used so far.
    pub fn rate_limiter_status(&self) -> BTreeMap<Arc<str>, RateLimiterStatus> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.by_name.iter().map(|(name, one)| (name.clone(), one.rate_limiter.status())).collect()
    }

    fn open_provider(&self, full: &str, name: &ModelName) -> Result<RateLimitedProvider, Refusal> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = opened.by_name.get(&name.provider) {
            return Ok(provider.clone());
        }
        // The name may be right for another program or for other settings: an agent that has it
        // waits.
        let options = self.catalog.options(&name.provider);
        let options = options.map_err(|error| Refusal::unavailable(error.message))?;
        let found = self.catalog.find(full).map_err(model_refusal)?;
        let limit =
            self.provider_rate_limits.get(&*name.provider).unwrap_or(&self.default_rate_limit);
        let rate_limiter = RateLimiter::new(limit.clone());
        let bounded = DeadlineModel::wrap(found.provider, self.call_timeout);
        let limited = RateLimitedModel::wrap(Arc::new(bounded), rate_limiter.clone());
        let provider = RateLimitedProvider {
            model: Arc::new(RetryModel::wrap(Arc::new(limited), self.retry.clone())),
            rate_limiter,
            is_free: options.kind == ProviderKind::Ollama && options.key == KeySource::None,
        };
        if let Some(shared) = &opened.shared {
            shared.divide(&name.provider, provider.rate_limiter.share());
        }
        opened.by_name.insert(name.provider.clone(), provider.clone());
        Ok(provider)
    }
}

impl Default for ModelProviders {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelSource for ModelProviders {
    /// Sends nothing and reads no key yet.
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let parsed: ModelName = name.parse().map_err(model_refusal)?;
        let provider = self.open_provider(name, &parsed)?;
        let facts = self.prices.facts(name);
        Ok(ChosenModel {
            model: provider.model,
            name: parsed.model,
            context_window: facts.context.unwrap_or(DEFAULT_CONTEXT_WINDOW),
            max_output: facts.max_output.unwrap_or(DEFAULT_MAX_OUTPUT),
            cost: match facts.price {
                Some(price) => ModelCost::Known(price),
                None if provider.is_free => ModelCost::Free,
                None => ModelCost::Unknown,
            },
        })
    }

    fn share_limits(&self, shared: Arc<dyn SharedLimits>) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, provider) in &opened.by_name {
            shared.divide(name, provider.rate_limiter.share());
        }
        opened.shared = Some(shared);
    }

    fn price(&self, name: &str) -> ModelCost {
        match self.prices.facts(name).price {
            Some(price) => ModelCost::Known(price),
            None => ModelCost::Unknown,
        }
    }

    fn check_ready(&self, name: &str) -> Result<(), Refusal> {
        let ModelName { provider, .. } = name.parse().map_err(model_refusal)?;
        let options = self.catalog.options(&provider).map_err(model_refusal)?;
        options.key.check().map_err(|error| {
            Refusal::invalid(format!(
                "there is no key for {provider}: {}; restart the daemon if it was started without \
                the key",
                error.message
            ))
        })
    }
}

fn model_refusal(error: ModelError) -> Refusal {
    match error.kind {
        ModelErrorKind::Invalid => Refusal::invalid(error.message),
        _ => Refusal::unavailable(error.message),
    }
}

#[cfg(test)]
mod tests {
    use brigade_llm::{ModelFacts, PerMillion, TokenPrice, TokenUsage};
    use brigade_model::limits::Money;
    use brigade_model::refusal::RefusalKind;

    use super::*;

    fn cost(providers: &ModelProviders, model: &str) -> Option<u64> {
        let million = TokenUsage { input: 1_000_000, ..TokenUsage::default() };
        let cost = providers.find(model).unwrap().cost;
        (!cost.is_unknown()).then(|| cost.price_usage(&million).money.0)
    }

    #[test]
    fn a_model_comes_with_its_known_facts() {
        let chosen = ModelProviders::new().find("anthropic/claude-opus-4-5").unwrap();
        assert_eq!(&*chosen.name, "claude-opus-4-5");
        assert_eq!((chosen.context_window, chosen.max_output), (200_000, 64_000));
        let usage = TokenUsage { input: 1_000_000, output: 1_000_000, ..TokenUsage::default() };
        assert_eq!(chosen.cost.price_usage(&usage).money, Money(30_000_000));
    }

    #[test]
    fn a_model_without_facts_has_defaults_and_an_unknown_cost() {
        let providers = ModelProviders::new();
        let chosen = providers.find("openai/brand-new").unwrap();
        assert_eq!(
            (chosen.context_window, chosen.max_output),
            (DEFAULT_CONTEXT_WINDOW, DEFAULT_MAX_OUTPUT)
        );
        assert_eq!(cost(&providers, "openai/brand-new"), None);
        assert_eq!(cost(&providers, "ollama/qwen3"), Some(0), "it is on the user's machine");
        let elsewhere = ProviderOptions::new(ProviderKind::Ollama)
            .base_url("https://ollama.example")
            .key(KeySource::Env("OLLAMA_KEY".into()));
        let providers = ModelProviders::new().provider("cloud", elsewhere);
        assert_eq!(cost(&providers, "cloud/qwen3"), None, "a server with a key may cost money");
    }

    #[test]
    fn a_configuration_gives_prices_of_one_provider() {
        let price = PerMillion(7_000_000);
        let price = TokenPrice {
            input: price,
            cached_input: None,
            cache_write: None,
            output: price,
            long: None,
        };
        let facts = ModelFacts { price: Some(price), context: Some(99), max_output: None };
        let mine = ProviderOptions::new(ProviderKind::OpenAiChat).base_url("http://localhost:9/v1");
        let providers = ModelProviders::new()
            .provider("mine", mine)
            .prices(PriceTable::with_overrides([("mine/*".to_owned(), facts)]));
        assert_eq!(cost(&providers, "mine/some-model"), Some(7_000_000));
        assert_eq!(providers.find("mine/some-model").unwrap().context_window, 99);
        assert_eq!(cost(&providers, "openai/some-model"), None);
    }

    #[test]
    fn agents_of_one_provider_share_one_rate_limiter() {
        let few = RateLimiterOptions { max_running: 1, ..RateLimiterOptions::default() };
        let providers = ModelProviders::new().provider_rate_limit("openai", few);
        for model in ["openai/a", "openai/b", "gemini/c"] {
            providers.find(model).unwrap();
        }
        let at: Vec<_> = providers.rate_limiter_status().into_keys().collect();
        assert_eq!(at, ["gemini".into(), "openai".into()] as [Arc<str>; 2]);
        let first = providers.find("openai/a").unwrap().model;
        assert!(Arc::ptr_eq(&first, &providers.find("openai/b").unwrap().model));
    }

    #[test]
    fn a_missing_key_is_named_before_the_agent_starts() {
        let nowhere = ProviderOptions::new(ProviderKind::Anthropic)
            .key(KeySource::Env("BRIGADE_TEST_NO_SUCH_KEY".into()));
        let providers = ModelProviders::new().provider("mine", nowhere);
        let refusal = providers.check_ready("mine/some-model").unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        assert!(refusal.message.contains("BRIGADE_TEST_NO_SUCH_KEY"), "{}", refusal.message);
        providers.check_ready("ollama/qwen3").unwrap();
    }

    #[test]
    fn a_wrong_name_is_refused_with_the_right_form() {
        let broken = ProviderOptions::new(ProviderKind::Ollama).base_url("localhost:1");
        let providers = ModelProviders::new().provider("broken", broken);
        for (name, kind, part) in [
            ("claude", RefusalKind::Invalid, "provider/model"),
            ("antropic/claude", RefusalKind::Unavailable, "openai, openai-chat, anthropic"),
            ("brocken/llama", RefusalKind::Unavailable, ", broken"),
            ("broken/llama", RefusalKind::Invalid, "http://"),
        ] {
            let refusal = providers.find(name).unwrap_err();
            assert_eq!(refusal.kind, kind, "{name}");
            assert!(refusal.message.contains(part), "{name}: {}", refusal.message);
        }
    }
}
