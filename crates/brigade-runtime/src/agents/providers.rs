//! The models of real providers, as agents use them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_llm::{
    DeadlineModel, KeySource, Model, ModelError, ModelErrorKind, ModelName, PriceTable,
    ProviderCatalog, ProviderKind, ProviderOptions, RateLimitedModel, RateLimiter,
    RateLimiterOptions, RateLimiterStatus, RetryModel, RetryOptions,
};
use brigade_model::refusal::Refusal;

use super::options::{ChosenModel, ModelCost, ModelSource};

/// What a model takes of which nothing is known. A configuration that knows better says so.
const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;
const DEFAULT_MAX_OUTPUT: u32 = 8_192;
/// Long thoughts take many minutes, but not hours.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Every provider that is known, and those of the user's own, by `provider/model`. All agents that
/// ask one provider pass the same gate, and each call is tried again as often as makes sense.
#[derive(Debug)]
pub struct ModelProviders {
    catalog: ProviderCatalog,
    prices: PriceTable,
    default_rate_limit: RateLimiterOptions,
    provider_rate_limits: BTreeMap<String, RateLimiterOptions>,
    retry: RetryOptions,
    call_timeout: Duration,
    opened: Mutex<BTreeMap<Arc<str>, RateLimitedProvider>>,
}

/// One provider behind its gate.
#[derive(Clone, Debug)]
struct RateLimitedProvider {
    model: Arc<dyn Model>,
    rate_limiter: RateLimiter,
    /// A model on the user's own machine sends no bill.
    is_free: bool,
}

impl ModelProviders {
    /// Each with its defaults: at home, with the key in its usual environment variable.
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

    /// How long one call may take in all, however lively it is.
    #[must_use]
    pub fn call_timeout(mut self, most: Duration) -> Self {
        self.call_timeout = most;
        self
    }

    /// Sets up a provider under this name, also one that is there by default.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>, options: ProviderOptions) -> Self {
        self.catalog = self.catalog.with_provider(name, options);
        self
    }

    /// What models cost and how much fits into them, where the built-in table does not say it.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// What a provider is asked at most, unless it has a gate of its own.
    #[must_use]
    pub fn rate_limit(mut self, gate: RateLimiterOptions) -> Self {
        self.default_rate_limit = gate;
        self
    }

    /// What this provider is asked at most.
    #[must_use]
    pub fn provider_rate_limit(
        mut self,
        provider: impl Into<String>,
        gate: RateLimiterOptions,
    ) -> Self {
        self.provider_rate_limits.insert(provider.into(), gate);
        self
    }

    /// How often and how long calls are tried again.
    #[must_use]
    pub fn retry(mut self, retry: RetryOptions) -> Self {
        self.retry = retry;
        self
    }

    /// How things are at the gates of the providers that were asked for so far.
    pub fn rate_limiter_status(&self) -> BTreeMap<Arc<str>, RateLimiterStatus> {
        let made = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        made.iter().map(|(name, made)| (name.clone(), made.rate_limiter.status())).collect()
    }

    fn open_provider(&self, full: &str, name: &ModelName) -> Result<RateLimitedProvider, Refusal> {
        let mut all = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = all.get(&name.provider) {
            return Ok(made.clone());
        }
        // The name may be right for another program, or for this one with other settings: an agent
        // that has it waits.
        let options = self.catalog.options(&name.provider);
        let options = options.map_err(|error| Refusal::unavailable(error.message))?;
        let found = self.catalog.find(full).map_err(model_refusal)?;
        let gate =
            self.provider_rate_limits.get(&*name.provider).unwrap_or(&self.default_rate_limit);
        let gate = RateLimiter::new(gate.clone());
        let bounded = DeadlineModel::wrap(found.provider, self.call_timeout);
        let gated = RateLimitedModel::wrap(Arc::new(bounded), gate.clone());
        let made = RateLimitedProvider {
            model: Arc::new(RetryModel::wrap(Arc::new(gated), self.retry.clone())),
            rate_limiter: gate,
            is_free: options.kind == ProviderKind::Ollama && options.key == KeySource::None,
        };
        all.insert(name.provider.clone(), made.clone());
        Ok(made)
    }
}

impl Default for ModelProviders {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelSource for ModelProviders {
    /// Nothing is sent, and no key is read yet.
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let parsed: ModelName = name.parse().map_err(model_refusal)?;
        let made = self.open_provider(name, &parsed)?;
        let facts = self.prices.facts(name);
        Ok(ChosenModel {
            model: made.model,
            name: parsed.model,
            context_window: facts.context.unwrap_or(DEFAULT_CONTEXT_WINDOW),
            max_output: facts.max_output.unwrap_or(DEFAULT_MAX_OUTPUT),
            cost: match facts.price {
                Some(price) => ModelCost::Known(price),
                None if made.is_free => ModelCost::Free,
                None => ModelCost::Unknown,
            },
        })
    }

    fn check_ready(&self, name: &str) -> Result<(), Refusal> {
        let ModelName { provider, .. } = name.parse().map_err(model_refusal)?;
        let options = self.catalog.options(&provider).map_err(model_refusal)?;
        options.key.check().map_err(|error| {
            Refusal::invalid(format!(
                "there is no key for {provider}: {}; a daemon that was started without it has to be \
                 started again",
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
    fn a_model_comes_with_what_is_known_of_it() {
        let chosen = ModelProviders::new().find("anthropic/claude-opus-4-5").unwrap();
        assert_eq!(&*chosen.name, "claude-opus-4-5");
        assert_eq!((chosen.context_window, chosen.max_output), (200_000, 64_000));
        let usage = TokenUsage { input: 1_000_000, output: 1_000_000, ..TokenUsage::default() };
        assert_eq!(chosen.cost.price_usage(&usage).money, Money(30_000_000));
    }

    #[test]
    fn what_nobody_knows_is_said_to_be_unknown() {
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
        assert_eq!(cost(&providers, "cloud/qwen3"), None, "who wants a key may send a bill");
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
    fn agents_of_one_provider_pass_one_gate() {
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
    fn a_key_that_is_missing_is_named_before_anything_starts() {
        let nowhere = ProviderOptions::new(ProviderKind::Anthropic)
            .key(KeySource::Env("BRIGADE_TEST_NO_SUCH_KEY".into()));
        let providers = ModelProviders::new().provider("mine", nowhere);
        let refusal = providers.check_ready("mine/some-model").unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        assert!(refusal.message.contains("BRIGADE_TEST_NO_SUCH_KEY"), "{}", refusal.message);
        providers.check_ready("ollama/qwen3").unwrap();
    }

    #[test]
    fn a_wrong_name_says_what_would_be_right() {
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
