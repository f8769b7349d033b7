//! Refuses repositories whose filters would change files that Brigade checked out without them.
//!
//! The files in a new worktree are as the repository stores them. The task's own git would run the
//! `clean` filter on them once more and commit the result, such as files that are encrypted twice.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use brigade_model::refusal::Refusal;
use brigade_process::private_file::open_plain;

use super::git::GitError;
use super::repository::BaseRepository;
use super::repository_view::RepositoryViews;

const ATTEMPT: &str = "no worktree can be made";

/// Settings of filters that change a file when it is committed.
const CLEANING: &str = "^filter\\..*\\.(clean|process)$";

/// A filter that leaves a file alone that it has changed already: a pointer of Git LFS.
const REPEATABLE: &str = "lfs";

/// The most bytes read of a file with attributes.
const ATTRIBUTES_MAX: u64 = 4 * 1024 * 1024;

/// Refuses a base commit whose attributes name a filter that changes files when they are committed.
pub(crate) fn check_filters(views: &RepositoryViews, base: &BaseRepository) -> Result<(), Refusal> {
    let named = find_filters(views, base).map_err(|error| error.to_refusal(ATTEMPT))?;
    let Some(name) = named else { return Ok(()) };
    Err(Refusal::invalid(format!(
        "no worktree can be made: files of the repository have the filter {name:?}, which Brigade \
         does not run; git would run it on stored files and commit damaged ones; start the task \
         without a worktree, or in a clone of its own"
    )))
}

/// Returns a filter that is set up and named by the attributes of the commit or of the user.
fn find_filters(
    views: &RepositoryViews,
    base: &BaseRepository,
) -> Result<Option<String>, GitError> {
    let repository = Path::new(&*base.repository);
    let args = ["config", "--null", "--name-only", "--get-regexp", CLEANING];
    let listed = views.git().read_settings(repository, &args)?;
    let configured = parse_configured(&listed);
    if configured.is_empty() {
        return Ok(None);
    }
    let view = views.open(repository)?;
    // Prints the lines of all attribute files of the commit, and reads no others.
    let pattern = ":(top,glob)**/.gitattributes";
    let args = ["grep", "--text", "--no-textconv", "-h", "-F", "-e", "filter=", &base.base, "--"];
    let lines = view.search(&[&args[..], &[pattern]].concat())?;
    let mut named = parse_named(&lines);
    for file in attribute_files(views, repository)? {
        match read_bounded(&file) {
            Ok(text) => named.extend(parse_named(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(GitError::Failed(format!("{}: {error}", file.display())));
            }
        }
    }
    Ok(configured.into_iter().find(|name| named.contains(name)))
}

/// Returns the files with attributes that are not in the commit.
fn attribute_files(views: &RepositoryViews, repository: &Path) -> Result<Vec<PathBuf>, GitError> {
    let args = ["config", "--null", "--type=path", "--get", "core.attributesFile"];
    let set = views.git().read_settings(repository, &args)?;
    let set = set.strip_suffix(b"\0").unwrap_or(&set);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
    let own = match set.is_empty() {
        false => Some(PathBuf::from(OsStr::from_bytes(set))),
        true => config.map(PathBuf::from).or(home).map(|path| path.join("git/attributes")),
    };
    let mut files = vec![repository.join("info/attributes"), PathBuf::from("/etc/gitattributes")];
    files.extend(own);
    Ok(files)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let real = path.canonicalize()?;
    let mut text = Vec::new();
    open_plain(&real)?.take(ATTRIBUTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// Returns the names of filters in a list of settings such as `filter.NAME.clean`.
fn parse_configured(listed: &[u8]) -> BTreeSet<String> {
    let listed = String::from_utf8_lossy(listed);
    let names = listed.split_terminator('\0').filter_map(|setting| {
        let (name, _) = setting.strip_prefix("filter.")?.rsplit_once('.')?;
        (name != REPEATABLE).then(|| name.to_owned())
    });
    names.collect()
}

/// Returns the names of filters in lines of attributes.
fn parse_named(lines: &[u8]) -> BTreeSet<String> {
    let lines = String::from_utf8_lossy(lines);
    let words = lines.split_ascii_whitespace();
    words.filter_map(|word| Some(word.strip_prefix("filter=")?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_found_in_settings_and_attributes() {
        let configured =
            parse_configured(b"filter.a.b.clean\0filter.lfs.process\0filter.c.clean\0");
        assert_eq!(configured.into_iter().collect::<Vec<_>>(), ["a.b", "c"]);
        let named =
            parse_named(b"* text\n*.key diff filter=a.b\n[attr]x filter=c\n\"a b\" filter=d");
        assert_eq!(named.into_iter().collect::<Vec<_>>(), ["a.b", "c", "d"]);
        assert!(parse_named(b"*.key -filter !filter\n").is_empty());
    }
}
