//! Names for people and keys for programs, with their validation.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name_letters::{check_letters, compose, fold_case, is_letter};
use crate::plain_text::is_invisible;
use crate::refusal::Refusal;
use crate::truncate::truncate_chars;

/// The maximum length of a name in characters.
pub const NAME_MAX: usize = 64;
/// The maximum length of a name in bytes, at four bytes per character.
pub const NAME_BYTES_MAX: usize = 4 * NAME_MAX;
pub const KEY_MAX: usize = 256;
pub const SESSION_NAME_MAX: usize = 1024;

const RESERVED: [&str; 4] = ["parent", "self", "all", "broadcast"];

/// Defines a shared string type that is validated when it is created and when it is deserialized.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Refusal;

            fn try_from(text: String) -> Result<Self, Refusal> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0.as_ref().into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

checked_text! {
    /// The name of a task for people, such as "Test Runner". It is unique among the alive children
    /// of one parent, ignoring case.
    TaskName
}

impl TaskName {
    /// Returns the form in which names are compared.
    pub fn folded(&self) -> String {
        fold_case(&self.0)
    }

    pub fn same_as(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
            || !(self.0.is_ascii() && other.0.is_ascii()) && self.folded() == other.folded()
    }
}

impl FromStr for TaskName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        check_name(text).map(|name| Self(name.into())).map_err(|problem| {
            Refusal::invalid(format!("the name {:?} {problem}", truncate_chars(text, NAME_MAX)))
        })
    }
}

/// Returns the name in its stored form, or a description of the problem.
fn check_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    // In decomposed form, one character can consist of several code points.
    if text.len() > 4 * NAME_BYTES_MAX {
        let letters = text.chars().count();
        return Err(format!("is {letters} characters long; the maximum is {NAME_MAX}"));
    }
    let text = compose(text);
    let letters = text.chars().count();
    if letters > NAME_MAX {
        return Err(format!("is {letters} characters long; the maximum is {NAME_MAX}"));
    }
    if !text.starts_with(is_letter) {
        return Err("must start with a letter".to_owned());
    }
    check_letters(&text)?;
    if text.ends_with(' ') {
        return Err("ends with a space".to_owned());
    }
    if RESERVED.contains(&fold_case(&text).as_str()) {
        return Err("is reserved; choose another".to_owned());
    }
    Ok(text)
}

/// Checks the name of a message: 1 to [`NAME_MAX`] visible characters, without a space at either
/// end. It is compared exactly.
pub fn check_message_name(text: &str) -> Result<(), Refusal> {
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > NAME_BYTES_MAX || text.chars().count() > NAME_MAX {
        format!("is {} characters long; the maximum is {NAME_MAX}", text.chars().count())
    } else if text.chars().any(|c| c.is_control() || is_invisible(c)) {
        "contains a control or invisible character".to_owned()
    } else if text.contains(['\u{2028}', '\u{2029}']) {
        "contains a line break".to_owned()
    } else if text.trim() != text {
        "starts or ends with a space".to_owned()
    } else {
        return Ok(());
    };
    Err(Refusal::invalid(format!(
        "the message name {:?} {problem}",
        truncate_chars(text, NAME_MAX)
    )))
}

checked_text! {
    /// A key that identifies a spawn or a message, so that a repeated request returns the same
    /// task or message.
    IdempotencyKey
}

impl FromStr for IdempotencyKey {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let problem = if text.is_empty() {
            "is empty".to_owned()
        } else if text.len() > KEY_MAX {
            format!("is {} bytes long; the maximum is {KEY_MAX}", text.len())
        } else if text.chars().any(char::is_control) {
            "contains a control character".to_owned()
        } else {
            return Ok(Self(text.into()));
        };
        Err(Refusal::invalid(format!("the key {:?} {problem}", truncate_chars(text, NAME_MAX))))
    }
}

checked_text! {
    /// The name of a session: any printable text, such as a directory's path.
    SessionName
}

impl FromStr for SessionName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let problem = if text.trim().is_empty() {
            "is blank".to_owned()
        } else if text.len() > SESSION_NAME_MAX {
            format!("is {} bytes long; the maximum is {SESSION_NAME_MAX}", text.len())
        } else if text.chars().any(char::is_control) {
            "contains a control character".to_owned()
        } else {
            return Ok(Self(text.into()));
        };
        Err(Refusal::invalid(format!(
            "the session name {:?} {problem}",
            truncate_chars(text, NAME_MAX)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<(), &str>) {
        match (text.parse::<TaskName>(), expect) {
            (Ok(name), Ok(())) => assert_eq!(name.as_str(), text),
            (Err(refusal), Err(part)) => {
                assert!(refusal.to_string().contains(part), "{refusal} lacks {part:?}");
            }
            (got, expect) => panic!("{text:?}: got {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn task_names_are_validated() {
        check("Test Runner", Ok(()));
        check("a", Ok(()));
        check("v1.2-rc_3", Ok(()));
        check(&"a".repeat(64), Ok(()));
        check(&"a".repeat(65), Err("65 characters long; the maximum is 64"));
        check("", Err("is empty"));
        check("3 little pigs", Err("must start with a letter"));
        check(" a", Err("must start with a letter"));
        check("a ", Err("ends with a space"));
        check("a/b", Err("contains '/'"));
        check("a\nb", Err("contains '\\n'"));
        for word in ["parent", "Self", "ALL", "broadcast"] {
            check(word, Err("is reserved"));
        }
    }

    #[test]
    fn names_may_use_any_script() {
        for name in [
            "naïve",
            "Prüferin",
            "日本語",
            "テスト サーバー",
            "서버 漢字",
            "Проверка 2",
            "Ελένη",
            "שרת",
            "خادم",
            "परीक्षण",
            "ทดสอบ",
            "日本語 test",
            "web-サーバー",
            "Đặng Thị",
            "Кот_cat.v2",
        ] {
            check(name, Ok(()));
        }
        check(&"ü".repeat(64), Ok(()));
        check(&"日".repeat(64), Ok(()));
        check(&"𠮷".repeat(64), Ok(()));
        check(&"ü".repeat(65), Err("65 characters long; the maximum is 64"));
        check(&"ü".repeat(100_000), Err("100000 characters long; the maximum is 64"));
        assert_eq!("u\u{308}ber".parse::<TaskName>().unwrap().as_str(), "über", "it is composed");
    }

    #[test]
    fn deceptive_names_are_refused() {
        for (name, part) in [
            ("p\u{430}ypal", "mixes alphabets in one word: 'p' (U+0070) and 'а' (U+0430)"),
            ("Ωmega", "put a space between them"),
            ("日本語test", "mixes alphabets"),
            ("Test\u{200b}Runner", "the invisible character U+200B"),
            ("Test\u{202e}Runner", "the invisible character U+202E"),
            ("Te\u{ad}st", "the invisible character U+00AD"),
            ("a\u{3164}b", "the invisible character U+3164"),
            ("a\u{fe0f}", "the invisible character U+FE0F"),
            ("\u{3164}", "must start with a letter"),
            ("\u{301}a", "must start with a letter"),
            ("𝐀dmin", "must start with a letter"),
            ("a𝐀", "contains '𝐀'"),
            ("aＡ", "contains 'Ａ'"),
            ("a😀", "contains '😀'"),
            ("a\u{a0}b", "contains '\\u{a0}'"),
            ("a\u{7f}", "contains '\\u{7f}'"),
            ("x𝟏", "contains '𝟏'"),
            ("x\u{335}\u{335}\u{335}\u{335}\u{335}", "more than 4 marks on one letter"),
        ] {
            check(name, Err(part));
        }
    }

    #[test]
    fn names_are_compared_without_case() {
        let same = |one: &str, other: &str| {
            let one: TaskName = one.parse().unwrap();
            let other: TaskName = other.parse().unwrap();
            assert_eq!(one.same_as(&other), one.folded() == other.folded());
            one.same_as(&other)
        };
        for (one, other) in [
            ("Test", "tEST"),
            ("ÜBER", "über"),
            ("ΟΔΟΣ", "οδος"),
            ("Straße", "STRASSE"),
            ("u\u{308}ber", "Über"),
        ] {
            assert!(same(one, other), "{one} {other}");
        }
        assert!(!same("uber", "über"));
        assert!(!same("Test", "Tests"));
    }

    #[test]
    fn an_overlong_name_is_truncated_in_the_error() {
        let refusal = "a".repeat(1_000_000).parse::<TaskName>().unwrap_err();
        assert!(refusal.to_string().len() < 300);
    }

    #[test]
    fn message_names_are_validated() {
        for good in ["approval", "order/paid: 17", "übergabe", &"n".repeat(64)] {
            assert_eq!(check_message_name(good), Ok(()), "{good:?}");
        }
        for (bad, part) in [
            ("", "is empty"),
            (" approval", "starts or ends with a space"),
            ("appro\u{200b}val", "invisible"),
            ("a\nb", "control"),
            ("a\u{2028}b", "line break"),
            (&"n".repeat(65), "65 characters long; the maximum is 64"),
        ] {
            let refusal = check_message_name(bad).unwrap_err();
            assert!(refusal.message.contains(part), "{refusal}");
        }
    }

    #[test]
    fn keys_are_validated() {
        assert!("".parse::<IdempotencyKey>().is_err());
        assert!("a\0b".parse::<IdempotencyKey>().is_err());
        assert!("k".repeat(257).parse::<IdempotencyKey>().is_err());
        assert!("any /printable: text".parse::<IdempotencyKey>().is_ok());
    }
}
