//! A path within the working directory, as rules and the kernel see it.

use std::fmt;

/// A path relative to the directory, without `.`, `..` and doubled slashes. Rules are matched
/// against this text and the kernel opens it, so both always agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RelPath(String);

/// The error for a path that leads above the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EscapesRoot;

impl RelPath {
    /// Returns the path of the directory itself.
    pub(crate) fn root() -> Self {
        Self(".".to_owned())
    }

    /// Normalises a path by its text alone: `a/../b` is `b`, even where `a` is a link.
    pub(crate) fn parse(path: &str) -> Result<Self, EscapesRoot> {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => (),
                ".." => drop(parts.pop().ok_or(EscapesRoot)?),
                part => parts.push(part),
            }
        }
        Ok(Self::from_names(parts))
    }

    /// Joins plain names.
    pub(crate) fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        if names.is_empty() { Self::root() } else { Self(names.join("/")) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0 == "."
    }

    pub(crate) fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| *name != ".")
    }

    /// Returns the parent and the last name. The directory itself has neither.
    pub(crate) fn split(&self) -> Option<(Self, &str)> {
        let mut names = self.names();
        let last = names.next_back()?;
        Some((Self::from_names(names), last))
    }

    pub(crate) fn join(&self, name: &str) -> Self {
        Self::from_names(self.names().chain([name]))
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_by_their_text() {
        for (path, expect) in [
            ("a", Some("a")),
            ("./a//b/", Some("a/b")),
            ("src/../.env", Some(".env")),
            ("", Some(".")),
            ("a/..", Some(".")),
            ("..", None),
            ("a/../../b", None),
            ("...", Some("...")),
        ] {
            let parsed = RelPath::parse(path).ok();
            assert_eq!(parsed.as_ref().map(RelPath::as_str), expect, "{path}");
        }
        assert_eq!(RelPath::root().split(), None);
        let (directory, name) = RelPath::parse("a")
            .map(|path| path.split().map(|(f, n)| (f, n.to_owned())))
            .ok()
            .flatten()
            .unwrap();
        assert_eq!((directory, name.as_str()), (RelPath::root(), "a"));
    }
}
