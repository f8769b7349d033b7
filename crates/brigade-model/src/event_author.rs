//! Authors of events: labels for people, which decide nothing.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::command::Caller;
use crate::ids::TaskNo;
use crate::plain_text::PlainText;
use crate::truncate::{head_bytes, truncate_chars};

/// The maximum number of characters in a name or an origin.
const TEXT_CHARS_MAX: usize = 128;
/// The part of a foreign text that is examined. A character has at most four bytes.
const TEXT_BYTES_MAX: usize = 8 * TEXT_CHARS_MAX;

/// The author of the command for which an event was decided.
///
/// Kind, name and task follow from the [`Caller`], whose authority the command had. Consequences of
/// a command, such as the start of a queued task, and reports of performers have no author.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventAuthor {
    pub kind: AuthorKind,
    /// The name of a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The task that acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskNo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CallerOrigin>,
}

/// The kind of an author. A newer version may have stored another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Arc<str>")]
#[non_exhaustive]
pub enum AuthorKind {
    Operator,
    Client,
    Task,
    Other(Arc<str>),
}

/// The place from which a caller acts, such as `terminal pts/3` or `token laptop`: one line of plain
/// text of bounded length. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallerOrigin(Arc<str>);

impl EventAuthor {
    /// Returns the author that a caller is.
    pub fn of(caller: &Caller, origin: Option<&CallerOrigin>) -> Self {
        let (kind, name, task) = match caller {
            Caller::Operator => (AuthorKind::Operator, None, None),
            Caller::Client(client) => {
                (AuthorKind::Client, Some(bounded_line(&client.identity.name.0)), None)
            }
            Caller::Task { no, .. } => (AuthorKind::Task, None, Some(*no)),
        };
        Self { kind, name, task, origin: origin.cloned() }
    }

    /// Returns whether this is the author that a caller is.
    pub(crate) fn is_of(&self, caller: &Caller, origin: Option<&CallerOrigin>) -> bool {
        let is_caller = match (&self.kind, caller) {
            (AuthorKind::Operator, Caller::Operator) => true,
            (AuthorKind::Client, Caller::Client(client)) => {
                self.name.as_deref() == Some(&client.identity.name.0)
            }
            (AuthorKind::Task, Caller::Task { no, .. }) => self.task == Some(*no),
            _ => false,
        };
        is_caller && self.origin.as_ref() == origin
    }
}

impl fmt::Display for EventAuthor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(task) = self.task {
            write!(f, " {task}")?;
        }
        match &self.origin {
            Some(origin) => write!(f, ", {origin}"),
            None => Ok(()),
        }
    }
}

impl AuthorKind {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Operator => "operator",
            Self::Client => "client",
            Self::Task => "task",
            Self::Other(kind) => kind,
        }
    }
}

impl From<Arc<str>> for AuthorKind {
    fn from(kind: Arc<str>) -> Self {
        match &*kind {
            "operator" => Self::Operator,
            "client" => Self::Client,
            "task" => Self::Task,
            _ => Self::Other(kind),
        }
    }
}

impl Serialize for AuthorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl CallerOrigin {
    /// Creates an origin. Control characters are replaced, and a long text is truncated.
    pub fn new(text: &str) -> Self {
        Self(bounded_line(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for CallerOrigin {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for CallerOrigin {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Display for CallerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn bounded_line(text: &str) -> Arc<str> {
    let line = PlainText::line(head_bytes(text, TEXT_BYTES_MAX));
    truncate_chars(line.as_str(), TEXT_CHARS_MAX).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Attempt;

    #[test]
    fn an_author_has_the_kind_and_the_name_of_its_caller() {
        let origin = CallerOrigin::new("terminal pts/3");
        let client = Caller::Client("codex".into());
        let task = Caller::Task { no: TaskNo::new(3).expect("a number"), attempt: Attempt(1) };
        for (caller, shown, json) in [
            (
                Caller::Operator,
                "operator, terminal pts/3",
                r#"{"kind":"operator","origin":"terminal pts/3"}"#,
            ),
            (
                client,
                "client codex, terminal pts/3",
                r#"{"kind":"client","name":"codex","origin":"terminal pts/3"}"#,
            ),
            (
                task,
                "task 3, terminal pts/3",
                r#"{"kind":"task","task":3,"origin":"terminal pts/3"}"#,
            ),
        ] {
            let author = EventAuthor::of(&caller, Some(&origin));
            assert_eq!(author.to_string(), shown);
            assert_eq!(serde_json::to_string(&author).unwrap(), json);
            assert_eq!(serde_json::from_str::<EventAuthor>(json).unwrap(), author);
        }
        assert_eq!(EventAuthor::of(&Caller::Operator, None).to_string(), "operator");
    }

    #[test]
    fn foreign_texts_are_plain_and_bounded() {
        let hostile = format!("a\u{1b}[2J\r\nb\u{202e}{}", "x".repeat(10_000));
        for text in [hostile.as_str(), &"\u{1b}".repeat(10_000), &"\u{10348}".repeat(10_000), ""] {
            let origin = CallerOrigin::new(text);
            let author = EventAuthor::of(&Caller::Client(text.into()), Some(&origin));
            for shown in [author.name.as_deref().unwrap(), origin.as_str()] {
                assert!(shown.chars().count() <= TEXT_CHARS_MAX + 1, "{shown}");
                assert_eq!(shown, PlainText::line(shown).as_str());
            }
        }
        assert!(CallerOrigin::new(&hostile).as_str().starts_with("a\u{fffd}[2J  b\u{fffd}xx"));
    }

    #[test]
    fn an_author_of_a_newer_version_can_be_read_and_stored_again() {
        let newer = r#"{"kind":"robot","name":"r2","origin":"orbit","model":"x"}"#;
        let author: EventAuthor = serde_json::from_str(newer).unwrap();
        assert_eq!(author.kind, AuthorKind::Other("robot".into()));
        assert_eq!(author.to_string(), "robot r2, orbit");
        let packed = rmp_serde::to_vec_named(&author).unwrap();
        assert_eq!(rmp_serde::from_slice::<EventAuthor>(&packed).unwrap(), author);
    }
}
