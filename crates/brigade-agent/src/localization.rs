//! Names and descriptions in other languages, for user interfaces. Models get the original ones.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name and a description in one language. An absent field is as in the original.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocalizedText {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl LocalizedText {
    pub fn is_empty(&self) -> bool {
        self.name.is_none() && self.description.is_none()
    }

    /// Fills absent fields from `other`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            name: self.name.or_else(|| other.name.clone()),
            description: self.description.or_else(|| other.description.clone()),
        }
    }
}

/// A language tag, with a script or region where needed: `de`, `de-AT`, `zh-Hant`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locale(String);

/// The error for a text that is not a language tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no language tag, such as de, de-AT or zh-Hant")]
pub struct LocaleError(String);

impl Locale {
    /// Parses a value of `LANG`, such as `de_AT.UTF-8`. Returns `None` for `C`, `POSIX` and other values
    /// that name no language.
    pub fn of_environment(value: &str) -> Option<Self> {
        let tag = value.split(['.', '@']).next().unwrap_or_default();
        match tag {
            "C" | "POSIX" => None,
            tag => tag.replace('_', "-").parse().ok(),
        }
    }

    /// Returns this tag, then its shorter prefixes: `de-AT`, `de`.
    pub fn from_exact_to_broad(&self) -> impl Iterator<Item = Self> {
        let next = |locale: &Self| Some(Self(locale.0.rsplit_once('-')?.0.to_owned()));
        std::iter::successors(Some(self.clone()), next)
    }
}

impl FromStr for Locale {
    type Err = LocaleError;

    fn from_str(tag: &str) -> Result<Self, LocaleError> {
        let mut parts = Vec::new();
        for (position, part) in tag.split('-').enumerate() {
            let letters = part.chars().all(|c| c.is_ascii_alphabetic());
            let fits = part.chars().all(|c| c.is_ascii_alphanumeric());
            parts.push(match (position, part.len()) {
                (0, 2..=3) if letters => part.to_ascii_lowercase(),
                (1.., 2) if letters => part.to_ascii_uppercase(),
                (1.., 4) if letters => {
                    part[..1].to_ascii_uppercase() + &part[1..].to_ascii_lowercase()
                }
                (1.., 3..=8) if fits => part.to_ascii_lowercase(),
                _ => return Err(LocaleError(tag.to_owned())),
            });
        }
        Ok(Self(parts.join("-")))
    }
}

impl fmt::Display for Locale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the first problem of texts by tag. Its text begins with the tag.
pub(crate) fn find_problem(texts: &BTreeMap<String, LocalizedText>) -> Option<String> {
    let mut known = BTreeMap::new();
    for (tag, text) in texts {
        let locale: Locale = match tag.parse() {
            Ok(locale) => locale,
            Err(error) => return Some(LocaleError::to_string(&error)),
        };
        if let Some(other) = known.insert(locale, tag) {
            return Some(format!("`{tag}` and `{other}` are the same language; remove one"));
        }
        if text.is_empty() {
            return Some(format!("`{tag}` has neither a name nor a description"));
        }
        let blank = |field: &Option<String>| field.as_ref().is_some_and(|it| it.trim().is_empty());
        if blank(&text.name) || blank(&text.description) {
            return Some(format!("`{tag}` has a blank text; write one or remove the field"));
        }
    }
    None
}

/// Returns the name and the description that match the language best, each for itself.
pub(crate) fn find_best_match(
    texts: &BTreeMap<String, LocalizedText>,
    locale: &Locale,
) -> LocalizedText {
    let find_text = |locale: Locale| {
        let found = texts.iter().find(|(tag, _)| tag.parse().as_ref() == Ok(&locale));
        found.map(|(_, text)| text)
    };
    let found = locale.from_exact_to_broad().filter_map(find_text);
    found.fold(LocalizedText::default(), LocalizedText::or)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> LocalizedText {
        LocalizedText { name: Some(name.to_owned()), description: None }
    }

    #[test]
    fn tags_are_read_in_any_spelling_and_nonsense_is_refused() {
        for (tag, expect) in [("de", "de"), ("DE-at", "de-AT"), ("zh-hant-TW", "zh-Hant-TW")] {
            assert_eq!(tag.parse::<Locale>().unwrap().to_string(), expect);
        }
        for tag in ["", "d", "german", "de_AT", "de-", "-de", "de AT", "12"] {
            assert_eq!(tag.parse::<Locale>(), Err(LocaleError(tag.to_owned())), "{tag:?}");
        }
        for (value, expect) in
            [("de_AT.UTF-8", Some("de-AT")), ("C.UTF-8", None), ("POSIX", None), ("", None)]
        {
            let found = Locale::of_environment(value).map(|locale| locale.to_string());
            assert_eq!(found.as_deref(), expect, "{value:?}");
        }
    }

    #[test]
    fn each_text_is_the_best_match() {
        let german = LocalizedText { description: Some("Liest.".to_owned()), ..text("Prüfer") };
        let texts = [("de".to_owned(), german), ("de-AT".to_owned(), text("Leser"))].into();
        let best = |tag: &str| find_best_match(&texts, &tag.parse().unwrap());
        assert_eq!(best("de-AT").name.as_deref(), Some("Leser"));
        assert_eq!(best("de-AT").description.as_deref(), Some("Liest."));
        assert_eq!(best("de-CH").name.as_deref(), Some("Prüfer"));
        assert!(best("fr").is_empty());
    }
}
