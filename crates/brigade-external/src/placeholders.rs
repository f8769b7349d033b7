//! Words and JSON lines with placeholders, such as `{session_id}`.
//!
//! A placeholder is a name of lower-case letters and `_` in braces. Other braces are text. The
//! inserted text is not searched for placeholders.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The texts of the placeholders. A placeholder without an entry has no value.
pub(crate) type PlaceholderValues<'a> = BTreeMap<&'a str, Cow<'a, str>>;

/// A list of arguments with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct WordList {
    items: Vec<WordItem>,
}

/// A word, or words that are omitted together if one of their placeholders has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WordItem {
    Word(String),
    Group(Vec<String>),
}

impl WordList {
    /// Returns the words with the values inserted. The result is the name of a placeholder that has
    /// no value outside of a group.
    pub(crate) fn expand(&self, values: &PlaceholderValues<'_>) -> Result<Vec<String>, String> {
        let mut expanded = Vec::new();
        for item in &self.items {
            match item {
                WordItem::Word(word) => expanded.push(expand_word(word, values)?),
                WordItem::Group(group) => {
                    let group = group.iter().map(|word| expand_word(word, values));
                    expanded.extend(group.collect::<Result<Vec<_>, _>>().unwrap_or_default());
                }
            }
        }
        Ok(expanded)
    }

    /// Returns the words with this word replaced by others.
    pub(crate) fn splice(&self, marker: &str, inserted: &[String]) -> Self {
        let mut items = Vec::new();
        for item in &self.items {
            match item {
                WordItem::Word(word) if word == marker => {
                    items.extend(inserted.iter().cloned().map(WordItem::Word));
                }
                other => items.push(other.clone()),
            }
        }
        Self { items }
    }

    /// Returns the names of all placeholders.
    pub(crate) fn placeholders(&self) -> Vec<&str> {
        let words = self.items.iter().flat_map(|item| match item {
            WordItem::Word(word) => std::slice::from_ref(word),
            WordItem::Group(group) => group.as_slice(),
        });
        words.flat_map(|word| find_placeholders(word)).collect()
    }
}

/// Returns the word with the values inserted, or the name of a placeholder without a value.
pub(crate) fn expand_word(word: &str, values: &PlaceholderValues<'_>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut remaining = word;
    while let Some(found) = find_placeholder(remaining) {
        expanded.push_str(&remaining[..found.start]);
        let value = values.get(found.name).ok_or_else(|| found.name.to_owned())?;
        expanded.push_str(value);
        remaining = &remaining[found.end..];
    }
    expanded.push_str(remaining);
    Ok(expanded)
}

/// A placeholder in a text, with the offsets of its braces.
struct FoundPlaceholder<'a> {
    name: &'a str,
    start: usize,
    end: usize,
}

fn find_placeholder(text: &str) -> Option<FoundPlaceholder<'_>> {
    for (start, _) in text.match_indices('{') {
        let after = &text[start + 1..];
        let Some(length) = after.find('}') else { continue };
        let name = &after[..length];
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            return Some(FoundPlaceholder { name, start, end: start + length + 2 });
        }
    }
    None
}

fn find_placeholders(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut remaining = text;
    while let Some(found) = find_placeholder(remaining) {
        names.push(found.name);
        remaining = &remaining[found.end..];
    }
    names
}

impl<'de> Deserialize<'de> for WordItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;

        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = WordItem;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list of words")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<WordItem, E> {
                Ok(WordItem::Word(word.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<WordItem, A::Error> {
                let mut group = Vec::new();
                while let Some(word) = words.next_element()? {
                    group.push(word);
                }
                Ok(WordItem::Group(group))
            }
        }

        deserializer.deserialize_any(ItemVisitor)
    }
}

/// A JSON value with placeholders. A string that is only a placeholder is replaced by its value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct JsonTemplate {
    template: Value,
}

impl JsonTemplate {
    /// Returns the value as one line of JSON.
    pub(crate) fn render_line(&self, values: &BTreeMap<&str, Value>) -> Vec<u8> {
        let mut line = render(&self.template, values).to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// Returns the names of all placeholders.
    pub(crate) fn placeholders(&self) -> Vec<&str> {
        let mut names = Vec::new();
        collect_placeholders(&self.template, &mut names);
        names
    }
}

fn render(template: &Value, values: &BTreeMap<&str, Value>) -> Value {
    match template {
        Value::String(text) => match whole_placeholder(text).and_then(|name| values.get(name)) {
            Some(value) => value.clone(),
            None => template.clone(),
        },
        Value::Array(items) => items.iter().map(|item| render(item, values)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(name, field)| (name.clone(), render(field, values))).collect()
        }
        other => other.clone(),
    }
}

fn collect_placeholders<'a>(template: &'a Value, names: &mut Vec<&'a str>) {
    match template {
        Value::String(text) => names.extend(whole_placeholder(text)),
        Value::Array(items) => items.iter().for_each(|item| collect_placeholders(item, names)),
        Value::Object(fields) => {
            fields.values().for_each(|field| collect_placeholders(field, names));
        }
        _ => {}
    }
}

fn whole_placeholder(text: &str) -> Option<&str> {
    let found = find_placeholder(text)?;
    (found.start == 0 && found.end == text.len()).then_some(found.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn word_list(items: Value) -> WordList {
        serde_json::from_value(items).unwrap()
    }

    #[test]
    fn values_are_inserted_once() {
        let list = word_list(json!(["run", "--id={id}", "{\"a\":1}", "{prompt}"]));
        let values = PlaceholderValues::from([("id", "7".into()), ("prompt", "say {id}".into())]);
        assert_eq!(list.expand(&values).unwrap(), ["run", "--id=7", "{\"a\":1}", "say {id}"]);
        assert_eq!(list.placeholders(), ["id", "prompt"]);
    }

    #[test]
    fn a_group_without_its_value_is_omitted() {
        let list = word_list(json!(["run", ["--model", "{model}"], "end"]));
        assert_eq!(list.expand(&PlaceholderValues::new()).unwrap(), ["run", "end"]);
        let values = PlaceholderValues::from([("model", "m".into())]);
        assert_eq!(list.expand(&values).unwrap(), ["run", "--model", "m", "end"]);
        let list = word_list(json!(["{model}"]));
        assert_eq!(list.expand(&PlaceholderValues::new()).unwrap_err(), "model");
    }

    #[test]
    fn a_marker_is_replaced_by_words() {
        let list = word_list(json!(["a", "{access}", "b"]));
        let spliced = list.splice("{access}", &["-s".to_owned(), "x".to_owned()]);
        assert_eq!(spliced, word_list(json!(["a", "-s", "x", "b"])));
        assert_eq!(list.splice("{access}", &[]), word_list(json!(["a", "b"])));
    }

    #[test]
    fn a_template_takes_whole_values() {
        let template = json!({"id": "{id}", "input": "{arguments}", "text": "no {id}", "n": [1]});
        let template: JsonTemplate = serde_json::from_value(template).unwrap();
        let values = BTreeMap::from([("id", json!("{id}")), ("arguments", json!({"a": [1]}))]);
        let line = template.render_line(&values);
        assert!(line.ends_with(b"\n"));
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line, json!({"id": "{id}", "input": {"a": [1]}, "text": "no {id}", "n": [1]}));
        assert_eq!(template.placeholders(), ["id", "arguments"]);
    }
}
