//! How large a schema is once its references are followed.
//!
//! A few definitions that each refer twice to the next are small to read and endless to check: a
//! check goes through every way from the root, so the ways are counted before.

use std::collections::HashMap;

use serde_json::Value;

/// Parts of a schema over all ways to them. What is far above is an attack or a mistake.
pub(super) const EXTENT_MAX: u64 = 100_000;

/// These hold values, not schemas.
const LITERAL: [&str; 4] = ["const", "enum", "default", "examples"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut extent = Extent { root: schema, known: HashMap::new() };
    let parts = extent.of(schema)?;
    if parts > EXTENT_MAX {
        return Err("its references multiply to more than can be checked".to_owned());
    }
    Ok(())
}

struct Extent<'a> {
    root: &'a Value,
    /// By reference; one that is still being counted counts as nothing, since a cycle ends with the
    /// value that is checked.
    known: HashMap<&'a str, u64>,
}

impl<'a> Extent<'a> {
    fn of(&mut self, value: &'a Value) -> Result<u64, String> {
        let mut parts: u64 = 1;
        match value {
            Value::Array(items) => {
                for item in items {
                    parts = parts.saturating_add(self.of(item)?);
                }
            }
            Value::Object(fields) => {
                let nested = !std::ptr::eq(self.root, value);
                for (key, value) in fields {
                    let more = match value {
                        Value::String(target) if REFERENCES.contains(&key.as_str()) => {
                            self.target(target)?
                        }
                        Value::String(_) if key == "$id" && nested => {
                            return Err("only the whole schema may have an `$id`".to_owned());
                        }
                        _ if LITERAL.contains(&key.as_str()) => 1,
                        // Counted where something refers to them.
                        _ if key == "$defs" || key == "definitions" => 1,
                        value => self.of(value)?,
                    };
                    parts = parts.saturating_add(more);
                }
            }
            _ => (),
        }
        Ok(parts)
    }

    fn target(&mut self, reference: &'a str) -> Result<u64, String> {
        if let Some(known) = self.known.get(reference) {
            return Ok(*known);
        }
        let Some(target) = self.find(reference) else {
            return Err(format!(
                "`{reference}` leads nowhere in it; a reference is `#`, `#/$defs/name` or `#anchor`"
            ));
        };
        self.known.insert(reference, 0);
        let parts = self.of(target)?;
        self.known.insert(reference, parts);
        Ok(parts)
    }

    fn find(&self, reference: &str) -> Option<&'a Value> {
        let place = reference.strip_prefix('#')?;
        if place.is_empty() || place.starts_with('/') {
            return self.root.pointer(&place.replace("%24", "$").replace("%25", "%"));
        }
        anchored(self.root, place)
    }
}

fn anchored<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| anchored(item, name)),
        Value::Object(fields) => {
            let named = |key| fields.get(key).and_then(Value::as_str) == Some(name);
            if named("$anchor") || named("$dynamicAnchor") {
                return Some(value);
            }
            fields.values().find_map(|value| anchored(value, name))
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
        assert_eq!(check(&doubling(5)), Ok(()));
        assert!(check(&doubling(20)).is_err());
        assert!(check(&doubling(60)).is_err());
    }

    #[test]
    fn cycles_anchors_and_literals_are_fine() {
        for schema in [
            json!({"properties": {"below": {"items": {"$ref": "#"}}}}),
            json!({"$id": "https://example.com/x", "$ref": "#a", "$defs": {"x": {"$anchor": "a"}}}),
            json!({"const": {"$ref": "https://example.com"}}),
            json!({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
        assert!(check(&json!({"items": {"$id": "x"}})).is_err());
    }
}
