//! Values against JSON schemas, with errors that a model can repair its call by.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use self::pattern_sizes::PatternSizes;
use self::validation_work::{TooCostly, WorkLimits};

mod pattern_sizes;
mod schema_extent;
mod validation_work;

/// The largest schema that is taken, as JSON text in bytes.
pub const SCHEMA_SIZE_MAX: usize = 64 * 1024;
/// The deepest one. Compiling goes down as deep as the schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Errors are found one and all; where that takes more work than this, nobody is told of each.
const REPORT_WORK_MAX: u64 = 1_000_000;
/// The same for the memory that they take, in units of some hundred bytes.
const REPORT_ERRORS_MAX: u64 = 50_000;
const PROBLEMS_MAX: usize = 8;
const PROBLEM_LENGTH_MAX: usize = 300;
const VALUE_LENGTH_MAX: usize = 60;

/// A schema, ready for use. Clones share it.
#[derive(Clone, Debug)]
pub struct Schema(Arc<CompiledSchema>);

#[derive(Debug)]
struct CompiledSchema {
    validator: Validator,
    source: Value,
    patterns: PatternSizes,
}

impl Schema {
    /// Nothing is ever fetched: references lead into the schema itself. Patterns run in linear time, and
    /// `format` is a remark for people.
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

    /// Validates a value of moderate size. It takes some milliseconds at most: what would take longer is
    /// refused unchecked.
    pub fn check(&self, value: &Value) -> Result<(), SchemaMismatch> {
        self.check_within(value, WorkLimits::INLINE)
    }

    /// Validates a value of any size. What takes long is done on a thread for blocking work; what would
    /// take too long is refused unchecked.
    pub async fn check_async(&self, value: &Value) -> Result<(), SchemaMismatch> {
        if self.measure(value, WorkLimits::INLINE).is_ok() {
            return self.check(value);
        }
        let (schema, value) = (self.clone(), value.clone());
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

/// Compiled schemas by their content, since many agents share few of them.
#[derive(Debug, Default)]
pub struct SchemaCache {
    compiled: Mutex<HashMap<String, Schema>>,
}

impl SchemaCache {
    /// As many as are kept; when there are more, all are forgotten, and those in use compiled again.
    const CAPACITY: usize = 256;

    pub fn get_or_compile(&self, schema: &Value) -> Result<Schema, SchemaError> {
        let text = schema.to_string();
        let kept = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = kept().get(&text) {
            return Ok(schema.clone());
        }
        let compiled = Schema::compile(schema)?;
        let mut kept = kept();
        if kept.len() >= Self::CAPACITY {
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
pub struct SchemaMismatch {
    pub problems: Vec<SchemaProblem>,
    /// How many there are besides.
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
    /// A JSON pointer; empty is the value as a whole.
    pub path: String,
    pub expected: String,
}

impl fmt::Display for SchemaMismatch {
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

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the whole value" } else { &self.path };
        write!(f, "{path}: {}", self.expected)
    }
}

fn schema_problem(error: ValidationError<'_>) -> SchemaProblem {
    let path = truncate(&error.instance_path().to_string(), PROBLEM_LENGTH_MAX);
    SchemaProblem { path, expected: render_error(&error) }
}

/// The error in its own words, with the value where it is short, and for alternatives what the
/// nearest of them wants.
fn render_error(error: &ValidationError<'_>) -> String {
    let mut words = expected_text(error);
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
        error.kind()
    {
        let nearest = context.iter().filter(|errors| !errors.is_empty()).min_by_key(|e| e.len());
        if let Some(first) = nearest.and_then(|errors| errors.first()) {
            let path = first.instance_path();
            let nearest = format!(" (nearest: {path} {})", expected_text(first));
            words.push_str(&truncate(&nearest, PROBLEM_LENGTH_MAX));
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

fn expected_text(error: &ValidationError<'_>) -> String {
    let words = match error.kind() {
        ValidationErrorKind::Enum { options } => format!("it is not one of {options}"),
        _ => error.masked_with("it").to_string(),
    };
    truncate(&words, PROBLEM_LENGTH_MAX)
}

fn truncate(text: &str, most: usize) -> String {
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
mod tests;
