//! Paths into JSON, such as `message.content[].text`.

use serde::Deserialize;
use serde_json::Value;

/// A path into a JSON value. Its segments are separated by dots: `name` is a field of an object,
/// `name[]` is each element of the array in that field, and `*` is each value of an object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct JsonPath {
    segments: Vec<PathSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathSegment {
    Field(String),
    Elements,
    Values,
}

impl TryFrom<String> for JsonPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut segments = Vec::new();
        for part in text.split('.') {
            let name = part.strip_suffix("[]");
            match name.unwrap_or(part) {
                "*" => segments.push(PathSegment::Values),
                field if is_field_name(field) => segments.push(PathSegment::Field(field.into())),
                _ => return Err(format!("`{text}` is not a path; write it like `a.b[].c`")),
            }
            if name.is_some() {
                segments.push(PathSegment::Elements);
            }
        }
        Ok(Self { segments })
    }
}

fn is_field_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'))
}

impl JsonPath {
    /// Returns all values at this path, in order. `null` is no value.
    pub(crate) fn select<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for segment in &self.segments {
            found = found.into_iter().flat_map(|value| segment.select(value)).collect();
        }
        found.retain(|value| !value.is_null());
        found
    }

    /// Returns the first value at this path.
    pub(crate) fn find<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.select(root).into_iter().next()
    }
}

impl PathSegment {
    fn select<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Elements => value.as_array().into_iter().flatten().collect(),
            Self::Values => value.as_object().into_iter().flat_map(|map| map.values()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn select(path: &str, value: &Value) -> Vec<Value> {
        let path = JsonPath::try_from(path.to_owned()).unwrap();
        path.select(value).into_iter().cloned().collect()
    }

    #[test]
    fn a_path_selects_fields_elements_and_values() {
        let value = json!({
            "message": {"content": [{"text": "a"}, {"other": 1}, {"text": "b"}, {"text": null}]},
            "models": {"x": {"tokens": 1}, "y": {"tokens": 2}},
        });
        assert_eq!(select("message.content[].text", &value), [json!("a"), json!("b")]);
        assert_eq!(select("models.*.tokens", &value), [json!(1), json!(2)]);
        assert_eq!(select("message.content.text", &value), [] as [Value; 0]);
        assert_eq!(select("message.missing[].text", &value), [] as [Value; 0]);
        assert_eq!(select("models.x", &value), [json!({"tokens": 1})]);
    }

    #[test]
    fn a_text_that_is_not_a_path_is_refused() {
        for text in ["", "a..b", ".a", "a.", "a[0]", "a[", "a b", "[]"] {
            assert!(JsonPath::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
