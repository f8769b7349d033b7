//! The size of a schema after its references are expanded.
//!
//! A few definitions that each refer twice to the next make a small schema whose check never ends. A check
//! follows every path from the root, so the paths are counted first.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// The most parts of a schema, counted once for each path to them.
pub(super) const EXTENT_MAX: u64 = 100_000;
/// The most nested parts on a path through references. Compilation needs some stack for each.
const NESTING_MAX: usize = 1_000;

/// Keywords that hold values, not schemas.
const LITERAL: [&str; 4] = ["const", "enum", "default", "examples"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

pub(super) fn check_extent(schema: &Value) -> Result<(), String> {
    check_anchors(schema, &mut HashSet::new())?;
    let mut extent = ExtentCounter { root: schema, known: HashMap::new(), nesting: 0 };
    let parts = extent.extent_of(schema)?;
    if parts > EXTENT_MAX {
        return Err("its references multiply to more than can be checked".to_owned());
    }
    Ok(())
}

struct ExtentCounter<'a> {
    root: &'a Value,
    /// The extent by reference. A reference that is still being counted has none, since a cycle ends with
    /// the value that is checked.
    known: HashMap<&'a str, u64>,
    nesting: usize,
}

impl<'a> ExtentCounter<'a> {
    fn extent_of(&mut self, value: &'a Value) -> Result<u64, String> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err("its references are nested too deep".to_owned());
        }
        let parts = self.count(value);
        self.nesting -= 1;
        parts
    }

    fn count(&mut self, value: &'a Value) -> Result<u64, String> {
        let mut parts: u64 = 1;
        match value {
            Value::Array(items) => {
                for item in items {
                    parts = parts.saturating_add(self.extent_of(item)?);
                }
            }
            Value::Object(fields) => {
                let nested = !std::ptr::eq(self.root, value);
                for (key, value) in fields {
                    let more = match value {
                        Value::String(target) if REFERENCES.contains(&key.as_str()) => {
                            self.target_extent(target)?
                        }
                        // Draft 4 has `id` instead of `$id`.
                        Value::String(_) if (key == "$id" || key == "id") && nested => {
                            return Err(format!("only the whole schema may have an `{key}`"));
                        }
                        _ if LITERAL.contains(&key.as_str()) => 1,
                        // Definitions are counted where something refers to them.
                        _ if key == "$defs" || key == "definitions" => 1,
                        value => self.extent_of(value)?,
                    };
                    parts = parts.saturating_add(more);
                }
            }
            _ => (),
        }
        Ok(parts)
    }

    fn target_extent(&mut self, reference: &'a str) -> Result<u64, String> {
        if let Some(known) = self.known.get(reference) {
            return Ok(*known);
        }
        let Some(target) = find_reference(self.root, reference) else {
            return Err(format!(
                "`{reference}` leads nowhere in it; a reference is `#`, `#/$defs/name` or `#anchor`"
            ));
        };
        self.known.insert(reference, 0);
        let parts = self.extent_of(target)?;
        self.known.insert(reference, parts);
        Ok(parts)
    }
}

/// Finds the target of a reference. Does not find a reference that others may read differently.
pub(super) fn find_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let fragment = reference.strip_prefix('#')?;
    if !fragment.is_empty() && !fragment.starts_with('/') {
        return find_anchor(root, fragment);
    }
    let pointer = fragment.replace("%24", "$");
    let is_plain = pointer.split('%').skip(1).all(|escape| escape.starts_with("25"));
    if is_plain { root.pointer(&pointer.replace("%25", "%")) } else { None }
}

/// Checks that every anchor is unique.
fn check_anchors<'a>(value: &'a Value, names: &mut HashSet<&'a str>) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check_anchors(item, names)),
        Value::Object(fields) => {
            let own =
                ["$anchor", "$dynamicAnchor"].map(|key| fields.get(key).and_then(Value::as_str));
            for name in own.into_iter().flatten() {
                if !names.insert(name) {
                    return Err(format!("it has two anchors `{name}`"));
                }
            }
            fields.values().try_for_each(|field| check_anchors(field, names))
        }
        _ => Ok(()),
    }
}

fn find_anchor<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| find_anchor(item, name)),
        Value::Object(fields) => {
            let named = |key| fields.get(key).and_then(Value::as_str) == Some(name);
            if named("$anchor") || named("$dynamicAnchor") {
                return Some(value);
            }
            fields.values().find_map(|value| find_anchor(value, name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn doubling(levels: usize) -> Value {
        let mut definitions = Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
            definitions.insert(format!("a{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert(format!("a{levels}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/a0", "$defs": definitions})
    }

    #[test]
    fn references_that_multiply_are_refused() {
        assert_eq!(check_extent(&doubling(5)), Ok(()));
        assert!(check_extent(&doubling(20)).is_err());
        assert!(check_extent(&doubling(60)).is_err());
    }

    #[test]
    fn cycles_anchors_and_literals_are_fine() {
        for schema in [
            json!({"properties": {"children": {"items": {"$ref": "#"}}}}),
            json!({"$id": "https://example.com/x", "$ref": "#a", "$defs": {"x": {"$anchor": "a"}}}),
            json!({"const": {"$ref": "https://example.com"}}),
            json!({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}}),
        ] {
            assert_eq!(check_extent(&schema), Ok(()), "{schema}");
        }
        assert!(check_extent(&json!({"items": {"$id": "x"}})).is_err());
    }

    #[test]
    fn a_reference_that_could_lead_to_two_places_is_refused() {
        let two = json!({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}, "$ref": "#x"});
        assert!(check_extent(&two).unwrap_err().contains("two anchors"));
        let encoded = json!({"$defs": {"%41": {}, "A": {}}, "$ref": "#/$defs/%41"});
        assert!(check_extent(&encoded).unwrap_err().contains("leads nowhere"));
        let draft4 = json!({"properties": {"a": {"id": "http://localhost/x", "$ref": "#/b"}}});
        assert!(check_extent(&draft4).is_err());
        assert_eq!(check_extent(&json!({"properties": {"id": {"type": "string"}}})), Ok(()));
    }

    #[test]
    fn a_long_chain_of_references_is_refused() {
        let chain = |length: usize| {
            let next = |index: usize| json!({"$ref": format!("#/$defs/{}", index + 1)});
            let mut parts: Map<String, Value> =
                (0..length).map(|index| (index.to_string(), next(index))).collect();
            parts.insert(length.to_string(), json!({}));
            json!({"$ref": "#/$defs/0", "$defs": parts})
        };
        assert_eq!(check_extent(&chain(300)), Ok(()));
        assert!(check_extent(&chain(1_500)).unwrap_err().contains("too deep"));
    }
}
