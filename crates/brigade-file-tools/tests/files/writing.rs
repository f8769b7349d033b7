//! Tests of `write_file`.

use std::os::unix::fs::PermissionsExt;

use brigade_agent::ToolEffect;
use serde_json::json;

use crate::support::{TestDirectory, block_on};

#[test]
fn a_file_is_created_with_its_parent_directories() {
    let dir = TestDirectory::new();
    let reply = dir.ok("write_file", json!({ "path": "a/b/c.txt", "content": "text" }));
    assert!(reply.starts_with("Created `a/b/c.txt`: 4 bytes, digest "), "{reply}");
    assert_eq!(dir.content("a/b/c.txt"), "text");
    assert_eq!(dir.names("a/b"), ["c.txt"], "no draft remains");
}

#[test]
fn a_file_is_replaced_and_keeps_its_mode() {
    let dir = TestDirectory::new();
    let path = dir.write("run.sh", "old, and longer");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    let reply = dir.ok("write_file", json!({ "path": "run.sh", "content": "new" }));
    assert!(reply.starts_with("Replaced"), "{reply}");
    assert_eq!(dir.content("run.sh"), "new");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(dir.names(""), ["run.sh"]);
}

#[test]
fn with_new_an_existing_file_is_not_replaced() {
    let dir = TestDirectory::new();
    dir.write("file", "theirs");
    let new = |content: &str| json!({ "path": "file", "content": content, "new": true });
    dir.fails("write_file", new("mine"), &["already exists with other content"]);
    assert_eq!(dir.content("file"), "theirs");
    // After an interrupted call, the next one finds the content.
    let reply = dir.ok("write_file", new("theirs"));
    assert!(reply.contains("already has exactly this content"), "{reply}");
    dir.ok("write_file", json!({ "path": "other", "content": "mine", "new": true }));
    assert_eq!(dir.content("other"), "mine");
}

#[test]
fn a_file_with_another_digest_is_not_replaced() {
    let dir = TestDirectory::new();
    dir.write("file", "one\n");
    let reply = dir.ok("read_file", json!({ "path": "file" }));
    let digest = reply.split_once("digest ").unwrap().1[..16].to_owned();
    let write = |content: &str| json!({ "path": "file", "content": content, "expect": digest });
    dir.write("file", "theirs\n");
    dir.fails("write_file", write("two\n"), &["not what you expect", "read it again"]);
    assert_eq!(dir.content("file"), "theirs\n");
    dir.write("file", "one\n");
    dir.ok("write_file", write("two\n"));
    assert_eq!(dir.content("file"), "two\n");
    std::fs::remove_file(dir.path("file")).unwrap();
    dir.fails("write_file", write("two\n"), &["there is no `file`"]);
    let both = json!({ "path": "file", "content": "", "expect": "0", "new": true });
    dir.fails("write_file", both, &["give `new` or `expect`"]);
}

#[test]
fn a_failed_write_leaves_nothing_behind() {
    let dir = TestDirectory::new();
    dir.write("directory/file", "x");
    let write = |path: &str| json!({ "path": path, "content": "x" });
    dir.fails("write_file", write("directory"), &["is a directory"]);
    dir.fails("write_file", write("directory/file/child"), &["not a directory"]);
    dir.fails("write_file", write("."), &["is a directory"]);
    let long = format!("new/{}", "x".repeat(256));
    dir.fails("write_file", write(&long), &["255 bytes"]);
    let huge = json!({ "path": "huge", "content": "x".repeat(4 * 1024 * 1024 + 1) });
    dir.fails("write_file", huge, &["`content`: give at most 4194304 bytes"]);
    assert_eq!(dir.names(""), ["directory"], "a directory created for a failed write is removed");
}

#[test]
fn readers_see_the_old_or_the_new_content() {
    let dir = TestDirectory::new();
    let old = "old\n".repeat(50_000);
    let new = "new\n".repeat(50_000);
    dir.write("file", &old);
    let path = dir.path("file");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let content = std::fs::read_to_string(&path).unwrap();
                assert!(content == old || content == new, "{} bytes of both", content.len());
            }
        });
        for _ in 0..20 {
            for content in [&new, &old] {
                dir.ok("write_file", json!({ "path": "file", "content": content }));
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(dir.names(""), ["file"]);
}

/// A call dropped at any point has written everything or nothing.
#[test]
fn a_dropped_call_leaves_no_partial_file() {
    let dir = TestDirectory::new();
    let content = "x".repeat(1_000_000);
    for _ in 0..30 {
        dir.write("file", "old");
        // The runtime waits for its blocking pool before it is dropped.
        block_on(async {
            let call = dir.call("write_file", json!({ "path": "file", "content": content }));
            let _ = tokio::time::timeout(std::time::Duration::ZERO, call).await;
        });
        let found = dir.content("file");
        assert!(found == "old" || found == content, "{} bytes", found.len());
        assert_eq!(dir.names(""), ["file"]);
    }
}

#[test]
fn writing_is_unrepeatable_and_exclusive() {
    let dir = TestDirectory::new();
    for name in ["write_file", "edit_file"] {
        let hints = dir.tool(name).hints();
        assert_eq!(hints.effect, ToolEffect::Once, "{name}");
        assert!(!hints.read_only && hints.destructive && hints.exclusive, "{name}");
    }
}
