//! Tests of `list_files` and `search_files`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::TestDirectory;

fn project() -> TestDirectory {
    let dir = TestDirectory::new();
    dir.write("src/main.rs", "fn main() {\n    let answer = 42;\n}\n");
    dir.write("src/deep/lib.rs", "pub fn answer() -> u8 { 42 }\n");
    dir.write("README.md", "The Answer.\n");
    dir.write(".env", "ANSWER=42\n");
    dir.write(".git/config", "answer\n");
    dir.write("target/out.rs", "answer\n");
    dir.write(".gitignore", "target/\n*.log\n");
    dir.write("src/x.log", "answer\n");
    dir
}

#[test]
fn a_list_omits_hidden_and_ignored_files() {
    let dir = project();
    assert_eq!(dir.ok("list_files", json!({})), "README.md (12 bytes)\nsrc/\n[`.`: 2 entries]");
    let all = dir.ok("list_files", json!({ "hidden": true, "ignored": true }));
    assert_eq!(
        all,
        ".env (10 bytes)\n.gitignore (14 bytes)\nREADME.md (12 bytes)\nsrc/\ntarget/\n[`.`: 5 entries]"
    );
    let nested = dir.ok("list_files", json!({ "path": "src", "depth": 2 }));
    assert!(nested.starts_with("src/deep/\nsrc/deep/lib.rs (29 bytes)\nsrc/main.rs ("), "{nested}");
    // A path given explicitly is shown.
    assert!(dir.ok("list_files", json!({ "path": "target" })).contains("target/out.rs"));
}

#[test]
fn files_are_found_by_name() {
    let dir = project();
    let found = |glob: &str| {
        let reply = dir.ok("list_files", json!({ "glob": glob }));
        let lines = reply.lines().filter(|line| !line.starts_with('['));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("*.rs"), ["src/deep/lib.rs", "src/main.rs"]);
    assert_eq!(found("src/*.rs"), ["src/main.rs"]);
    assert_eq!(found("**/deep/*"), ["src/deep/lib.rs"]);
    assert_eq!(found("*.py"), [""; 0]);
    dir.fails("list_files", json!({ "glob": "[" }), &["the argument `glob`"]);
    dir.fails("list_files", json!({ "glob": "" }), &["the argument `glob`", "blank"]);
}

#[test]
fn a_match_has_path_line_and_text() {
    let dir = project();
    let reply = dir.ok("search_files", json!({ "pattern": "answer" }));
    assert_eq!(
        reply,
        "src/deep/lib.rs:1: pub fn answer() -> u8 { 42 }\n\
         src/main.rs:2:     let answer = 42;\n\
         [2 matching lines in 2 files]"
    );
    let reply = dir.ok(
        "search_files",
        json!({ "pattern": "answer", "ignore_case": true, "files_only": true }),
    );
    assert_eq!(reply, "README.md\nsrc/deep/lib.rs\nsrc/main.rs\n[3 matching files]");
    let reply =
        dir.ok("search_files", json!({ "pattern": "^ +let", "context": 1, "glob": "*.rs" }));
    assert_eq!(
        reply,
        "src/main.rs-1- fn main() {\nsrc/main.rs:2:     let answer = 42;\nsrc/main.rs-3- }\n\
         [1 matching line in 1 file]"
    );
    let reply = dir.ok("search_files", json!({ "pattern": "answer()", "literal": true }));
    assert!(reply.starts_with("src/deep/lib.rs:1:"), "{reply}");
    let reply = dir.ok("search_files", json!({ "pattern": "ANSWER", "path": ".env" }));
    assert!(reply.starts_with(".env:1: ANSWER=42"), "{reply}");
    let reply = dir.ok("search_files", json!({ "pattern": "ANSWER", "hidden": true }));
    assert!(reply.contains(".env:1:") && !reply.contains(".git/"), "{reply}");
    let reply = dir.ok("search_files", json!({ "pattern": "answer", "ignored": true }));
    assert!(reply.contains("target/out.rs:1:") && reply.contains("src/x.log:1:"), "{reply}");
}

#[test]
fn an_invalid_pattern_is_explained() {
    let dir = project();
    dir.fails(
        "search_files",
        json!({ "pattern": "a(b" }),
        &["the argument `pattern`", "a(b", "literal: true"],
    );
    dir.fails("search_files", json!({ "pattern": "" }), &["it is empty"]);
    dir.fails("search_files", json!({ "pattern": "a\nb" }), &["the argument `pattern`"]);
    dir.fails(
        "search_files",
        json!({ "pattern": "x{1000}{1000}{1000}" }),
        &["the argument `pattern`"],
    );
    dir.fails("search_files", json!({ "pattern": "x", "limit": 0 }), &["`limit` is 1 to 1000"]);
    dir.fails("search_files", json!({ "pattern": "x", "path": "scr" }), &["did you mean `src`?"]);
}

#[test]
fn long_results_are_truncated_with_a_note() {
    let dir = TestDirectory::new();
    for number in 0..600 {
        dir.write(&format!("f{number:03}"), "match\n");
    }
    let reply = dir.ok("list_files", json!({}));
    assert!(
        reply.contains("\nf499 (6 bytes)\n[`.`: 500 entries; truncated: there are more"),
        "{reply}"
    );
    let reply = dir.ok("list_files", json!({ "limit": 600 }));
    assert!(reply.ends_with("[`.`: 600 entries]"), "{reply}");
    let reply = dir.ok("search_files", json!({ "pattern": "match" }));
    assert!(
        reply.contains(
            "f099:1: match\n[100 matching lines in 100 files; truncated: there may be more"
        ),
        "{reply}"
    );
    let reply = dir.ok("search_files", json!({ "pattern": "match", "limit": 600 }));
    assert!(reply.ends_with("[600 matching lines in 600 files]"), "{reply}");
    dir.write("big", "match this\n".repeat(100_000));
    let reply = dir.ok("search_files", json!({ "pattern": "this", "limit": 1000 }));
    assert!(
        reply.contains("[1000 matching lines in 1 file; truncated"),
        "{}",
        reply.lines().last().unwrap()
    );
    assert!(reply.len() < 50_000, "{}", reply.len());
}

#[test]
fn a_long_line_is_shown_around_its_match() {
    let dir = TestDirectory::new();
    dir.write("min.js", format!("{}needle{}\n", "a".repeat(10_000), "b".repeat(10_000)));
    let reply = dir.ok("search_files", json!({ "pattern": "needle" }));
    assert!(reply.contains("min.js:1: [truncated: 9900 bytes]aaa"), "{reply}");
    assert!(reply.contains("needle") && reply.len() < 1_000, "{reply}");
}

#[test]
fn other_encodings_are_searched_and_binary_files_are_not() {
    let dir = TestDirectory::new();
    dir.write("data", b"needle\0needle\n");
    let wide: Vec<u8> = "\u{feff}a needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    dir.write("wide.txt", wide);
    dir.write("latin.txt", b"caf\xe9 needle\n");
    let reply = dir.ok("search_files", json!({ "pattern": "needle" }));
    assert!(!reply.contains("data:"), "{reply}");
    assert!(reply.contains("wide.txt:1: a needle"), "{reply}");
    assert!(reply.contains("latin.txt:1: caf\u{fffd} needle"), "{reply}");
}

#[test]
fn invalid_names_are_counted_and_control_characters_are_escaped() {
    let dir = TestDirectory::new();
    dir.write("plain", "needle\n");
    std::fs::write(dir.path("").join(OsStr::from_bytes(b"caf\xe9")), "needle\n").unwrap();
    dir.write("two\nlines", "needle\n");
    let reply = dir.ok("list_files", json!({}));
    assert_eq!(
        reply,
        "plain (7 bytes)\ntwo\\nlines (7 bytes)\n[`.`: 2 entries; omitted names that are not UTF-8: 1]"
    );
    let reply = dir.ok("search_files", json!({ "pattern": "needle" }));
    assert!(reply.contains("two\\nlines:1: needle\n[2 matching lines"), "{reply}");
    assert!(reply.contains("omitted names that are not UTF-8: 1"), "{reply}");
    assert!(dir.ok("read_file", json!({ "path": "two\nlines" })).contains("needle"));
}

#[test]
fn ignore_files_of_parent_directories_apply() {
    let dir = TestDirectory::new();
    std::fs::write(dir.outside(".gitignore"), "*.tmp\n").unwrap();
    dir.write("a.tmp", "");
    dir.write("b", "");
    assert_eq!(dir.ok("list_files", json!({})), "b (0 bytes)\n[`.`: 1 entry]");
}

fn listed(dir: &TestDirectory, arguments: serde_json::Value) -> Vec<String> {
    let reply = dir.ok("list_files", arguments);
    let lines = reply.lines().filter(|line| !line.starts_with('['));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn the_nearest_ignore_file_takes_precedence() {
    let dir = TestDirectory::new();
    let names = ["a.log", "a.tmp", "b.tmp", "own", "sub/a.log", "sub/b.log", "sub/own", "sub/x.o"];
    for name in names.iter().chain(&[".shown", ".hidden", "sub/in/b.log", "up", "sub/up"]) {
        dir.write(name, "");
    }
    std::fs::write(dir.outside(".gitignore"), "up\n").unwrap();
    dir.write(".gitignore", "\u{feff}*.log\n/own\n*.tmp\n!.shown\n# no\n");
    dir.write(".ignore", "!a.tmp\n");
    dir.write(".git/info/exclude", "*.o\n");
    dir.write("sub/.gitignore", "!b.log\n");
    let all = listed(&dir, json!({ "glob": "*" }));
    assert_eq!(all, [".shown", "a.tmp", "sub/b.log", "sub/in/b.log", "sub/own"]);
    let nested = listed(&dir, json!({ "glob": "*", "path": "sub" }));
    assert_eq!(nested, ["sub/b.log", "sub/in/b.log", "sub/own"]);
    let ignored = listed(&dir, json!({ "glob": "*", "path": "sub", "ignored": true }));
    assert_eq!(ignored.len(), 6, "{ignored:?}");
    let reply = dir.ok("search_files", json!({ "pattern": "x", "path": "sub/a.log" }));
    assert_eq!(reply, "[nothing matches]");
}

#[test]
fn ignore_files_that_are_not_plain_are_not_read() {
    let dir = TestDirectory::new();
    dir.write("file", "");
    dir.write("sub/file", "");
    std::fs::write(dir.outside("all"), "*\n").unwrap();
    symlink(dir.outside("all"), dir.path(".gitignore")).unwrap();
    symlink("/dev/zero", dir.path("sub/.gitignore")).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    for pipe in [dir.path(".ignore"), dir.path("sub/.ignore"), dir.outside(".gitignore")] {
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    assert_eq!(listed(&dir, json!({ "glob": "*" })), ["file", "sub/file"]);
}

#[test]
fn the_size_of_ignore_files_is_bounded() {
    let dir = TestDirectory::new();
    for name in ["first", "last", "other"] {
        dir.write(name, "");
    }
    dir.write(".gitignore", format!("first\n{}last\n", "#\n".repeat(1024 * 1024)));
    assert_eq!(listed(&dir, json!({})), ["last", "other"]);
}
