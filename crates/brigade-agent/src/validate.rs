//! Values against JSON schemas, with errors that a model can repair its call by.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

mod extent;

/// The largest schema that is taken, as JSON text in bytes.
pub const SCHEMA_SIZE_MAX: usize = 64 * 1024;
/// The deepest one. Compiling goes down as deep as the schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
const REGEX_SIZE_MAX: usize = 1024 * 1024;
const PROBLEMS_MAX: usize = 8;
const PROBLEM_LENGTH_MAX: usize = 300;
const VALUE_LENGTH_MAX: usize = 60;

/// A schema, ready for use. Clones share it.
#[derive(Clone, Debug)]
pub struct Schema(Arc<Validator>);

impl Schema {
    /// Nothing is ever fetched: references lead into the schema itself. Patterns run in linear time.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err(SchemaError("a schema is an object".to_owned()));
        }
        if is_deeper(schema, SCHEMA_DEPTH_MAX) {
            let problem = format!("it is more than {SCHEMA_DEPTH_MAX} levels deep");
            return Err(SchemaError(problem));
        }
        let size = schema.to_string().len();
        if size > SCHEMA_SIZE_MAX {
            let problem = format!("{size} bytes are too many; {SCHEMA_SIZE_MAX} is the most");
            return Err(SchemaError(problem));
        }
        extent::check(schema).map_err(SchemaError)?;
        let patterns = PatternOptions::regex().size_limit(REGEX_SIZE_MAX);
        let options = jsonschema::options().offline().with_pattern_options(patterns);
        match options.build(schema) {
            Ok(validator) => Ok(Self(Arc::new(validator))),
            Err(error) => Err(SchemaError(told(&error))),
        }
    }

    pub fn check(&self, value: &Value) -> Result<(), Mismatch> {
        if self.0.is_valid(value) {
            return Ok(());
        }
        let mut errors = self.0.iter_errors(value);
        let problems: Vec<Problem> = errors.by_ref().take(PROBLEMS_MAX).map(problem).collect();
        Err(Mismatch { problems, more: errors.count() })
    }
}

/// Compiled schemas by their content, since many agents share few of them.
#[derive(Debug, Default)]
pub struct Schemas {
    compiled: Mutex<HashMap<String, Schema>>,
}

impl Schemas {
    /// As many as are kept; when there are more, all are forgotten, and those in use compiled again.
    const KEPT: usize = 256;

    pub fn compiled(&self, schema: &Value) -> Result<Schema, SchemaError> {
        let text = schema.to_string();
        let kept = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = kept().get(&text) {
            return Ok(schema.clone());
        }
        let compiled = Schema::compile(schema)?;
        let mut kept = kept();
        if kept.len() >= Self::KEPT {
            kept.clear();
        }
        kept.insert(text, compiled.clone());
        Ok(compiled)
    }
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no usable JSON schema: {0}")]
pub struct SchemaError(pub String);

/// Where a value is not as its schema wants it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mismatch {
    pub problems: Vec<Problem>,
    /// How many there are besides.
    pub more: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A JSON pointer; empty is the value as a whole.
    pub path: String,
    pub expected: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if at == 0 { "" } else { "; " })?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the whole value" } else { &self.path };
        write!(f, "{path}: {}", self.expected)
    }
}

fn problem(error: ValidationError<'_>) -> Problem {
    let path = cut(&error.instance_path().to_string(), PROBLEM_LENGTH_MAX);
    Problem { path, expected: told(&error) }
}

/// The error in its own words, with the value where it is short, and for alternatives what the
/// nearest of them wants.
fn told(error: &ValidationError<'_>) -> String {
    let mut words = wanted(error);
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
        error.kind()
    {
        let nearest = context.iter().filter(|errors| !errors.is_empty()).min_by_key(|e| e.len());
        if let Some(first) = nearest.and_then(|errors| errors.first()) {
            let path = first.instance_path();
            let nearest = format!(" (nearest: {path} {})", wanted(first));
            words.push_str(&cut(&nearest, PROBLEM_LENGTH_MAX));
        }
        return words;
    }
    match error.instance().as_ref() {
        Value::Object(_) | Value::Array(_) => words,
        value => {
            let value = value.to_string();
            let shown = value.chars().count() <= VALUE_LENGTH_MAX && !words.contains(&value);
            if shown { format!("{words}; it is {value}") } else { words }
        }
    }
}

fn wanted(error: &ValidationError<'_>) -> String {
    let words = match error.kind() {
        ValidationErrorKind::Enum { options } => format!("it is not one of {options}"),
        _ => error.masked_with("it").to_string(),
    };
    cut(&words, PROBLEM_LENGTH_MAX)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return true };
    match value {
        Value::Object(fields) => fields.values().any(|value| is_deeper(value, below)),
        Value::Array(items) => items.iter().any(|value| is_deeper(value, below)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mismatch(schema: Value, value: Value) -> String {
        Schema::compile(&schema).unwrap().check(&value).expect_err("it does not fit").to_string()
    }

    #[test]
    fn a_value_that_fits_passes() {
        let schema = Schema::compile(&json!({"type": "object", "required": ["a"]})).unwrap();
        assert_eq!(schema.check(&json!({"a": 1})), Ok(()));
        assert!(schema.check(&json!({})).is_err());
    }

    #[test]
    fn errors_name_the_path_and_what_was_expected() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {},
                "items": {"type": "array", "items": {"type": "object", "properties": {
                    "count": {"type": "integer", "minimum": 1},
                    "kind": {"enum": ["a", "b"]},
                }}},
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        for (value, expect) in [
            (json!({}), r#"the whole value: "name" is a required property"#),
            (
                json!({"name": 1, "items": [{"count": "x"}]}),
                r#"/items/0/count: it is not of type "integer"; it is "x""#,
            ),
            (
                json!({"name": 1, "items": [{}, {"count": 0}]}),
                "/items/1/count: it is less than the minimum of 1; it is 0",
            ),
            (
                json!({"name": 1, "items": [{"kind": "c"}]}),
                r#"/items/0/kind: it is not one of ["a","b"]; it is "c""#,
            ),
            (
                json!({"name": 1, "nmae": 2}),
                "the whole value: Additional properties are not allowed ('nmae' was unexpected)",
            ),
        ] {
            assert_eq!(mismatch(schema.clone(), value), expect);
        }
    }

    #[test]
    fn of_alternatives_the_nearest_is_told() {
        let schema = json!({"anyOf": [
            {"type": "object", "required": ["a"]},
            {"type": "object", "required": ["b", "c"]},
        ]});
        let words = mismatch(schema, json!({}));
        assert!(words.contains(r#"(nearest:  "a" is a required property)"#), "{words}");
    }

    #[test]
    fn errors_are_bounded_in_number_and_length() {
        let schema = json!({"items": {"type": "integer"}});
        let words = mismatch(schema, json!(vec!["x".repeat(10_000); 100]));
        assert!(words.ends_with("; and 92 more"), "{words}");
        assert!(words.len() < 4000, "{}", words.len());
        let options: Vec<String> = (0..3000).map(|number| format!("option {number}")).collect();
        let words = mismatch(json!({"enum": options}), json!("none"));
        assert!(words.len() < 1000, "{}", words.len());
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_refused() {
        let deep = (0..100).fold(json!({}), |below, _| json!({"items": below}));
        for (schema, expect) in [
            (json!("string"), "a schema is an object"),
            (json!({"type": "strnig"}), r#"/type it is not one of ["array","boolean","integer""#),
            (json!({"pattern": "("}), "regex"),
            (json!({"pattern": "(?=a)"}), "regex"),
            (json!({"description": "x".repeat(SCHEMA_SIZE_MAX)}), "65536 is the most"),
            (deep, "levels deep"),
            (json!({"$ref": "https://example.com/schema.json"}), "https://example.com"),
            (json!({"$ref": "file:///etc/passwd"}), "file:///etc/passwd"),
            (json!({"$ref": "#/nowhere"}), "/nowhere"),
        ] {
            let error = Schema::compile(&schema).expect_err("unusable").to_string();
            assert!(error.contains(expect), "{schema}: {error}");
        }
    }

    #[test]
    fn a_schema_may_refer_to_itself() {
        let tree = json!({
            "type": "object",
            "properties": {"below": {"type": "array", "items": {"$ref": "#"}}},
            "additionalProperties": false,
        });
        let schema = Schema::compile(&tree).unwrap();
        assert_eq!(schema.check(&json!({"below": [{"below": []}]})), Ok(()));
        assert!(schema.check(&json!({"below": [{"belwo": []}]})).is_err());
        if let Ok(endless) = Schema::compile(&json!({"$ref": "#"})) {
            let _ = endless.check(&json!(1));
        }
    }

    #[test]
    fn the_same_schema_is_compiled_once() {
        let schemas = Schemas::default();
        let one = schemas.compiled(&json!({"type": "object"})).unwrap();
        let same = schemas.compiled(&json!({"type": "object"})).unwrap();
        assert!(Arc::ptr_eq(&one.0, &same.0));
        for number in 0..2 * Schemas::KEPT {
            schemas.compiled(&json!({"minimum": number})).unwrap();
        }
        assert!(schemas.compiled.lock().unwrap().len() <= Schemas::KEPT);
    }
}
