//! The limits of model providers.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use brigade_llm::{ProviderKind, ProviderOptions, RateLimiterOptions};
use brigade_model::suggestion::find_nearest;
use serde::{Deserialize, Serialize};

/// One table of `limits` in the configuration. The nodes of a fleet keep the limits together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitConfig {
    /// The most calls at once. Default: 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls: Option<NonZeroU64>,
    /// The most requests in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests_per_minute: Option<NonZeroU64>,
    /// The most tokens in a minute, of requests and replies together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_per_minute: Option<NonZeroU64>,
}

impl LimitConfig {
    pub(crate) fn options(self) -> RateLimiterOptions {
        let default = RateLimiterOptions::default();
        let calls = self.calls.and_then(|calls| usize::try_from(calls.get()).ok());
        RateLimiterOptions {
            max_running: calls.unwrap_or(default.max_running),
            requests_per_minute: self.requests_per_minute.map(NonZeroU64::get),
            tokens_per_minute: self.tokens_per_minute.map(NonZeroU64::get),
            ..default
        }
    }
}

/// Checks that each limit is that of a provider that exists.
pub(crate) fn check_limits(
    limits: &BTreeMap<String, LimitConfig>,
    providers: &BTreeMap<String, ProviderOptions>,
) -> Result<(), String> {
    for name in limits.keys().filter(|name| !providers.contains_key(*name)) {
        if name.parse::<ProviderKind>().is_ok() {
            continue;
        }
        let mut known: Vec<&str> = ProviderKind::all().map(ProviderKind::name).collect();
        known.extend(providers.keys().map(String::as_str));
        let near = find_nearest(name, known).map(|near| format!("; did you mean {near}?"));
        return Err(format!(
            "limits.{name}: no provider has this name{}",
            near.unwrap_or_default()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LimitConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn missing_limits_have_their_defaults() {
        let options = parse("tokens_per_minute = 80_000").unwrap().options();
        assert_eq!((options.max_running, options.tokens_per_minute), (16, Some(80_000)));
        assert_eq!(options.requests_per_minute, None);
        assert_eq!(parse("calls = 4").unwrap().options().max_running, 4);
    }

    #[test]
    fn wrong_limits_are_refused() {
        for wrong in ["calls = 0", "calls = -1", "calls = 1.5", "tokens = 5", "calls = \"4\""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let limits = |name: &str| BTreeMap::from([(name.to_owned(), LimitConfig::default())]);
        let local: ProviderOptions =
            toml::from_str("kind = \"ollama\"\nbase_url = \"http://localhost:1\"").unwrap();
        let providers = BTreeMap::from([("local".to_owned(), local)]);
        assert_eq!(check_limits(&limits("openai"), &providers), Ok(()));
        assert_eq!(check_limits(&limits("local"), &providers), Ok(()));
        let error = check_limits(&limits("opneai"), &providers).unwrap_err();
        assert!(error.contains("did you mean openai?"), "{error}");
    }
}
