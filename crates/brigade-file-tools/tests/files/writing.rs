//! `write_file`.

use std::os::unix::fs::PermissionsExt;

use brigade_agent::ToolEffect;
use serde_json::json;

use crate::support::{Desk, on_a_runtime};

#[test]
fn a_file_is_made_with_the_folders_on_the_way_to_it() {
    let desk = Desk::new();
    let told = desk.ok("write_file", json!({ "path": "a/b/c.txt", "content": "text" }));
    assert!(told.starts_with("Created `a/b/c.txt`: 4 bytes, digest "), "{told}");
    assert_eq!(desk.has("a/b/c.txt"), "text");
    assert_eq!(desk.names("a/b"), ["c.txt"], "nothing else is left there");
}

#[test]
fn a_file_is_replaced_and_keeps_its_mode() {
    let desk = Desk::new();
    let path = desk.put("run.sh", "old, and longer");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    let told = desk.ok("write_file", json!({ "path": "run.sh", "content": "new" }));
    assert!(told.starts_with("Replaced"), "{told}");
    assert_eq!(desk.has("run.sh"), "new");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(desk.names(""), ["run.sh"]);
}

#[test]
fn a_new_file_takes_nobodys_place() {
    let desk = Desk::new();
    desk.put("file", "theirs");
    let new = |content: &str| json!({ "path": "file", "content": content, "new": true });
    desk.fails("write_file", new("mine"), &["is there already, with other content"]);
    assert_eq!(desk.has("file"), "theirs");
    // After a call that was cut off, the next one finds what it did.
    let told = desk.ok("write_file", new("theirs"));
    assert!(told.contains("has exactly this content already"), "{told}");
    desk.ok("write_file", json!({ "path": "other", "content": "mine", "new": true }));
    assert_eq!(desk.has("other"), "mine");
}

#[test]
fn a_file_that_is_not_what_was_expected_is_left_alone() {
    let desk = Desk::new();
    desk.put("file", "one\n");
    let told = desk.ok("read_file", json!({ "path": "file" }));
    let digest = told.split_once("digest ").unwrap().1[..16].to_owned();
    let write = |content: &str| json!({ "path": "file", "content": content, "expect": digest });
    desk.put("file", "theirs\n");
    desk.fails("write_file", write("two\n"), &["not what you expect", "read it again"]);
    assert_eq!(desk.has("file"), "theirs\n");
    desk.put("file", "one\n");
    desk.ok("write_file", write("two\n"));
    assert_eq!(desk.has("file"), "two\n");
    std::fs::remove_file(desk.path("file")).unwrap();
    desk.fails("write_file", write("two\n"), &["there is no `file`"]);
    let both = json!({ "path": "file", "content": "", "expect": "0", "new": true });
    desk.fails("write_file", both, &["give `new` or `expect`"]);
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let desk = Desk::new();
    desk.put("folder/file", "x");
    let write = |path: &str| json!({ "path": path, "content": "x" });
    desk.fails("write_file", write("folder"), &["is a directory"]);
    desk.fails("write_file", write("folder/file/below"), &["not a directory"]);
    desk.fails("write_file", write("."), &["is a directory"]);
    let long = format!("new/{}", "x".repeat(256));
    desk.fails("write_file", write(&long), &["255 bytes"]);
    let huge = json!({ "path": "huge", "content": "x".repeat(4 * 1024 * 1024 + 1) });
    desk.fails("write_file", huge, &["`content`: 4194304 bytes is the most"]);
    assert_eq!(desk.names(""), ["folder"], "a folder that was made for nothing is gone again");
}

#[test]
fn whoever_looks_sees_the_old_or_the_new() {
    let desk = Desk::new();
    let (old, new) = ("old\n".repeat(50_000), "new\n".repeat(50_000));
    desk.put("file", &old);
    let path = desk.path("file");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let there = std::fs::read_to_string(&path).unwrap();
                assert!(there == old || there == new, "{} bytes of both", there.len());
            }
        });
        for _ in 0..20 {
            for content in [&new, &old] {
                desk.ok("write_file", json!({ "path": "file", "content": content }));
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(desk.names(""), ["file"]);
}

/// Dropped at any point, a call has written all or nothing.
#[test]
fn a_call_that_is_given_up_leaves_nothing_half_done() {
    let desk = Desk::new();
    let content = "x".repeat(1_000_000);
    for _ in 0..30 {
        desk.put("file", "old");
        // The runtime waits for what its pool is at before it goes.
        on_a_runtime(async {
            let call = desk.call("write_file", json!({ "path": "file", "content": content }));
            let _ = tokio::time::timeout(std::time::Duration::ZERO, call).await;
        });
        let there = desk.has("file");
        assert!(there == "old" || there == content, "{} bytes", there.len());
        assert_eq!(desk.names(""), ["file"]);
    }
}

#[test]
fn writing_must_not_happen_twice_and_happens_alone() {
    let desk = Desk::new();
    for name in ["write_file", "edit_file"] {
        let hints = desk.tool(name).hints();
        assert_eq!(hints.effect, ToolEffect::Once, "{name}");
        assert!(!hints.read_only && hints.destructive && hints.exclusive, "{name}");
    }
}
