//! Prices and token limits of models.
//!
//! The built-in table has the well-known models. A configuration adds models and overrides entries.
//! A model in neither has no price: with a guessed price, a budget of money would be wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::TokenUsage;

mod known_models;

/// The built-in table, and the overrides of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceTable {
    /// Overrides by the model's name, or by a prefix and a `*`.
    overrides: BTreeMap<String, ModelFacts>,
}

/// The price and limits of one model. The built-in table supplies fields that a configuration
/// omits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<TokenPrice>,
    /// The maximum number of tokens of a request and its reply together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// The maximum number of tokens of a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
}

/// The price of tokens. A configuration gives dollars per million tokens, as price lists do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrice {
    pub input: PerMillion,
    /// The price of tokens read from the provider's cache. The default is `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<PerMillion>,
    /// The price of tokens written to the provider's cache. The default is `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<PerMillion>,
    pub output: PerMillion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrompts>,
}

/// A higher price for all tokens of requests above a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrompts {
    /// The size, in tokens of the request.
    pub above: u64,
    /// The price of the input in percent of the usual price.
    pub input_percent: u64,
    pub output_percent: u64,
}

/// Millionths of a dollar per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerMillion(pub u64);

impl PriceTable {
    /// Returns the built-in table with these overrides.
    pub fn with_overrides(given: impl IntoIterator<Item = (String, ModelFacts)>) -> Self {
        Self { overrides: given.into_iter().collect() }
    }

    /// Returns the facts about a model; an unknown model has none. An override for a name with a
    /// provider precedes an override for the bare name.
    pub fn facts(&self, model: &str) -> ModelFacts {
        let names = std::iter::successors(Some(model), |name| Some(name.split_once('/')?.1));
        let given =
            names.filter_map(|name| self.find_override(name)).chain(known_models::facts(model));
        given.fold(ModelFacts::default(), |first, second| ModelFacts {
            price: first.price.or(second.price),
            context: first.context.or(second.context),
            max_output: first.max_output.or(second.max_output),
        })
    }

    /// Returns the cost in millionths of a dollar, rounded up, if the price is known.
    pub fn cost(&self, model: &str, usage: &TokenUsage) -> Option<u64> {
        Some(self.facts(model).price?.cost(usage))
    }

    /// Returns the override with the exact name, or else with the longest matching prefix.
    fn find_override(&self, model: &str) -> Option<ModelFacts> {
        if let Some(facts) = self.overrides.get(model) {
            return Some(*facts);
        }
        let matching = self.overrides.iter().filter(|(name, _)| {
            name.strip_suffix('*').is_some_and(|prefix| model.starts_with(prefix))
        });
        matching.max_by_key(|(name, _)| name.len()).map(|(_, facts)| *facts)
    }
}

impl TokenPrice {
    /// Returns the cost in millionths of a dollar, rounded up.
    pub fn cost(&self, usage: &TokenUsage) -> u64 {
        let cached = usage.cached.min(usage.input);
        let written = usage.cache_written.min(usage.input - cached);
        let fresh = usage.input - cached - written;
        let long = self.long.filter(|long| usage.input > long.above);
        let input_percent = long.map_or(100, |long| long.input_percent);
        let output_percent = long.map_or(100, |long| long.output_percent);
        let input = token_cost(fresh, self.input)
            .saturating_add(token_cost(cached, self.cached_input.unwrap_or(self.input)))
            .saturating_add(token_cost(written, self.cache_write.unwrap_or(self.input)))
            .saturating_mul(input_percent.into());
        let output = token_cost(usage.output, self.output).saturating_mul(output_percent.into());
        let micros = input.saturating_add(output).div_ceil(100 * 1_000_000);
        u64::try_from(micros).unwrap_or(u64::MAX)
    }
}

fn token_cost(tokens: u64, price: PerMillion) -> u128 {
    u128::from(tokens) * u128::from(price.0)
}

impl Serialize for PerMillion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e6)
    }
}

impl<'de> Deserialize<'de> for PerMillion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        if !(0.0..=1e6).contains(&dollars) {
            let problem = format!("write a price in dollars per million tokens, not {dollars}");
            return Err(serde::de::Error::custom(problem));
        }
        Ok(Self((dollars * 1e6).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, cache_written: u64, output: u64) -> TokenUsage {
        TokenUsage { input, cached, cache_written, output }
    }

    fn configured(text: &str) -> PriceTable {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let prices = PriceTable::default();
        for (usage, dollars_e6) in [
            (usage(1_000_000, 0, 0, 0), 5_000_000),
            (usage(1_000_000, 1_000_000, 0, 0), 500_000),
            (usage(1_000_000, 0, 1_000_000, 0), 6_250_000),
            (usage(0, 0, 0, 1_000_000), 25_000_000),
            (usage(100, 50, 25, 10), 25 * 5 + 25 + 157 + 250),
        ] {
            assert_eq!(prices.cost("claude-opus-4-5", &usage), Some(dollars_e6), "{usage:?}");
        }
    }

    #[test]
    fn an_unknown_model_has_no_price() {
        let prices = PriceTable::default();
        for model in ["", "llama", "claude-opus-9", "gpt-6-astra-fast", "gpt-66-sol", "my/gpt"] {
            assert_eq!(prices.cost(model, &usage(1, 0, 0, 1)), None, "{model}");
            assert_eq!(prices.facts(model), ModelFacts::default(), "{model}");
        }
    }

    #[test]
    fn dates_providers_and_aliases_do_not_change_the_model() {
        let prices = PriceTable::default();
        let cost = |model: &str| prices.cost(model, &usage(1_000_000, 0, 0, 0));
        for model in ["claude-opus-4-5-20251101", "anthropic/claude-opus-4-5", "claude-opus-4-5@x"]
        {
            assert_eq!(cost(model), Some(5_000_000), "{model}");
        }
        assert_eq!(cost("claude-opus-4-20250514"), Some(15_000_000));
        assert_eq!(cost("gpt-6.1-sol-2026-09-29"), cost("gpt-6.1-sol"));
        assert!(cost("gpt-6.1-sol").is_some());
    }

    #[test]
    fn costs_round_up_and_do_not_overflow() {
        let prices = configured("m = { price = { input = 0.000001, output = 1000000 } }");
        assert_eq!(prices.cost("m", &usage(1, 0, 0, 0)), Some(1));
        assert_eq!(prices.cost("m", &usage(0, 0, 0, 0)), Some(0));
        let most = usage(u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(prices.cost("m", &most), Some(u64::MAX));
    }

    #[test]
    fn all_tokens_of_a_long_prompt_cost_more() {
        let prices = PriceTable::default();
        let cost = |input| prices.cost("gpt-6-sol", &usage(input, 0, 0, 1_000_000));
        assert_eq!(cost(272_000), Some(544_000 + 10_000_000));
        assert_eq!(cost(272_001), Some(1_088_004 + 15_000_000));
    }

    #[test]
    fn a_configuration_overrides_and_adds_models() {
        let prices = configured(
            r#"
            "claude-opus-4-5" = { context = 7 }
            "local-*" = { price = { input = 0.5, output = 1 }, max_output = 9 }
            "local-big-*" = { price = { input = 2, cached_input = 1, output = 1 } }
            "#,
        );
        assert_eq!(prices.facts("claude-opus-4-5").context, Some(7));
        assert_eq!(prices.cost("claude-opus-4-5", &usage(1, 0, 0, 0)), Some(5));
        assert_eq!(prices.cost("local-small", &usage(2, 0, 0, 0)), Some(1));
        assert_eq!(prices.cost("local-big-1", &usage(2, 1, 0, 0)), Some(3));
        assert_eq!(prices.facts("local-small").max_output, Some(9));
        assert_eq!(prices, configured(&toml::to_string(&prices).unwrap()));
    }

    #[test]
    fn an_override_for_one_provider_goes_first() {
        let prices = configured(
            r#"
            "mine/claude-opus-4-5" = { price = { input = 1, output = 1 } }
            "claude-opus-4-5" = { price = { input = 2, output = 2 }, context = 7 }
            "#,
        );
        for (model, dollars) in [("mine/claude-opus-4-5", 1), ("anthropic/claude-opus-4-5", 2)] {
            assert_eq!(prices.cost(model, &usage(1, 0, 0, 0)), Some(dollars), "{model}");
            let facts = prices.facts(model);
            assert_eq!((facts.context, facts.max_output), (Some(7), Some(64_000)), "{model}");
        }
    }

    #[test]
    fn invalid_prices_are_refused() {
        for bad in ["-1", "nan", "1e9", "\"3\""] {
            let text = format!("m = {{ price = {{ input = {bad}, output = 1 }} }}");
            assert!(toml::from_str::<PriceTable>(&text).is_err(), "{bad}");
        }
        let error = toml::from_str::<PriceTable>("m = { prise = 1 }").unwrap_err();
        assert!(error.to_string().contains("prise"), "{error}");
    }
}
