//! Tests of `edit_file`.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{TestDirectory, block_on};

fn edit(path: &str, edits: Value) -> Value {
    json!({ "path": path, "edits": edits })
}

#[test]
fn several_edits_are_applied_together_or_not_at_all() {
    let dir = TestDirectory::new();
    let path = dir.write("a.rs", "fn one() {}\nfn two() {}\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let good = json!({ "old": "one", "new": "eins" });
    let bad = json!({ "old": "three", "new": "drei" });
    let failed = edit("a.rs", json!([good, bad]));
    dir.fails("edit_file", failed, &["was not changed", "`edits[1]`", "`old` is not in the file"]);
    assert_eq!(dir.content("a.rs"), "fn one() {}\nfn two() {}\n");
    let reply = dir.ok(
        "edit_file",
        edit("a.rs", json!([good, { "old": "fn ", "new": "pub fn ", "all": true }])),
    );
    assert!(
        reply.starts_with("Edited `a.rs`: 3 replacements in lines 1, 1, 2; 33 bytes, digest "),
        "{reply}"
    );
    assert_eq!(dir.content("a.rs"), "pub fn eins() {}\npub fn two() {}\n");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(dir.names(""), ["a.rs"]);
}

#[test]
fn the_digest_of_an_edit_can_be_used_for_the_next() {
    let dir = TestDirectory::new();
    dir.write("a", "1");
    let digest = |reply: String| reply.split_once("digest ").unwrap().1[..16].to_owned();
    let mut known = digest(dir.ok("read_file", json!({ "path": "a" })));
    for (old, new) in [("1", "2"), ("2", "3")] {
        let edits = json!([{ "old": old, "new": new }]);
        known =
            digest(dir.ok("edit_file", json!({ "path": "a", "edits": edits, "expect": known })));
    }
    dir.write("a", "33");
    let stale = json!({ "path": "a", "edits": [{ "old": "33", "new": "4" }], "expect": known });
    dir.fails("edit_file", stale, &["not what you expect", "read it again"]);
    assert_eq!(dir.content("a"), "33");
}

#[test]
fn line_ends_marks_and_invalid_utf8_are_kept() {
    let dir = TestDirectory::new();
    dir.write("dos", "\u{feff}a\r\nb\r\nc");
    dir.ok("edit_file", edit("dos", json!([{ "old": "a\nb", "new": "a\nx\nb" }])));
    assert_eq!(dir.content("dos"), "\u{feff}a\r\nx\r\nb\r\nc");
    dir.write("latin", b"caf\xe9 one\n");
    dir.ok("edit_file", edit("latin", json!([{ "old": "one", "new": "two" }])));
    assert_eq!(std::fs::read(dir.path("latin")).unwrap(), b"caf\xe9 two\n");
    dir.write("unended", "end");
    dir.ok("edit_file", edit("unended", json!([{ "old": "end", "new": "END" }])));
    assert_eq!(dir.content("unended"), "END");
}

#[test]
fn a_repeated_edit_is_recognised() {
    let dir = TestDirectory::new();
    dir.write("a", "let x = 1;\n");
    let again = || edit("a", json!([{ "old": "x = 1", "new": "y = 2" }]));
    dir.ok("edit_file", again());
    dir.fails("edit_file", again(), &["`new` is, in line 1", "applied already"]);
    assert_eq!(dir.content("a"), "let y = 2;\n");
}

#[test]
fn files_that_cannot_be_edited_are_reported() {
    let dir = TestDirectory::new();
    dir.write("data", b"a\0b");
    dir.write("empty", "");
    dir.write("text", "one two one\n");
    std::fs::File::create(dir.path("huge")).unwrap().set_len(1 << 30).unwrap();
    let one = json!([{ "old": "one", "new": "1" }]);
    dir.fails("edit_file", edit("data", one.clone()), &["binary"]);
    dir.fails("edit_file", edit("empty", one.clone()), &["`old` is not in the file"]);
    dir.fails(
        "edit_file",
        edit("text", one.clone()),
        &["occurs 2 times, in lines 1, 1", "all: true"],
    );
    dir.fails("edit_file", edit("huge", one.clone()), &["too large", "4194304 bytes"]);
    dir.fails("edit_file", edit("txet", one.clone()), &["did you mean `text`?"]);
    dir.fails("edit_file", edit("text", json!([])), &["1 to 100 edits"]);
    let undone = json!([{ "old": "two", "new": "2" }, { "old": "2", "new": "two" }]);
    dir.fails("edit_file", edit("text", undone), &["undo each other"]);
    assert_eq!(dir.content("text"), "one two one\n");
}

/// Two threads edit the same file. Every edit that succeeded is in the result. An edit that would
/// undo another is refused and can be repeated.
#[test]
fn concurrent_edits_do_not_undo_each_other() {
    let dir = TestDirectory::new();
    let names: Vec<String> = (0..100).map(|n| format!("<{n:02}>")).collect();
    dir.write("file", names.concat());
    std::thread::scope(|scope| {
        for half in names.chunks(50) {
            let dir = &dir;
            scope.spawn(move || {
                for name in half {
                    let edits =
                        edit("file", json!([{ "old": name, "new": name.replace('<', "[") }]));
                    while let Err(reply) = block_on(dir.call("edit_file", edits.clone())) {
                        assert!(reply.contains("changed `file` meanwhile"), "{reply}");
                    }
                }
            });
        }
    });
    assert_eq!(dir.content("file"), names.concat().replace('<', "["));
    assert_eq!(dir.names(""), ["file"]);
}
