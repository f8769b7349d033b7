//! The sizes of the compiled patterns of a schema.
//!
//! The work of a match is the length of the text times the size of the pattern. A pattern of ten characters
//! can have a compiled size of a megabyte.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

/// The largest compiled pattern, in bytes.
pub(super) const PATTERN_SIZE_MAX: usize = 1024 * 1024;
/// The largest sum of the patterns of a schema, in bytes.
const PATTERNS_SIZE_MAX: usize = 4 * PATTERN_SIZE_MAX;
const PATTERNS_MAX: usize = 256;
/// The largest memory of one matcher, in bytes.
const MATCHER_SIZE_MAX: usize = 256 * 1024;
/// A pattern of at most this size is matched in one unit of work per unit of text.
const SIZE_LEAST: usize = 1024;

/// Returns an engine without backtracking, for patterns of at most `size` bytes.
pub(super) fn pattern_engine(size: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex().size_limit(size).dfa_size_limit(MATCHER_SIZE_MAX)
}

/// Sizes by pattern.
#[derive(Debug, Default)]
pub(super) struct PatternSizes(HashMap<String, usize>);

impl PatternSizes {
    pub(super) fn measure(schema: &Value) -> Result<Self, String> {
        let mut sizes = HashMap::new();
        collect_patterns(schema, &mut sizes);
        if sizes.len() > PATTERNS_MAX {
            let count = sizes.len();
            return Err(format!("it has {count} patterns; the maximum is {PATTERNS_MAX}"));
        }
        let mut sum = 0;
        for (pattern, size) in &mut sizes {
            *size = compiled_size(pattern);
            sum += *size;
            if sum > PATTERNS_SIZE_MAX {
                return Err("its patterns are too large together".to_owned());
            }
        }
        Ok(Self(sizes))
    }

    /// Returns the units of work for one unit of text.
    pub(super) fn units(&self, pattern: &str) -> u64 {
        let size = self.0.get(pattern).copied().unwrap_or(PATTERN_SIZE_MAX);
        (size / SIZE_LEAST).max(1) as u64
    }
}

/// Collects every text that may be compiled as a pattern, wherever it is: references can lead anywhere.
fn collect_patterns(schema: &Value, sizes: &mut HashMap<String, usize>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| collect_patterns(item, sizes)),
        Value::Object(fields) => {
            for (keyword, argument) in fields {
                match (keyword.as_str(), argument) {
                    ("pattern", Value::String(pattern)) => {
                        sizes.insert(pattern.clone(), 0);
                    }
                    ("patternProperties", Value::Object(patterns)) => {
                        sizes.extend(patterns.keys().map(|pattern| (pattern.clone(), 0)));
                    }
                    _ => (),
                }
                collect_patterns(argument, sizes);
            }
        }
        _ => (),
    }
}

/// Returns a size that is enough for a pattern. An invalid pattern has the largest size: compilation of the
/// schema refuses it later, with the reason.
fn compiled_size(pattern: &str) -> usize {
    let mut schema = Map::new();
    schema.insert("pattern".to_owned(), json!(pattern));
    let schema = Value::Object(schema);
    let fits = |size: usize| {
        let options = jsonschema::options().offline().with_pattern_options(pattern_engine(size));
        options.build(&schema).is_ok()
    };
    let sizes = std::iter::successors(Some(SIZE_LEAST), |size| Some(size * 4));
    let mut sizes = sizes.take_while(|size| *size < PATTERN_SIZE_MAX);
    sizes.find(|size| fits(*size)).unwrap_or(PATTERN_SIZE_MAX)
}
