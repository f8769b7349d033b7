//! Names for people and keys for programs, and what is allowed in them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

pub const NAME_MAX: usize = 64;
pub const KEY_MAX: usize = 256;
pub const SESSION_NAME_MAX: usize = 1024;

const RESERVED: [&str; 4] = ["parent", "self", "all", "broadcast"];

/// A shared text that was checked when it was made, and is checked again when it is read back.
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
    /// What people call a task: "Test Runner". Unique among the living children of one parent,
    /// without regard to case.
    Name
}

impl Name {
    /// The form in which names are compared.
    pub fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }

    pub fn same_as(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl FromStr for Name {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let problem = if text.is_empty() {
            "is empty".to_owned()
        } else if text.len() > NAME_MAX {
            format!("is {} characters long; {NAME_MAX} is the most", text.chars().count())
        } else if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            "must start with a letter".to_owned()
        } else if let Some(odd) = text.chars().find(|c| !allowed_in_name(*c)) {
            format!("contains {odd:?}; letters, digits, spaces, '-', '_' and '.' are allowed")
        } else if text.ends_with(' ') {
            "ends with a space".to_owned()
        } else if RESERVED.iter().any(|word| word.eq_ignore_ascii_case(text)) {
            "is reserved; choose another".to_owned()
        } else {
            return Ok(Self(text.into()));
        };
        Err(Refusal::invalid(format!("the name {:?} {problem}", clip(text, NAME_MAX))))
    }
}

fn allowed_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.')
}

checked_text! {
    /// What makes a spawn the same spawn when it is asked for again.
    Key
}

impl FromStr for Key {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let problem = if text.is_empty() {
            "is empty".to_owned()
        } else if text.len() > KEY_MAX {
            format!("is {} bytes long; {KEY_MAX} is the most", text.len())
        } else if text.chars().any(char::is_control) {
            "contains a control character".to_owned()
        } else {
            return Ok(Self(text.into()));
        };
        Err(Refusal::invalid(format!("the key {:?} {problem}", clip(text, NAME_MAX))))
    }
}

checked_text! {
    /// What a session is called: any printable text, such as a directory's path.
    SessionName
}

impl FromStr for SessionName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let problem = if text.trim().is_empty() {
            "is blank".to_owned()
        } else if text.len() > SESSION_NAME_MAX {
            format!("is {} bytes long; {SESSION_NAME_MAX} is the most", text.len())
        } else if text.chars().any(char::is_control) {
            "contains a control character".to_owned()
        } else {
            return Ok(Self(text.into()));
        };
        Err(Refusal::invalid(format!("the session name {:?} {problem}", clip(text, NAME_MAX))))
    }
}

/// The first `max` characters, so that an error never repeats a megabyte of bad input.
pub(crate) fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<(), &str>) {
        match (text.parse::<Name>(), expect) {
            (Ok(name), Ok(())) => assert_eq!(name.as_str(), text),
            (Err(refusal), Err(part)) => {
                assert!(refusal.to_string().contains(part), "{refusal} lacks {part:?}");
            }
            (got, expect) => panic!("{text:?}: got {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn names_for_people() {
        check("Test Runner", Ok(()));
        check("a", Ok(()));
        check("v1.2-rc_3", Ok(()));
        check(&"a".repeat(64), Ok(()));
        check(&"a".repeat(65), Err("65 characters long; 64 is the most"));
        check("", Err("is empty"));
        check("3 little pigs", Err("must start with a letter"));
        check(" a", Err("must start with a letter"));
        check("a ", Err("ends with a space"));
        check("a/b", Err("contains '/'"));
        check("naïve", Err("contains 'ï'"));
        check("a\nb", Err("contains '\\n'"));
        for word in ["parent", "Self", "ALL", "broadcast"] {
            check(word, Err("is reserved"));
        }
    }

    #[test]
    fn an_overlong_name_is_not_repeated_whole() {
        let refusal = "a".repeat(1_000_000).parse::<Name>().unwrap_err();
        assert!(refusal.to_string().len() < 300);
    }

    #[test]
    fn keys_are_bounded() {
        assert!("".parse::<Key>().is_err());
        assert!("a\0b".parse::<Key>().is_err());
        assert!("k".repeat(257).parse::<Key>().is_err());
        assert!("any /printable: text".parse::<Key>().is_ok());
    }
}
