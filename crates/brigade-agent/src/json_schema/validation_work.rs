//! Counts the work of a validation before it is done.
//!
//! A validator follows every path through the schema for every part of the value. Alternatives that refer
//! back to the schema multiply with each level of the value. A schema of a hundred bytes and a value of a
//! hundred brackets are enough to keep a processor busy for years. The count visits each pair of a schema
//! part and a value part once, so it is cheap even if the validation is not.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::pattern_sizes::PatternSizes;
use super::schema_extent;

/// The most nested pairs. The validator needs some stack for each.
pub(super) const DEPTH_MAX: u32 = 512;
/// The bytes that are compared or copied in one unit of work.
const UNIT_BYTES: u64 = 64;
/// The bytes that the smallest pattern is matched against in one unit of work.
const UNIT_MATCHED: u64 = 16;
/// The names that are looked up in one unit of work.
const UNIT_LOOKUPS: u64 = 8;
/// The largest integer up to which all integers differ as floating point numbers too.
const EXACT_INTEGER_MAX: u64 = 1 << 53;

/// The limits of a validation.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkLimits {
    /// The most pairs of a schema part and a value part that are counted.
    pub(super) pairs: usize,
    /// The most units of work.
    pub(super) work: u64,
}

impl WorkLimits {
    /// A validation of some milliseconds, which may run on any thread.
    pub(super) const INLINE: Self = Self { pairs: 10_000, work: 100_000 };
    /// A validation of some hundred milliseconds, for a thread of its own.
    pub(super) const APART: Self = Self { pairs: 250_000, work: 2_000_000 };
}

/// The reason why a value is not validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooCostly {
    Work,
    Depth,
    /// References form a cycle for the same part of the value.
    Circle,
}

/// The upper bounds of one validation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValidationWork {
    /// The units of work to decide if the value fits.
    pub(super) check: u64,
    /// The units of work to find all errors.
    pub(super) report: u64,
    /// The units of memory for the errors.
    pub(super) errors: u64,
    /// The units of work for an outer `unevaluated..`, which validates this part once more.
    mark: u64,
    /// The number of nested pairs.
    depth: u32,
}

impl ValidationWork {
    fn spend(&mut self, units: u64) {
        self.check = self.check.saturating_add(units);
    }

    /// Adds a part of the schema for the same part of the value.
    fn add_in_place(&mut self, part: ValidationWork) {
        self.add_child(part);
        self.mark = self.mark.saturating_add(part.check).saturating_add(part.mark);
    }

    fn add_child(&mut self, part: ValidationWork) {
        self.check = self.check.saturating_add(part.check);
        self.report = self.report.saturating_add(part.check).saturating_add(part.report);
        self.errors = self.errors.saturating_add(part.errors);
        self.depth = self.depth.max(part.depth);
    }

    /// Adds errors at this place. Each error holds the path to it.
    fn add_errors(&mut self, errors: usize, place: ValuePlace) {
        let units = (errors as u64).saturating_mul(1 + place.path_bytes / UNIT_BYTES);
        self.errors = self.errors.saturating_add(units);
    }
}

/// A part of the value, or the name of a field for `propertyNames`.
#[derive(Clone, Copy)]
enum ValuePart<'a> {
    Value(&'a Value),
    Name(&'a str),
}

impl<'a> ValuePart<'a> {
    fn address(self) -> usize {
        match self {
            Self::Value(value) => std::ptr::from_ref(value).addr(),
            Self::Name(name) => name.as_ptr().addr(),
        }
    }

    fn fields(self) -> Option<&'a Map<String, Value>> {
        if let Self::Value(Value::Object(fields)) = self { Some(fields) } else { None }
    }

    fn items(self) -> &'a [Value] {
        if let Self::Value(Value::Array(items)) = self { items } else { &[] }
    }

    fn text(self) -> Option<&'a str> {
        match self {
            Self::Name(text) => Some(text),
            Self::Value(Value::String(text)) => Some(text),
            Self::Value(_) => None,
        }
    }
}

/// A place in the value: its depth, and the length of its path.
#[derive(Clone, Copy)]
struct ValuePlace {
    depth: u32,
    path_bytes: u64,
}

/// A keyword of a schema and its argument.
#[derive(Clone, Copy)]
struct Keyword<'a> {
    name: &'a str,
    argument: &'a Value,
}

/// The keywords of a schema part, and the value part that they apply to.
#[derive(Clone, Copy)]
struct SchemaPair<'a> {
    keywords: &'a Map<String, Value>,
    part: ValuePart<'a>,
}

/// Counts the work of one validation, or returns the reason to refuse it.
pub(super) fn measure(
    schema: &Value,
    patterns: &PatternSizes,
    value: &Value,
    limits: WorkLimits,
) -> Result<ValidationWork, TooCostly> {
    let mut meter = WorkMeter {
        root: schema,
        patterns,
        limits,
        known: HashMap::new(),
        open: HashSet::new(),
        targets: HashMap::new(),
    };
    let root = ValuePlace { depth: 0, path_bytes: 0 };
    let work = meter.measure(schema, ValuePart::Value(value), root)?;
    if work.check > limits.work { Err(TooCostly::Work) } else { Ok(work) }
}

struct WorkMeter<'a> {
    root: &'a Value,
    patterns: &'a PatternSizes,
    limits: WorkLimits,
    known: HashMap<(usize, usize), ValidationWork>,
    /// The pairs that are being counted.
    open: HashSet<(usize, usize)>,
    targets: HashMap<&'a str, Option<&'a Value>>,
}

impl<'a> WorkMeter<'a> {
    fn measure(
        &mut self,
        schema: &'a Value,
        part: ValuePart<'a>,
        place: ValuePlace,
    ) -> Result<ValidationWork, TooCostly> {
        let Value::Object(keywords) = schema else {
            let mut work = ValidationWork { check: 1, report: 1, mark: 1, errors: 0, depth: 1 };
            work.add_errors(1, place);
            return Ok(work);
        };
        let pair = (std::ptr::from_ref(schema).addr(), part.address());
        if let Some(known) = self.known.get(&pair) {
            let is_deep = place.depth + known.depth > DEPTH_MAX;
            return if is_deep { Err(TooCostly::Depth) } else { Ok(*known) };
        }
        if place.depth >= DEPTH_MAX {
            return Err(TooCostly::Depth);
        }
        if self.known.len() >= self.limits.pairs {
            return Err(TooCostly::Work);
        }
        if !self.open.insert(pair) {
            return Err(TooCostly::Circle);
        }
        let mut work = ValidationWork { check: 1, mark: 1, ..ValidationWork::default() };
        for (name, argument) in keywords {
            let place = ValuePlace { depth: place.depth + 1, ..place };
            let keyword = Keyword { name, argument };
            self.add_keyword(&mut work, keyword, SchemaPair { keywords, part }, place)?;
            self.check_limit(&work)?;
        }
        if keywords.keys().any(|keyword| keyword.starts_with("unevaluated")) {
            work.spend(work.mark);
        }
        work.report = work.report.saturating_add(work.check);
        work.add_errors(keywords.len(), place);
        work.depth += 1;
        self.open.remove(&pair);
        self.known.insert(pair, work);
        Ok(work)
    }

    fn add_keyword(
        &mut self,
        work: &mut ValidationWork,
        keyword: Keyword<'a>,
        pair: SchemaPair<'a>,
        place: ValuePlace,
    ) -> Result<(), TooCostly> {
        let part = pair.part;
        match (keyword.name, keyword.argument) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                if let Some(target) = self.find_target(reference) {
                    work.add_in_place(self.measure(target, part, place)?);
                }
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                for schema in schemas {
                    work.add_in_place(self.measure(schema, part, place)?);
                    self.check_limit(work)?;
                }
            }
            ("not" | "if" | "then" | "else", schema) => {
                work.add_in_place(self.measure(schema, part, place)?);
            }
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                work.spend(lookup_units(schemas.len()));
                for schema in schemas.values() {
                    match schema {
                        Value::Array(names) => work.spend(lookup_units(names.len())),
                        schema => work.add_in_place(self.measure(schema, part, place)?),
                    }
                    self.check_limit(work)?;
                }
            }
            _ if part.fields().is_some() => {
                self.add_object_keyword(work, keyword, pair, place)?;
            }
            _ if matches!(part, ValuePart::Value(Value::Array(_))) => {
                self.add_array_keyword(work, keyword, part.items(), place)?;
            }
            ("pattern", Value::String(pattern)) => {
                work.spend(self.match_units(pattern, part.text().unwrap_or_default()));
            }
            _ => (),
        }
        match keyword.name {
            "const" | "enum" => work.spend(1 + count_parts(keyword.argument) / UNIT_LOOKUPS),
            "minLength" | "maxLength" | "format" | "contentEncoding" | "contentMediaType" => {
                work.spend(byte_units(part.text().unwrap_or_default()));
            }
            _ => (),
        }
        Ok(())
    }

    fn add_object_keyword(
        &mut self,
        work: &mut ValidationWork,
        keyword: Keyword<'a>,
        pair: SchemaPair<'a>,
        place: ValuePlace,
    ) -> Result<(), TooCostly> {
        let SchemaPair { keywords, part } = pair;
        let Some(fields) = part.fields() else { return Ok(()) };
        match (keyword.name, keyword.argument) {
            ("properties", Value::Object(properties)) => {
                work.spend(lookup_units(properties.len()) + lookup_units(fields.len()));
                for (name, schema) in properties {
                    if let Some(field) = fields.get(name) {
                        let part =
                            self.measure(schema, ValuePart::Value(field), place.child(name))?;
                        work.add_child(part);
                        self.check_limit(work)?;
                    }
                }
            }
            ("patternProperties", Value::Object(patterns)) => {
                // Every pattern may match every name.
                for (pattern, schema) in patterns {
                    for (name, field) in fields {
                        work.spend(self.match_units(pattern, name));
                        let part =
                            self.measure(schema, ValuePart::Value(field), place.child(name))?;
                        work.add_child(part);
                        self.check_limit(work)?;
                    }
                }
            }
            ("additionalProperties" | "unevaluatedProperties", schema) => {
                let is_additional = keyword.name == "additionalProperties";
                let listed = keywords.get("properties").filter(|_| is_additional);
                let patterns = keywords.get("patternProperties").and_then(Value::as_object);
                for (name, field) in fields {
                    work.spend(1 + byte_units(name));
                    for pattern in patterns.into_iter().flat_map(Map::keys) {
                        work.spend(self.match_units(pattern, name));
                    }
                    self.check_limit(work)?;
                    if listed.is_some_and(|listed| listed.get(name).is_some()) {
                        continue;
                    }
                    let part = self.measure(schema, ValuePart::Value(field), place.child(name))?;
                    work.add_child(part);
                    work.mark = work.mark.saturating_add(part.check);
                }
            }
            ("propertyNames", schema) => {
                for name in fields.keys() {
                    work.add_child(self.measure(schema, ValuePart::Name(name), place)?);
                    self.check_limit(work)?;
                }
            }
            ("required", Value::Array(names)) => {
                work.spend(lookup_units(names.len()));
                work.add_errors(names.len(), place);
            }
            ("dependentRequired", Value::Object(lists)) => {
                let names = lists.values().filter_map(Value::as_array).map(Vec::len).sum();
                work.spend(lookup_units(names) + lookup_units(lists.len()));
                work.add_errors(names, place);
            }
            _ => (),
        }
        Ok(())
    }

    fn add_array_keyword(
        &mut self,
        work: &mut ValidationWork,
        keyword: Keyword<'a>,
        items: &'a [Value],
        place: ValuePlace,
    ) -> Result<(), TooCostly> {
        match (keyword.name, keyword.argument) {
            ("prefixItems" | "items", Value::Array(schemas)) => {
                for (schema, item) in schemas.iter().zip(items) {
                    work.add_child(self.measure(
                        schema,
                        ValuePart::Value(item),
                        place.child(""),
                    )?);
                }
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                for item in items {
                    let part = self.measure(schema, ValuePart::Value(item), place.child(""))?;
                    work.add_child(part);
                    work.mark = work.mark.saturating_add(part.check);
                    self.check_limit(work)?;
                }
            }
            ("uniqueItems", Value::Bool(true)) => work.spend(unique_units(items)),
            _ => (),
        }
        Ok(())
    }

    /// Ends the count as soon as it exceeds the limit, since counting takes time itself.
    fn check_limit(&self, work: &ValidationWork) -> Result<(), TooCostly> {
        if work.check > self.limits.work { Err(TooCostly::Work) } else { Ok(()) }
    }

    fn find_target(&mut self, reference: &'a str) -> Option<&'a Value> {
        let root = self.root;
        *self
            .targets
            .entry(reference)
            .or_insert_with(|| schema_extent::find_reference(root, reference))
    }

    fn match_units(&self, pattern: &str, text: &str) -> u64 {
        1 + (text.len() as u64).saturating_mul(self.patterns.units(pattern)) / UNIT_MATCHED
    }
}

impl ValuePlace {
    /// Returns the place of a field, or of an item, whose name is empty.
    fn child(self, name: &str) -> Self {
        Self { path_bytes: self.path_bytes + name.len() as u64 + 1, ..self }
    }
}

fn lookup_units(names: usize) -> u64 {
    names as u64 / UNIT_LOOKUPS + 1
}

fn byte_units(text: &str) -> u64 {
    text.len() as u64 / UNIT_BYTES
}

fn count_parts(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(count_parts).sum::<u64>(),
        Value::Object(fields) => {
            1 + fields
                .iter()
                .map(|(name, field)| byte_units(name) + count_parts(field))
                .sum::<u64>()
        }
        Value::String(text) => 1 + byte_units(text),
        _ => 1,
    }
}

/// Returns the units of work for the comparison of all items with each other. Items with different hashes
/// are cheap, but nested arrays and large integers may share one hash.
fn unique_units(items: &[Value]) -> u64 {
    let is_hashed_apart = |item: &Value| match item {
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number <= EXACT_INTEGER_MAX,
            (None, Some(number)) => number.unsigned_abs() <= EXACT_INTEGER_MAX,
            (None, None) => true,
        },
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    };
    let parts: u64 = items.iter().map(count_parts).sum();
    let times = if items.iter().all(is_hashed_apart) { 16 } else { items.len() as u64 };
    parts.saturating_mul(times) / UNIT_LOOKUPS + 1
}
