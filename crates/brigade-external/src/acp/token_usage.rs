//! Tokens and money in messages of ACP agents.

use agent_client_protocol_schema::v1::{Cost, Meta, PromptResponse, Usage};
use brigade_llm::TokenUsage;
use brigade_model::limits::Money;
use serde::{Deserialize, Serialize};

use crate::turn_events::TurnEvent;
use crate::usage::{ReportedUsage, UsageReport, UsageScope};

/// The usage that was reported in a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UsageReader {
    /// True if later turns go on in this session, whose totals are compared by its id.
    pub(super) is_session_known: bool,
    /// True if the agent reports the tokens of each model call.
    has_call_usage: bool,
    /// The last total of the session's cost.
    cost: Option<Money>,
}

impl UsageReader {
    /// Reads the tokens of a turn from the answer to its prompt. Gemini CLI has them in its
    /// metadata. Tokens of single calls were counted already.
    pub(super) fn read_turn(&self, response: &PromptResponse) -> Option<TurnEvent> {
        if self.has_call_usage {
            return None;
        }
        let usage = response.usage.as_ref();
        let quota = || read_quota(response.meta.as_ref());
        let tokens = usage.map(count_tokens).or_else(quota)?;
        Some(self.report_tokens(tokens))
    }

    /// Reads the tokens of one model call, which Qwen Code attaches to a chunk of text.
    pub(super) fn read_call(&mut self, meta: Option<&Meta>) -> Option<TurnEvent> {
        let usage = Usage::deserialize(meta?.get("usage")?).ok()?;
        self.has_call_usage = true;
        Some(self.report_tokens(count_tokens(&usage)))
    }

    /// Reads the total cost of the session. The cost of a session without a known id is reported as
    /// the difference to the last total.
    pub(super) fn read_cost(&mut self, cost: Option<&Cost>) -> Option<TurnEvent> {
        let cost = cost.filter(|cost| cost.currency.eq_ignore_ascii_case("usd"))?;
        let total = Money::from_dollars(cost.amount);
        let before = self.cost.replace(total).unwrap_or_default();
        let cost = match self.is_session_known {
            true => total,
            false => total.0.checked_sub(before.0).map_or(total, Money),
        };
        let amount = ReportedUsage { tokens: None, cost: Some(cost) };
        let scope = match self.is_session_known {
            true => UsageScope::SessionTotal,
            false => UsageScope::Step,
        };
        Some(TurnEvent::Usage(UsageReport { amount, scope }))
    }

    /// Returns a report of tokens. If the agent reports its cost, the tokens have no price of their
    /// own.
    fn report_tokens(&self, tokens: TokenUsage) -> TurnEvent {
        let cost = self.cost.map(|_| Money(0));
        let amount = ReportedUsage { tokens: Some(tokens), cost };
        TurnEvent::Usage(UsageReport { amount, scope: UsageScope::Step })
    }
}

/// Returns the tokens of a report. Agents differ in two points: cached tokens may be a part of the
/// input, and reasoning may be a part of the output. The total shows which.
fn count_tokens(usage: &Usage) -> TokenUsage {
    let cached = usage.cached_read_tokens.unwrap_or_default();
    let cache_written = usage.cached_write_tokens.unwrap_or_default();
    let with_cache = usage.input_tokens.saturating_add(cached).saturating_add(cache_written);
    let has_separate_cache = usage.total_tokens >= with_cache.saturating_add(usage.output_tokens);
    let input = if has_separate_cache { with_cache } else { usage.input_tokens };
    let by_total = usage.total_tokens.saturating_sub(input);
    TokenUsage { input, cached, cache_written, output: usage.output_tokens.max(by_total) }
}

fn read_quota(meta: Option<&Meta>) -> Option<TokenUsage> {
    let count = meta?.get("quota")?.get("token_count")?;
    let input = count.get("input_tokens")?.as_u64()?;
    let output = count.get("output_tokens")?.as_u64()?;
    Some(TokenUsage { input, output, ..TokenUsage::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_total_shows_how_tokens_are_counted() {
        let count = |input, cached, output, thought, total| {
            let usage = json!({
                "inputTokens": input, "cachedReadTokens": cached, "outputTokens": output,
                "thoughtTokens": thought, "totalTokens": total,
            });
            let tokens = count_tokens(&Usage::deserialize(usage).unwrap());
            (tokens.input, tokens.cached, tokens.output)
        };
        assert_eq!(count(100, 0, 20, 0, 120), (100, 0, 20));
        assert_eq!(count(100, 40, 20, 0, 120), (100, 40, 20), "the cache is a part");
        assert_eq!(count(100, 40, 20, 0, 160), (140, 40, 20), "the cache is separate");
        assert_eq!(count(100, 0, 20, 30, 150), (100, 0, 50), "reasoning is separate");
        assert_eq!(count(100, 40, 20, 0, 0), (100, 40, 20), "no total");
        assert_eq!(count(u64::MAX, 40, 20, 0, 7), (u64::MAX, 40, 20), "absurd");
    }
}
