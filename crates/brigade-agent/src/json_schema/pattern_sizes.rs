//! The sizes of the compiled patterns of a schema. Matching takes the length of the text times the size
//! of the pattern, and a pattern of ten characters may be compiled to a megabyte.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

/// The largest compiled pattern, in bytes.
pub(super) const PATTERN_SIZE_MAX: usize = 1024 * 1024;
/// All patterns of a schema together.
const PATTERNS_SIZE_MAX: usize = 4 * PATTERN_SIZE_MAX;
const PATTERNS_MAX: usize = 256;
/// The memory of one matcher.
const MATCHER_SIZE_MAX: usize = 256 * 1024;
/// A pattern of at most this size is matched in one unit of work per unit of text.
const SIZE_LEAST: usize = 1024;

/// The engine for patterns of at most `size` bytes: without backtracking.
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
            return Err(format!("it has {count} patterns; {PATTERNS_MAX} is the most"));
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

    /// Units of work for a unit of text.
    pub(super) fn units(&self, pattern: &str) -> u64 {
        let size = self.0.get(pattern).copied().unwrap_or(PATTERN_SIZE_MAX);
        (size / SIZE_LEAST).max(1) as u64
    }
}

/// Every text that may be compiled as a pattern, wherever it stands: references lead anywhere.
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

/// The size that is enough for a pattern. One that cannot be compiled at all has the largest: the schema
/// is refused for it afterwards, with the reason.
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
