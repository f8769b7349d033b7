//! `edit_file`.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Desk, on_a_runtime};

fn edit(path: &str, edits: Value) -> Value {
    json!({ "path": path, "edits": edits })
}

#[test]
fn several_edits_are_made_together_or_not_at_all() {
    let desk = Desk::new();
    let path = desk.put("a.rs", "fn one() {}\nfn two() {}\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let good = json!({ "old": "one", "new": "eins" });
    let bad = json!({ "old": "three", "new": "drei" });
    let failed = edit("a.rs", json!([good, bad]));
    desk.fails("edit_file", failed, &["was not changed", "`edits[1]`", "`old` is not in the file"]);
    assert_eq!(desk.has("a.rs"), "fn one() {}\nfn two() {}\n");
    let told = desk.ok(
        "edit_file",
        edit("a.rs", json!([good, { "old": "fn ", "new": "pub fn ", "all": true }])),
    );
    assert!(
        told.starts_with("Edited `a.rs`: 3 replacements in lines 1, 1, 2; 33 bytes, digest "),
        "{told}"
    );
    assert_eq!(desk.has("a.rs"), "pub fn eins() {}\npub fn two() {}\n");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(desk.names(""), ["a.rs"]);
}

#[test]
fn the_digest_of_an_edit_is_good_for_the_next() {
    let desk = Desk::new();
    desk.put("a", "1");
    let digest = |told: String| told.split_once("digest ").unwrap().1[..16].to_owned();
    let mut known = digest(desk.ok("read_file", json!({ "path": "a" })));
    for (old, new) in [("1", "2"), ("2", "3")] {
        let edits = json!([{ "old": old, "new": new }]);
        known =
            digest(desk.ok("edit_file", json!({ "path": "a", "edits": edits, "expect": known })));
    }
    desk.put("a", "33");
    let stale = json!({ "path": "a", "edits": [{ "old": "33", "new": "4" }], "expect": known });
    desk.fails("edit_file", stale, &["not what you expect", "read it again"]);
    assert_eq!(desk.has("a"), "33");
}

#[test]
fn line_ends_marks_and_foreign_bytes_stay() {
    let desk = Desk::new();
    desk.put("dos", "\u{feff}a\r\nb\r\nc");
    desk.ok("edit_file", edit("dos", json!([{ "old": "a\nb", "new": "a\nx\nb" }])));
    assert_eq!(desk.has("dos"), "\u{feff}a\r\nx\r\nb\r\nc");
    desk.put("latin", b"caf\xe9 one\n");
    desk.ok("edit_file", edit("latin", json!([{ "old": "one", "new": "two" }])));
    assert_eq!(std::fs::read(desk.path("latin")).unwrap(), b"caf\xe9 two\n");
    desk.put("unended", "end");
    desk.ok("edit_file", edit("unended", json!([{ "old": "end", "new": "END" }])));
    assert_eq!(desk.has("unended"), "END");
}

#[test]
fn an_edit_that_was_made_before_is_recognised() {
    let desk = Desk::new();
    desk.put("a", "let x = 1;\n");
    let again = || edit("a", json!([{ "old": "x = 1", "new": "y = 2" }]));
    desk.ok("edit_file", again());
    desk.fails("edit_file", again(), &["`new` is, in line 1", "applied already"]);
    assert_eq!(desk.has("a"), "let y = 2;\n");
}

#[test]
fn what_cannot_be_edited_is_told() {
    let desk = Desk::new();
    desk.put("data", b"a\0b");
    desk.put("empty", "");
    desk.put("text", "one two one\n");
    std::fs::File::create(desk.path("huge")).unwrap().set_len(1 << 30).unwrap();
    let one = json!([{ "old": "one", "new": "1" }]);
    desk.fails("edit_file", edit("data", one.clone()), &["binary"]);
    desk.fails("edit_file", edit("empty", one.clone()), &["`old` is not in the file"]);
    desk.fails(
        "edit_file",
        edit("text", one.clone()),
        &["there 2 times, in lines 1, 1", "all: true"],
    );
    desk.fails("edit_file", edit("huge", one.clone()), &["too large", "4194304 bytes"]);
    desk.fails("edit_file", edit("txet", one.clone()), &["did you mean `text`?"]);
    desk.fails("edit_file", edit("text", json!([])), &["1 to 100 edits"]);
    let undone = json!([{ "old": "two", "new": "2" }, { "old": "2", "new": "two" }]);
    desk.fails("edit_file", edit("text", undone), &["undo each other"]);
    assert_eq!(desk.has("text"), "one two one\n");
}

/// Two who edit the same file at once: what is told as made is there in the end, and an edit that would
/// have undone another's is refused and can be made again.
#[test]
fn edits_at_once_do_not_undo_each_other() {
    let desk = Desk::new();
    let names: Vec<String> = (0..100).map(|n| format!("<{n:02}>")).collect();
    desk.put("file", names.concat());
    std::thread::scope(|scope| {
        for half in names.chunks(50) {
            let desk = &desk;
            scope.spawn(move || {
                for name in half {
                    let edits =
                        edit("file", json!([{ "old": name, "new": name.replace('<', "[") }]));
                    while let Err(told) = on_a_runtime(desk.call("edit_file", edits.clone())) {
                        assert!(told.contains("changed `file` meanwhile"), "{told}");
                    }
                }
            });
        }
    });
    assert_eq!(desk.has("file"), names.concat().replace('<', "["));
    assert_eq!(desk.names(""), ["file"]);
}
