//! The well-known models, from the providers' price lists of November 2026.

use super::{LongPrompts, ModelFacts, PerMillion, TokenPrice};

struct KnownModel {
    name: &'static str,
    price: ListPrice,
    context: u64,
    max_output: u32,
    long: Option<LongPrompts>,
}

/// Prices in thousandths of a dollar per million tokens.
struct ListPrice {
    input: u64,
    cached_input: u64,
    cache_write: u64,
    output: u64,
}

/// Returns a row. The prices are those of input, cached input, cache writes and output.
const fn known_model(
    name: &'static str,
    prices: [u64; 4],
    context: u64,
    max_output: u32,
) -> KnownModel {
    let [input, cached_input, cache_write, output] = prices;
    let price = ListPrice { input, cached_input, cache_write, output };
    KnownModel { name, price, context, max_output, long: None }
}

impl KnownModel {
    const fn long(self, above: u64, input_percent: u64, output_percent: u64) -> Self {
        Self { long: Some(LongPrompts { above, input_percent, output_percent }), ..self }
    }

    fn facts(&self) -> ModelFacts {
        let per_million = |price: u64| PerMillion(price * 1000);
        ModelFacts {
            price: Some(TokenPrice {
                input: per_million(self.price.input),
                cached_input: Some(per_million(self.price.cached_input)),
                cache_write: Some(per_million(self.price.cache_write)),
                output: per_million(self.price.output),
                long: self.long,
            }),
            context: Some(self.context),
            max_output: Some(self.max_output),
        }
    }
}

const KNOWN_MODELS: [KnownModel; 42] = [
    known_model("claude-fable-5-1", [10_000, 250, 12_500, 50_000], 1_000_000, 128_000),
    known_model("claude-fable-5", [10_000, 1_000, 12_500, 50_000], 1_000_000, 128_000),
    known_model("claude-opus-5-5", [4_000, 200, 5_000, 20_000], 1_000_000, 128_000),
    known_model("claude-opus-5", [5_000, 500, 6_250, 25_000], 1_000_000, 128_000),
    known_model("claude-opus-4-8", [5_000, 500, 6_250, 25_000], 200_000, 64_000),
    known_model("claude-opus-4-7", [5_000, 500, 6_250, 25_000], 200_000, 64_000),
    known_model("claude-opus-4-6", [5_000, 500, 6_250, 25_000], 200_000, 64_000),
    known_model("claude-opus-4-5", [5_000, 500, 6_250, 25_000], 200_000, 64_000),
    known_model("claude-opus-4-1", [15_000, 1_500, 18_750, 75_000], 200_000, 32_000),
    known_model("claude-opus-4", [15_000, 1_500, 18_750, 75_000], 200_000, 32_000),
    known_model("claude-sonnet-5-5", [2_000, 100, 2_500, 10_000], 1_000_000, 128_000),
    known_model("claude-sonnet-5", [2_000, 200, 2_500, 10_000], 200_000, 64_000),
    known_model("claude-sonnet-4-6", [3_000, 300, 3_750, 15_000], 200_000, 64_000),
    known_model("claude-sonnet-4-5", [3_000, 300, 3_750, 15_000], 200_000, 64_000),
    known_model("claude-sonnet-4", [3_000, 300, 3_750, 15_000], 200_000, 64_000),
    known_model("claude-haiku-5-5", [100, 10, 125, 500], 1_000_000, 128_000)
        .long(100_000, 500, 500),
    known_model("claude-haiku-4-5", [1_000, 100, 1_250, 5_000], 200_000, 64_000),
    known_model("gpt-6.1-sol", [2_000, 100, 2_500, 10_000], 1_050_000, 128_000)
        .long(272_000, 200, 150),
    known_model("gpt-6.1-terra", [1_000, 50, 1_250, 5_000], 1_050_000, 128_000)
        .long(272_000, 200, 150),
    known_model("gpt-6-astra", [10_000, 1_000, 12_500, 50_000], 1_050_000, 128_000)
        .long(272_000, 200, 150),
    known_model("gpt-6-sol", [2_000, 200, 2_500, 10_000], 1_050_000, 128_000)
        .long(272_000, 200, 150),
    known_model("gpt-6-luna", [100, 10, 125, 500], 1_050_000, 128_000).long(272_000, 200, 150),
    known_model("gpt-5.6-sol", [4_000, 400, 5_000, 20_000], 1_050_000, 128_000)
        .long(272_000, 200, 150),
    known_model("gpt-5.6-terra", [2_000, 200, 2_500, 12_000], 1_050_000, 128_000)
        .long(272_000, 200, 150),
    known_model("gpt-5.6-luna", [200, 20, 250, 1_200], 1_050_000, 128_000).long(272_000, 200, 150),
    known_model("gpt-5.5", [5_000, 500, 5_000, 30_000], 1_050_000, 128_000).long(272_000, 200, 150),
    known_model("gpt-5.4", [2_500, 250, 2_500, 15_000], 1_050_000, 128_000).long(272_000, 200, 150),
    known_model("gpt-5.4-mini", [750, 75, 750, 4_500], 400_000, 128_000),
    known_model("gpt-5.4-nano", [200, 20, 200, 1_250], 400_000, 128_000),
    known_model("gpt-5.3-codex", [1_750, 175, 1_750, 14_000], 400_000, 128_000),
    known_model("gpt-5.2", [1_750, 175, 1_750, 14_000], 400_000, 128_000),
    known_model("gpt-5", [1_250, 125, 1_250, 10_000], 400_000, 128_000),
    known_model("gpt-5-mini", [250, 25, 250, 2_000], 400_000, 128_000),
    known_model("gpt-5-nano", [50, 5, 50, 400], 400_000, 128_000),
    known_model("gpt-4.1", [2_000, 500, 2_000, 8_000], 1_047_576, 32_768),
    known_model("gpt-4.1-mini", [400, 100, 400, 1_600], 1_047_576, 32_768),
    known_model("gpt-4o-mini", [150, 75, 150, 600], 128_000, 16_384),
    known_model("gemini-3.7-flash", [750, 75, 750, 3_750], 1_048_576, 65_536),
    known_model("gemini-3.5-flash", [1_500, 150, 1_500, 9_000], 1_048_576, 65_536),
    known_model("gemini-3.1-pro", [2_000, 200, 2_000, 12_000], 1_048_576, 65_536)
        .long(200_000, 200, 150),
    known_model("gemini-2.5-flash", [300, 30, 300, 2_500], 1_048_576, 65_536),
    known_model("grok-4.6", [2_000, 500, 2_000, 6_000], 256_000, 64_000).long(200_000, 200, 200),
];

pub(super) fn facts(model: &str) -> Option<ModelFacts> {
    // Gateways prepend the provider's name.
    let model = model.rsplit_once('/').map_or(model, |(_, model)| model);
    let fits = |row: &&KnownModel| model.strip_prefix(row.name).is_some_and(is_same_model);
    KNOWN_MODELS.iter().find(fits).map(KnownModel::facts)
}

/// Returns true if the rest of a name only selects a snapshot of the model. A variant such as
/// `-mini` or `-fast` has another price, and so has the next version.
fn is_same_model(rest: &str) -> bool {
    let snapshot = rest.strip_prefix('-').is_some_and(|rest| {
        let digits = rest.chars().take_while(char::is_ascii_digit).count();
        digits >= 4 || rest == "latest" || rest.starts_with("preview")
    });
    rest.is_empty() || rest.starts_with(['@', ':']) || snapshot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_own_name() {
        for row in &KNOWN_MODELS {
            assert_eq!(facts(row.name), Some(row.facts()), "{}", row.name);
            let price = &row.price;
            let is_ordered = price.cached_input < price.input && price.input < price.output;
            assert!(is_ordered, "{}", row.name);
        }
    }
}
