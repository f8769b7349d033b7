//! Copies of the store of a state directory. `brigade-postgres` tests copies to a database.

use std::fs;
use std::path::Path;

use crate::story_env::{Ran, StoryEnv};

fn copy(story: &StoryEnv, from: &Path, to: &Path) -> Ran {
    story.run(["store", "copy", from.to_str().unwrap(), to.to_str().unwrap()])
}

#[track_caller]
fn check_refused(ran: &Ran, code: i32, reason: &str) {
    assert_eq!(ran.code, code, "{}", ran.err);
    assert!(ran.err.contains(reason), "{}", ran.err);
    assert!(!ran.err.contains("secret"), "{}", ran.err);
}

#[test]
fn a_store_is_copied_once_and_only_without_its_daemon() {
    let story = StoryEnv::new();
    let (state, other) = (story.state(), story.project().join("other"));
    story.ok(["exec", "--name", "Soup", "--", "echo", "ready"]);
    check_refused(&copy(&story, &state, &other), 119, "another daemon");
    assert!(!other.exists(), "the target is not created before the source is locked");
    story.ok(["daemon", "stop"]);
    let copied = copy(&story, &state, &other);
    assert_eq!(copied.code, 0, "{}", copied.err);
    assert!(copied.out.contains("files of processes were not copied"), "{}", copied.out);
    let before = fs::read(other.join("brigade.db")).unwrap();
    check_refused(&copy(&story, &state, &other), 120, "there is a store at");
    assert!(fs::read(other.join("brigade.db")).unwrap() == before, "the target has changed");
    check_refused(&copy(&story, &state, &state), 2, "the same place");
    check_refused(&copy(&story, &state, &state.join("brigade.db")), 2, "the same place");
    // A file is a target, too.
    let file = story.project().join("copy.db");
    let report = story.json(["store", "copy", other.to_str().unwrap(), file.to_str().unwrap()]);
    assert_eq!(report["verified"], true);
    assert_eq!(report["tables"][3]["table"], "tasks");
    assert_eq!(report["tables"][3]["rows"], 1);
    let first = story.json([
        "store",
        "copy",
        state.to_str().unwrap(),
        story.project().join("again.db").to_str().unwrap(),
    ]);
    assert_eq!(report["tables"], first["tables"]);
}

#[test]
fn a_wrong_source_or_target_is_explained() {
    let story = StoryEnv::new();
    let nothing = story.project().join("nothing");
    check_refused(&copy(&story, &nothing, &nothing.join("to")), 127, "there is no store at");
    assert!(!nothing.exists(), "the source is not created");
    for url in ["mysql://ada:secret@db/kitchen", "postgres://ada:secret@db"] {
        check_refused(&story.run(["store", "copy", url, "x"]), 2, "");
    }
    let unreachable = "postgres://ada:secret@127.0.0.1:1/kitchen";
    check_refused(&story.run(["store", "copy", unreachable, "x"]), 125, "cannot connect");
    check_refused(&story.run(["store", "copy", "x"]), 2, "TO");
    assert!(story.ok(["store", "copy", "--help"]).contains("TO must be empty"));
    let text = story.project().join("text.db");
    fs::write(&text, "not a database").unwrap();
    story.ok(["daemon", "start"]);
    story.ok(["daemon", "stop"]);
    check_refused(&copy(&story, &story.state(), &text), 125, "not a SQLite file");
    assert_eq!(fs::read(&text).unwrap(), b"not a database");
}
