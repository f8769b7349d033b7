//! Validates values against JSON schemas, with errors that help a model to repair its call.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::truncate::truncate_chars;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use self::pattern_sizes::PatternSizes;
use self::validation_work::{TooCostly, WorkLimits};

mod pattern_sizes;
mod schema_extent;
mod validation_work;

/// The largest schema, in bytes of its JSON text.
pub const SCHEMA_SIZE_MAX: usize = 64 * 1024;
/// The most levels of a schema. Compilation is recursive.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// The most work for a report of all errors. Above it, the report does not name them.
const REPORT_WORK_MAX: u64 = 1_000_000;
/// The most memory for a report of all errors, in units of some hundred bytes.
const REPORT_ERRORS_MAX: u64 = 50_000;
const PROBLEMS_MAX: usize = 8;
const PROBLEM_LENGTH_MAX: usize = 300;
const VALUE_LENGTH_MAX: usize = 60;

/// A compiled schema. Clones share it.
#[derive(Clone, Debug)]
pub struct Schema(Arc<CompiledSchema>);

#[derive(Debug)]
struct CompiledSchema {
    validator: Validator,
    source: Value,
    patterns: PatternSizes,
}

impl Schema {
    /// Compiles a schema. References must stay within the schema, so nothing is fetched. Patterns run in
    /// linear time, and `format` is not validated.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err(SchemaError("a schema must be an object".to_owned()));
        }
        if is_deeper(schema, SCHEMA_DEPTH_MAX) {
            let problem = format!("it is more than {SCHEMA_DEPTH_MAX} levels deep");
            return Err(SchemaError(problem));
        }
        let size = schema.to_string().len();
        if size > SCHEMA_SIZE_MAX {
            let problem = format!("{size} bytes are too many; the maximum is {SCHEMA_SIZE_MAX}");
            return Err(SchemaError(problem));
        }
        schema_extent::check_extent(schema).map_err(SchemaError)?;
        let patterns = PatternSizes::measure(schema).map_err(SchemaError)?;
        let options = jsonschema::options()
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(pattern_sizes::pattern_engine(pattern_sizes::PATTERN_SIZE_MAX));
        match options.build(schema) {
            Ok(validator) => {
                let source = schema.clone();
                Ok(Self(Arc::new(CompiledSchema { validator, source, patterns })))
            }
            Err(error) => Err(SchemaError(render_error(&error))),
        }
    }

    /// Validates a value within some milliseconds. Refuses a value whose validation would take longer.
    pub fn check(&self, value: &Value) -> Result<(), SchemaMismatch> {
        self.check_within(value, WorkLimits::INLINE)
    }

    /// Validates a larger value, on a thread for blocking work if it takes long. Refuses a value whose
    /// validation would take too long.
    pub async fn check_async(&self, value: &Value) -> Result<(), SchemaMismatch> {
        if self.measure(value, WorkLimits::INLINE).is_ok() {
            return self.check(value);
        }
        let schema = self.clone();
        let value = value.clone();
        let check = move || schema.check_within(&value, WorkLimits::APART);
        match tokio::task::spawn_blocking(check).await {
            Ok(checked) => checked,
            Err(error) => {
                Err(SchemaMismatch::for_whole_value(format!("it was not checked: {error}")))
            }
        }
    }

    fn check_within(&self, value: &Value, limits: WorkLimits) -> Result<(), SchemaMismatch> {
        let work = self
            .measure(value, limits)
            .map_err(|reason| SchemaMismatch::for_whole_value(refusal_text(reason)))?;
        let validator = &self.0.validator;
        if validator.is_valid(value) {
            return Ok(());
        }
        if work.report > REPORT_WORK_MAX || work.errors > REPORT_ERRORS_MAX {
            return Err(SchemaMismatch::for_whole_value(
                "it does not fit, and it is too large to say where",
            ));
        }
        let mut errors = validator.iter_errors(value);
        let problems: Vec<SchemaProblem> =
            errors.by_ref().take(PROBLEMS_MAX).map(schema_problem).collect();
        Err(SchemaMismatch { problems, more: errors.count() })
    }

    fn measure(
        &self,
        value: &Value,
        limits: WorkLimits,
    ) -> Result<validation_work::ValidationWork, TooCostly> {
        validation_work::measure(&self.0.source, &self.0.patterns, value, limits)
    }
}

fn refusal_text(reason: TooCostly) -> &'static str {
    match reason {
        TooCostly::Work => "checking it against its schema would take too long; make it smaller",
        TooCostly::Depth => "it is nested too deep to be checked against its schema",
        TooCostly::Circle => "the schema refers to itself in a circle, so nothing can be checked",
    }
}

/// A cache of compiled schemas by their content, since many agents share few schemas.
#[derive(Debug, Default)]
pub struct SchemaCache {
    compiled: Mutex<HashMap<String, Schema>>,
}

impl SchemaCache {
    /// The most schemas in the cache. A full cache is cleared.
    const CAPACITY: usize = 256;

    pub fn get_or_compile(&self, schema: &Value) -> Result<Schema, SchemaError> {
        let text = schema.to_string();
        let lock = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = lock().get(&text) {
            return Ok(schema.clone());
        }
        let compiled = Schema::compile(schema)?;
        let mut cache = lock();
        if cache.len() >= Self::CAPACITY {
            cache.clear();
        }
        cache.insert(text, compiled.clone());
        Ok(compiled)
    }
}

/// The reason why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no usable JSON schema: {0}")]
pub struct SchemaError(pub String);

/// The places where a value does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SchemaMismatch {
    pub problems: Vec<SchemaProblem>,
    /// The number of further problems.
    pub more: usize,
}

impl SchemaMismatch {
    fn for_whole_value(problem: impl Into<String>) -> Self {
        let problem = SchemaProblem { path: String::new(), expected: problem.into() };
        Self { problems: vec![problem], more: 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaProblem {
    /// A JSON pointer. It is empty for the value as a whole.
    pub path: String,
    pub expected: String,
}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if position == 0 { "" } else { "; " })?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the whole value" } else { &self.path };
        write!(f, "{path}: {}", self.expected)
    }
}

fn schema_problem(error: ValidationError<'_>) -> SchemaProblem {
    let path = truncate_chars(&error.instance_path().to_string(), PROBLEM_LENGTH_MAX);
    SchemaProblem { path, expected: render_error(&error) }
}

/// Renders an error, with the value if it is short. For alternatives it adds the error of the nearest one.
fn render_error(error: &ValidationError<'_>) -> String {
    let mut text = expected_text(error);
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
        error.kind()
    {
        let nearest = context.iter().filter(|errors| !errors.is_empty()).min_by_key(|e| e.len());
        if let Some(first) = nearest.and_then(|errors| errors.first()) {
            let path = first.instance_path();
            let nearest = format!(" (nearest: {path} {})", expected_text(first));
            text.push_str(&truncate_chars(&nearest, PROBLEM_LENGTH_MAX));
        }
        return text;
    }
    match error.instance().as_ref() {
        Value::Object(_) | Value::Array(_) => text,
        value => {
            let value = value.to_string();
            let is_shown = value.chars().count() <= VALUE_LENGTH_MAX && !text.contains(&value);
            if is_shown { format!("{text}; it is {value}") } else { text }
        }
    }
}

fn expected_text(error: &ValidationError<'_>) -> String {
    let text = match error.kind() {
        ValidationErrorKind::Enum { options } => format!("it is not one of {options}"),
        _ => error.masked_with("it").to_string(),
    };
    truncate_chars(&text, PROBLEM_LENGTH_MAX)
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else { return true };
    match value {
        Value::Object(fields) => fields.values().any(|value| is_deeper(value, levels)),
        Value::Array(items) => items.iter().any(|value| is_deeper(value, levels)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
