//! What a model is told of files: names, sizes, kinds, and what was wrong.

use std::io::{self, Read};

use brigade_llm::suggestion::did_you_mean;
use rustix::fs::Dir;
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use crate::call_deadline::{Aborted, CallDeadline};
use crate::confined_dir::{ConfinedDir, OpenFileError};
use crate::rel_path::RelPath;
use brigade_agent::tool::ToolError;

/// The most that a tool says of files: less than what a model is told of one call, so that nothing
/// is cut from the middle.
pub(crate) const BODY_MAX: usize = 40_000;

/// Names that are looked through for one that was meant.
const NAMES_MAX: usize = 10_000;

/// So much of a file says whether it is text.
pub(crate) const SNIFF_BYTES: usize = 8_192;

/// A name between marks, on one line whatever is in it.
pub(crate) fn quote_name(name: &str) -> String {
    format!("`{}`", escape_control_chars(name))
}

/// On one line: a name must not look like more than one.
pub(crate) fn escape_control_chars(name: &str) -> String {
    if !name.chars().any(char::is_control) {
        return name.to_owned();
    }
    name.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() })
        .collect()
}

/// `1 byte`, `12 lines`.
pub(crate) fn pluralize(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// By which a later call can say what it expects to find.
pub(crate) fn content_digest(content: &[u8]) -> String {
    format!("{:016x}", xxh3_64(content))
}

/// What a file is if it is not text.
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
    // A text may begin with the letters of some kind, but it has no zero bytes.
    let is_binary = beginning.contains(&0) || beginning.starts_with(b"\x1f\x8b");
    let kind = KINDS.iter().find(|(magic, _)| beginning.starts_with(magic));
    is_binary.then(|| kind.map_or("of an unknown kind", |(_, kind)| kind))
}

/// There is nothing by that name: how far there is something, and what may have been meant.
pub(crate) fn missing_error(root: &ConfinedDir, name: &RelPath) -> ToolError {
    let Some((mut folder, mut last)) = name.split().map(|(folder, last)| (folder, last.to_owned()))
    else {
        return ToolError::new("your directory is not there");
    };
    let mut what = "nothing";
    let entries = loop {
        match root.open_folder(&folder) {
            Ok(handle) => break Some(handle),
            Err(Errno::NOENT) => (),
            Err(_) => break None,
        }
        let above = folder.split().map(|(above, name)| (above, name.to_owned()));
        let Some((above, missing)) = above else { break None };
        (folder, last, what) = (above, missing, "no directory");
    };
    let names = entries.map(entry_names).unwrap_or_default();
    let near = did_you_mean(&last, names.iter().map(String::as_str));
    let missing = quote_name(folder.join(&last).as_str());
    let place = quote_name(folder.as_str());
    let near = match near.is_empty() {
        true => format!("; list_files shows what is in {place}"),
        false if folder.is_root() => near,
        false => format!("{near} (in {place})"),
    };
    ToolError::new(format!("there is {what} at {missing}{near}"))
}

fn entry_names(folder: std::os::fd::OwnedFd) -> Vec<String> {
    let entries = Dir::new(folder).into_iter().flatten().flatten().take(NAMES_MAX);
    let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| !matches!(name.as_str(), "." | "..")).collect()
}

/// Why the operating system would not.
pub(crate) fn errno_error(root: &ConfinedDir, name: &RelPath, errno: Errno) -> ToolError {
    let shown = quote_name(name.as_str());
    ToolError::new(match errno {
        Errno::NOENT => return missing_error(root, name),
        Errno::LOOP | Errno::AGAIN | Errno::XDEV => {
            format!(
                "{shown} changes while it is looked at: part of it has become a link; try again"
            )
        }
        Errno::NOTDIR => format!("{shown}: something on the way to it is not a directory"),
        Errno::ACCESS | Errno::PERM => format!("{shown}: the operating system does not permit it"),
        Errno::NAMETOOLONG => format!("{shown}: a name in it is too long; 255 bytes is the most"),
        errno => format!("{shown}: {}", io::Error::from(errno)),
    })
}

pub(crate) fn open_file_error(root: &ConfinedDir, name: &RelPath, why: OpenFileError) -> ToolError {
    let shown = quote_name(name.as_str());
    match why {
        OpenFileError::Errno(errno) => errno_error(root, name, errno),
        OpenFileError::Folder => {
            ToolError::new(format!("{shown} is a directory; list_files shows what is in it"))
        }
        OpenFileError::Special(kind) => {
            ToolError::new(format!("{shown} is {kind}; the file tools touch plain files only"))
        }
    }
}

/// Why a file could not be read to its end.
pub(crate) fn read_error(name: &RelPath, error: &io::Error, watch: &CallDeadline) -> ToolError {
    let shown = quote_name(name.as_str());
    match watch.aborted() {
        Some(Aborted::Cancelled) => ToolError::new("the call was given up"),
        Some(Aborted::TimedOut) => {
            ToolError::new(format!("{shown} takes too long to read; read a part of it by `offset`"))
        }
        None => ToolError::new(format!("{shown} cannot be read: {error}")),
    }
}

/// All of a file that is no larger than this.
pub(crate) fn read_whole_file(
    root: &ConfinedDir,
    name: &RelPath,
    most: usize,
) -> Result<(Vec<u8>, rustix::fs::Stat), ToolError> {
    let (file, stat) = root.open_file(name).map_err(|why| open_file_error(root, name, why))?;
    let mut content = Vec::new();
    let read = file.take(most as u64 + 1).read_to_end(&mut content);
    read.map_err(|error| {
        ToolError::new(format!("{} cannot be read: {error}", quote_name(name.as_str())))
    })?;
    if content.len() > most {
        let shown = quote_name(name.as_str());
        return Err(ToolError::new(format!(
            "{shown} is too large for this: {most} bytes is the most"
        )));
    }
    Ok((content, stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_what_is_not() {
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
