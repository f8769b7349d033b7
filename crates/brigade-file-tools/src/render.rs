//! Texts about files for the model: names, sizes, kinds and errors.

use std::io::{self, Read};

use brigade_model::suggestion::did_you_mean;
use rustix::fs::Dir;
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use crate::call_deadline::{Aborted, CallDeadline};
use crate::confined_dir::{ConfinedDir, OpenFileError};
use crate::rel_path::RelPath;
use brigade_agent::tool::ToolError;

/// The maximum size of a reply about files. It is below the limit of a tool result, which would be
/// truncated in the middle.
pub(crate) const BODY_MAX: usize = 40_000;

/// The maximum number of names searched for a suggestion.
const NAMES_MAX: usize = 10_000;

/// The size of the prefix that determines whether a file is text.
pub(crate) const SNIFF_BYTES: usize = 8_192;

/// Quotes a name, on one line.
pub(crate) fn quote_name(name: &str) -> String {
    format!("`{}`", escape_control_chars(name))
}

/// Escapes control characters, so that a name is one line.
pub(crate) fn escape_control_chars(name: &str) -> String {
    if !name.chars().any(char::is_control) {
        return name.to_owned();
    }
    name.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() })
        .collect()
}

/// Renders a count, such as `1 byte` or `12 lines`.
pub(crate) fn pluralize(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns the digest with which a later call checks the content.
pub(crate) fn content_digest(content: &[u8]) -> String {
    format!("{:016x}", xxh3_64(content))
}

/// Returns the kind of a file that is not text.
pub(crate) fn binary_kind(beginning: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 16] = [
        (b"\x7fELF", "an ELF program or library"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive, or a document in one"),
        (b"\x1f\x8b", "gzip data"),
        (b"(\xb5\x2f\xfd", "zstd data"),
        (b"\xfd7zXZ\x00", "xz data"),
        (b"BZh", "bzip2 data"),
        (b"SQLite format 3\x00", "an SQLite database"),
        (b"\x00asm", "a WebAssembly module"),
        (b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
        (b"MZ", "a Windows program"),
        (b"\xff\xfe", "UTF-16 text, which search_files can search"),
        (b"\xfe\xff", "UTF-16 text, which search_files can search"),
    ];
    let beginning = &beginning[..beginning.len().min(SNIFF_BYTES)];
    // Text may begin with such letters, but it contains no zero bytes.
    let is_binary = beginning.contains(&0) || beginning.starts_with(b"\x1f\x8b");
    let kind = KINDS.iter().find(|(magic, _)| beginning.starts_with(magic));
    is_binary.then(|| kind.map_or("of an unknown kind", |(_, kind)| kind))
}

/// Returns the error for a missing path, with a suggestion at the deepest existing directory.
pub(crate) fn missing_error(root: &ConfinedDir, name: &RelPath) -> ToolError {
    let Some((mut directory, mut last)) =
        name.split().map(|(directory, last)| (directory, last.to_owned()))
    else {
        return ToolError::new("your directory does not exist");
    };
    let mut missing_kind = "nothing";
    let entries = loop {
        match root.open_directory(&directory) {
            Ok(handle) => break Some(handle),
            Err(Errno::NOENT) => (),
            Err(_) => break None,
        }
        let above = directory.split().map(|(above, name)| (above, name.to_owned()));
        let Some((above, missing)) = above else { break None };
        directory = above;
        last = missing;
        missing_kind = "no directory";
    };
    let names = entries.map(entry_names).unwrap_or_default();
    let near = did_you_mean(&last, names.iter().map(String::as_str));
    let missing = quote_name(directory.join(&last).as_str());
    let shown_directory = quote_name(directory.as_str());
    let near = match near.is_empty() {
        true => format!("; use list_files on {shown_directory}"),
        false if directory.is_root() => near,
        false => format!("{near} (in {shown_directory})"),
    };
    ToolError::new(format!("there is {missing_kind} at {missing}{near}"))
}

fn entry_names(directory: std::os::fd::OwnedFd) -> Vec<String> {
    let entries = Dir::new(directory).into_iter().flatten().flatten().take(NAMES_MAX);
    let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| !matches!(name.as_str(), "." | "..")).collect()
}

/// Returns the error for an errno.
pub(crate) fn errno_error(root: &ConfinedDir, name: &RelPath, errno: Errno) -> ToolError {
    let shown = quote_name(name.as_str());
    ToolError::new(match errno {
        Errno::NOENT => return missing_error(root, name),
        Errno::LOOP | Errno::AGAIN | Errno::XDEV => {
            format!("{shown} changed during the call: a part of it became a link; try again")
        }
        Errno::NOTDIR => format!("{shown}: a parent of it is not a directory"),
        Errno::ACCESS | Errno::PERM => format!("{shown}: the operating system does not permit it"),
        Errno::NAMETOOLONG => format!("{shown}: a name in it is too long; use at most 255 bytes"),
        errno => format!("{shown}: {}", io::Error::from(errno)),
    })
}

pub(crate) fn open_file_error(
    root: &ConfinedDir,
    name: &RelPath,
    error: OpenFileError,
) -> ToolError {
    let shown = quote_name(name.as_str());
    match error {
        OpenFileError::Errno(errno) => errno_error(root, name, errno),
        OpenFileError::Directory => {
            ToolError::new(format!("{shown} is a directory; use list_files"))
        }
        OpenFileError::Special(kind) => {
            ToolError::new(format!("{shown} is {kind}; the file tools use plain files only"))
        }
    }
}

/// Returns the error for a failed or aborted read.
pub(crate) fn read_error(name: &RelPath, error: &io::Error, deadline: &CallDeadline) -> ToolError {
    let shown = quote_name(name.as_str());
    match deadline.aborted() {
        Some(Aborted::Cancelled) => ToolError::new("the call was cancelled"),
        Some(Aborted::TimedOut) => {
            ToolError::new(format!("{shown} takes too long to read; read a part with `offset`"))
        }
        None => ToolError::new(format!("{shown} cannot be read: {error}")),
    }
}

/// Reads a whole file up to this size.
pub(crate) fn read_whole_file(
    root: &ConfinedDir,
    name: &RelPath,
    max: usize,
) -> Result<(Vec<u8>, rustix::fs::Stat), ToolError> {
    let (file, stat) = root.open_file(name).map_err(|error| open_file_error(root, name, error))?;
    let mut content = Vec::new();
    let read = file.take(max as u64 + 1).read_to_end(&mut content);
    read.map_err(|error| {
        ToolError::new(format!("{} cannot be read: {error}", quote_name(name.as_str())))
    })?;
    if content.len() > max {
        let shown = quote_name(name.as_str());
        return Err(ToolError::new(format!("{shown} is too large; the maximum is {max} bytes")));
    }
    Ok((content, stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_files_are_recognised() {
        for (beginning, expect) in [
            (&b"plain"[..], None),
            (b"", None),
            (b"MZ is how my text begins", None),
            (b"\x7fELF\x02\x00", Some("an ELF program or library")),
            (b"a\x00b", Some("of an unknown kind")),
            (b"\xff\xfea\x00", Some("UTF-16 text, which search_files can search")),
        ] {
            assert_eq!(binary_kind(beginning), expect, "{beginning:?}");
        }
    }

    #[test]
    fn a_name_is_one_line() {
        assert_eq!(quote_name("a\nb\u{1b}[1m"), "`a\\nb\\u{1b}[1m`");
    }
}
