//! What happens between two steps of a call.

use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::atomic_replace::{ExpectedFile, replace_file};
use crate::call_deadline::{CallDeadline, DeadlineReader};
use crate::confined_dir::{ConfinedDir, DirEntryKind};
use crate::rel_path::RelPath;
use super::*;
use brigade_agent::permission::{PermissionRules, Permissions};

const LONG: Duration = Duration::from_secs(3_600);

fn folder_with(content: &str) -> (TempDir, ConfinedDir, RelPath) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), content).unwrap();
    let root = ConfinedDir::open(folder.path()).unwrap();
    (folder, root, RelPath::parse("file").unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn stat(root: &ConfinedDir, name: &RelPath) -> rustix::fs::Stat {
    match root.inspect(name) {
        Ok(DirEntryKind::Other(stat)) => stat,
        other => panic!("{other:?}"),
    }
}

fn arguments<T: FileTool>(arguments: Value) -> T {
    let arguments: Map<String, Value> = serde_json::from_value(arguments).unwrap();
    read_arguments(arguments).unwrap()
}

fn workspace(folder: &TempDir) -> WorkingDirectory {
    WorkingDirectory::new(folder.path(), Permissions::of("the operator", PermissionRules::all()))
}

#[test]
fn a_file_that_changed_since_it_was_read_is_left_alone() {
    let (folder, root, name) = folder_with("theirs");
    let (watch, _wanted) = CallDeadline::start(LONG);
    let before = stat(&root, &name);
    for expected in ["mine, once", "their", "theirs "] {
        let before = ExpectedFile::Content(expected.as_bytes(), &before);
        let refused = replace_file((&root, &name), b"mine", before, &watch).unwrap_err();
        assert!(
            refused.to_string().contains("somebody else changed `file` meanwhile"),
            "{refused}"
        );
    }
    let refused = replace_file((&root, &name), b"mine", ExpectedFile::Nothing, &watch).unwrap_err();
    assert!(refused.to_string().contains("meanwhile"), "{refused}");
    assert_eq!(std::fs::read_to_string(folder.path().join("file")).unwrap(), "theirs");
    std::fs::remove_file(folder.path().join("file")).unwrap();
    let before = ExpectedFile::Content(b"theirs", &before);
    let refused = replace_file((&root, &name), b"mine", before, &watch).unwrap_err();
    assert!(refused.to_string().contains("meanwhile"), "{refused}");
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn what_nobody_wants_any_more_is_not_written() {
    let (folder, root, name) = folder_with("old");
    let (watch, wanted) = CallDeadline::start(LONG);
    drop(wanted);
    let before = stat(&root, &name);
    let refused =
        replace_file((&root, &name), b"new", ExpectedFile::File(&before), &watch).unwrap_err();
    assert!(refused.to_string().contains("given up"), "{refused}");
    let deep = RelPath::parse("a/b/c").unwrap();
    replace_file((&root, &deep), b"new", ExpectedFile::Nothing, &watch).unwrap_err();
    assert_eq!(names(folder.path()), ["file"], "no draft and no folder is left");
    assert_eq!(std::fs::read_to_string(folder.path().join("file")).unwrap(), "old");
}

#[test]
fn when_the_time_is_up_a_search_says_what_it_has() {
    let (folder, ..) = folder_with("needle\n");
    let (watch, _wanted) = CallDeadline::start(Duration::ZERO);
    let search: SearchFiles = arguments(json!({ "pattern": "needle" }));
    let told = search.run(&workspace(&folder), &watch).unwrap();
    assert_eq!(
        told,
        "[nothing matches; the time was up before everything was looked at; name a smaller path]"
    );
    let list: ListFiles = arguments(json!({}));
    assert!(list.run(&workspace(&folder), &watch).unwrap().contains("the time was up"));
    let read: ReadFile = arguments(json!({ "path": "file" }));
    let refused = read.run(&workspace(&folder), &watch).unwrap_err();
    assert!(refused.to_string().contains("takes too long"), "{refused}");
}

/// However large it is, and though nothing in it matches.
#[test]
fn a_file_that_is_being_read_is_let_go_when_nobody_wants_it() {
    struct Endless(Option<call_deadline::CancelOnDrop>, u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1 += 1;
            assert!(self.1 < 1_000, "it is read on");
            if self.1 == 3 {
                self.0 = None;
            }
            buffer.fill(b'a');
            Ok(buffer.len())
        }
    }
    let (watch, wanted) = CallDeadline::start(LONG);
    let mut reader = DeadlineReader { reader: Endless(Some(wanted), 0), deadline: &watch };
    let read = std::io::copy(&mut reader, &mut std::io::sink());
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(watch.aborted(), Some(call_deadline::Aborted::Cancelled));
}
