//! One path or several, and the text or the number that they select.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::json_path::JsonPath;

/// A path, or a list of paths. A text is taken from the first path that has one; a number is the
/// sum over all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathList {
    paths: Vec<JsonPath>,
}

impl PathList {
    /// Returns the first text that is not empty. Several values of one path are joined by lines.
    pub(crate) fn find_text(&self, root: &Value) -> Option<String> {
        let texts = self.paths.iter().map(|path| {
            let values = path.select(root).into_iter().map(render_text);
            values.collect::<Vec<_>>().join("\n")
        });
        texts.into_iter().find(|text| !text.is_empty())
    }

    /// Returns the sum of all numbers, if there is one.
    pub(crate) fn sum(&self, root: &Value) -> Option<f64> {
        let values = self.paths.iter().flat_map(|path| path.select(root));
        let numbers = values.filter_map(Value::as_f64);
        numbers.reduce(|sum, number| sum + number)
    }
}

/// Renders a value as text: a string as it is, a list of content blocks by their texts, and
/// everything else as JSON.
fn render_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(render_text).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => match fields.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => value.to_string(),
        },
        other => other.to_string(),
    }
}

impl<'de> Deserialize<'de> for PathList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;

        impl<'de> Visitor<'de> for ListVisitor {
            type Value = PathList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path or a list of paths")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PathList, E> {
                let path = JsonPath::try_from(text.to_owned()).map_err(E::custom)?;
                Ok(PathList { paths: vec![path] })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<PathList, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = items.next_element()? {
                    paths.push(path);
                }
                Ok(PathList { paths })
            }
        }

        deserializer.deserialize_any(ListVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path_list(paths: Value) -> PathList {
        serde_json::from_value(paths).unwrap()
    }

    #[test]
    fn a_text_is_the_first_that_is_not_empty() {
        let value = json!({
            "empty": "",
            "null": null,
            "errors": ["a", "b"],
            "blocks": [{"type": "text", "text": "c"}, {"type": "image", "id": 1}],
            "number": 4,
        });
        let cases = [
            (json!("errors[]"), Some("a\nb")),
            (json!("errors"), Some("a\nb")),
            (json!(["empty", "null", "missing", "number"]), Some("4")),
            (json!("blocks"), Some("c\n{\"type\":\"image\",\"id\":1}")),
            (json!(["empty", "missing"]), None),
            (json!([]), None),
        ];
        for (paths, expected) in cases {
            assert_eq!(path_list(paths).find_text(&value).as_deref(), expected);
        }
    }

    #[test]
    fn a_number_is_the_sum_of_all() {
        let value = json!({"m": {"x": {"n": 1, "c": 2}, "y": {"n": 10}}, "text": "5"});
        assert_eq!(path_list(json!(["m.*.n", "m.*.c"])).sum(&value), Some(13.0));
        assert_eq!(path_list(json!("m.z.n")).sum(&value), None);
        assert_eq!(path_list(json!("text")).sum(&value), None);
    }

    #[test]
    fn a_wrong_path_is_refused() {
        assert!(serde_json::from_value::<PathList>(json!("a..b")).is_err());
        assert!(serde_json::from_value::<PathList>(json!(["a", "b[0]"])).is_err());
        assert!(serde_json::from_value::<PathList>(json!(1)).is_err());
    }
}
