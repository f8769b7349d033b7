//! A path within the working directory, as rules and the kernel see it.

use std::fmt;

/// Relative to the directory, without `.`, `..` and doubled slashes. What a permission is held
/// against and what is opened are this same text, so they cannot disagree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RelPath(String);

/// The path goes above the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EscapesRoot;

impl RelPath {
    /// The directory itself.
    pub(crate) fn root() -> Self {
        Self(".".to_owned())
    }

    /// What a path below the directory means, read as it is written: `a/../b` is `b`, even where `a`
    /// is a link.
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

    /// Of plain names.
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

    /// The folder that it is in, and its name there. The directory itself has neither.
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
    fn paths_are_read_as_they_are_written() {
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
            let read = RelPath::parse(path).ok();
            assert_eq!(read.as_ref().map(RelPath::as_str), expect, "{path}");
        }
        assert_eq!(RelPath::root().split(), None);
        let (folder, name) = RelPath::parse("a")
            .map(|path| path.split().map(|(f, n)| (f, n.to_owned())))
            .ok()
            .flatten()
            .unwrap();
        assert_eq!((folder, name.as_str()), (RelPath::root(), "a"));
    }
}
