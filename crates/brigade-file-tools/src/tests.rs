//! Tests of changes and cancellations between two steps of a call.

use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::*;
use crate::atomic_replace::{ExpectedFile, replace_file};
use crate::call_deadline::{CallDeadline, DeadlineReader};
use crate::confined_dir::{ConfinedDir, DirEntryKind};
use crate::rel_path::RelPath;
use crate::working_directory::LocatedPath;
use brigade_agent::permission::{PermissionRules, Permissions};

const LONG: Duration = Duration::from_secs(3_600);

fn directory_with(content: &str) -> (TempDir, LocatedPath) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), content).unwrap();
    let located = located(&directory, "file");
    (directory, located)
}

fn located(directory: &TempDir, name: &str) -> LocatedPath {
    let root = ConfinedDir::open(directory.path()).unwrap();
    LocatedPath { root, name: RelPath::parse(name).unwrap() }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn stat(located: &LocatedPath) -> rustix::fs::Stat {
    match located.root.inspect(&located.name) {
        Ok(DirEntryKind::Other(stat)) => stat,
        other => panic!("{other:?}"),
    }
}

fn arguments<T: FileTool>(arguments: Value) -> T {
    let arguments: Map<String, Value> = serde_json::from_value(arguments).unwrap();
    read_arguments(arguments).unwrap()
}

fn working_dir(directory: &TempDir) -> WorkingDirectory {
    WorkingDirectory::new(directory.path(), Permissions::of("the operator", PermissionRules::all()))
}

#[test]
fn a_file_that_changed_since_it_was_read_is_not_replaced() {
    let (directory, located) = directory_with("theirs");
    let (deadline, _cancel_on_drop) = CallDeadline::start(LONG);
    let before = stat(&located);
    for expected in ["mine, once", "their", "theirs "] {
        let before = ExpectedFile::Content(expected.as_bytes(), &before);
        let refused = replace_file(&located, b"mine", before, &deadline).unwrap_err();
        assert!(
            refused.to_string().contains("somebody else changed `file` meanwhile"),
            "{refused}"
        );
    }
    let refused = replace_file(&located, b"mine", ExpectedFile::Nothing, &deadline).unwrap_err();
    assert!(refused.to_string().contains("meanwhile"), "{refused}");
    assert_eq!(std::fs::read_to_string(directory.path().join("file")).unwrap(), "theirs");
    std::fs::remove_file(directory.path().join("file")).unwrap();
    let before = ExpectedFile::Content(b"theirs", &before);
    let refused = replace_file(&located, b"mine", before, &deadline).unwrap_err();
    assert!(refused.to_string().contains("meanwhile"), "{refused}");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn a_cancelled_call_writes_nothing() {
    let (directory, located_file) = directory_with("old");
    let (deadline, cancel_on_drop) = CallDeadline::start(LONG);
    drop(cancel_on_drop);
    let before = stat(&located_file);
    let refused =
        replace_file(&located_file, b"new", ExpectedFile::File(&before), &deadline).unwrap_err();
    assert!(refused.to_string().contains("cancelled"), "{refused}");
    let deep = located(&directory, "a/b/c");
    replace_file(&deep, b"new", ExpectedFile::Nothing, &deadline).unwrap_err();
    assert_eq!(names(directory.path()), ["file"], "no draft and no directory remains");
    assert_eq!(std::fs::read_to_string(directory.path().join("file")).unwrap(), "old");
}

#[test]
fn at_the_timeout_a_search_returns_its_results() {
    let (directory, ..) = directory_with("needle\n");
    let (deadline, _cancel_on_drop) = CallDeadline::start(Duration::ZERO);
    let search: SearchFiles = arguments(json!({ "pattern": "needle" }));
    let reply = search.run(&working_dir(&directory), &deadline).unwrap();
    assert_eq!(
        reply,
        "[nothing matches; the time limit was reached before everything was visited; name a smaller path]"
    );
    let list: ListFiles = arguments(json!({}));
    assert!(
        list.run(&working_dir(&directory), &deadline)
            .unwrap()
            .contains("the time limit was reached")
    );
    let read: ReadFile = arguments(json!({ "path": "file" }));
    let refused = read.run(&working_dir(&directory), &deadline).unwrap_err();
    assert!(refused.to_string().contains("takes too long"), "{refused}");
}

/// It applies to a file of any size, also if nothing in it matches.
#[test]
fn a_cancelled_call_stops_reading() {
    struct Endless(Option<call_deadline::CancelOnDrop>, u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1 += 1;
            assert!(self.1 < 1_000, "reading continues");
            if self.1 == 3 {
                self.0 = None;
            }
            buffer.fill(b'a');
            Ok(buffer.len())
        }
    }
    let (deadline, cancel_on_drop) = CallDeadline::start(LONG);
    let mut reader =
        DeadlineReader { reader: Endless(Some(cancel_on_drop), 0), deadline: &deadline };
    let read = std::io::copy(&mut reader, &mut std::io::sink());
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(deadline.aborted(), Some(call_deadline::Aborted::Cancelled));
}
