//! `list_files` and `search_files`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::Desk;

fn project() -> Desk {
    let desk = Desk::new();
    desk.put("src/main.rs", "fn main() {\n    let answer = 42;\n}\n");
    desk.put("src/deep/lib.rs", "pub fn answer() -> u8 { 42 }\n");
    desk.put("README.md", "The Answer.\n");
    desk.put(".env", "ANSWER=42\n");
    desk.put(".git/config", "answer\n");
    desk.put("target/out.rs", "answer\n");
    desk.put(".gitignore", "target/\n*.log\n");
    desk.put("src/x.log", "answer\n");
    desk
}

#[test]
fn a_list_leaves_out_what_is_hidden_and_what_git_ignores() {
    let desk = project();
    assert_eq!(desk.ok("list_files", json!({})), "README.md (12 bytes)\nsrc/\n[`.`: 2 entries]");
    let all = desk.ok("list_files", json!({ "hidden": true, "ignored": true }));
    assert_eq!(
        all,
        ".env (10 bytes)\n.gitignore (14 bytes)\nREADME.md (12 bytes)\nsrc/\ntarget/\n[`.`: 5 entries]"
    );
    let below = desk.ok("list_files", json!({ "path": "src", "depth": 2 }));
    assert!(below.starts_with("src/deep/\nsrc/deep/lib.rs (29 bytes)\nsrc/main.rs ("), "{below}");
    // What is asked for by its name is shown.
    assert!(desk.ok("list_files", json!({ "path": "target" })).contains("target/out.rs"));
}

#[test]
fn files_are_found_by_name() {
    let desk = project();
    let found = |glob: &str| {
        let told = desk.ok("list_files", json!({ "glob": glob }));
        let lines = told.lines().filter(|line| !line.starts_with('['));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("*.rs"), ["src/deep/lib.rs", "src/main.rs"]);
    assert_eq!(found("src/*.rs"), ["src/main.rs"]);
    assert_eq!(found("**/deep/*"), ["src/deep/lib.rs"]);
    assert_eq!(found("*.py"), [""; 0]);
    desk.fails("list_files", json!({ "glob": "[" }), &["the argument `glob`"]);
    desk.fails("list_files", json!({ "glob": "" }), &["the argument `glob`", "blank"]);
}

#[test]
fn a_search_tells_file_line_and_text() {
    let desk = project();
    let told = desk.ok("search_files", json!({ "pattern": "answer" }));
    assert_eq!(
        told,
        "src/deep/lib.rs:1: pub fn answer() -> u8 { 42 }\n\
         src/main.rs:2:     let answer = 42;\n\
         [2 matching lines in 2 files]"
    );
    let told = desk.ok(
        "search_files",
        json!({ "pattern": "answer", "ignore_case": true, "files_only": true }),
    );
    assert_eq!(told, "README.md\nsrc/deep/lib.rs\nsrc/main.rs\n[3 matching files]");
    let told =
        desk.ok("search_files", json!({ "pattern": "^ +let", "context": 1, "glob": "*.rs" }));
    assert_eq!(
        told,
        "src/main.rs-1- fn main() {\nsrc/main.rs:2:     let answer = 42;\nsrc/main.rs-3- }\n\
         [1 matching line in 1 file]"
    );
    let told = desk.ok("search_files", json!({ "pattern": "answer()", "literal": true }));
    assert!(told.starts_with("src/deep/lib.rs:1:"), "{told}");
    let told = desk.ok("search_files", json!({ "pattern": "ANSWER", "path": ".env" }));
    assert!(told.starts_with(".env:1: ANSWER=42"), "{told}");
    let told = desk.ok("search_files", json!({ "pattern": "ANSWER", "hidden": true }));
    assert!(told.contains(".env:1:") && !told.contains(".git/"), "{told}");
    let told = desk.ok("search_files", json!({ "pattern": "answer", "ignored": true }));
    assert!(told.contains("target/out.rs:1:") && told.contains("src/x.log:1:"), "{told}");
}

#[test]
fn a_pattern_that_is_none_is_told_with_the_place() {
    let desk = project();
    desk.fails(
        "search_files",
        json!({ "pattern": "a(b" }),
        &["the argument `pattern`", "a(b", "literal: true"],
    );
    desk.fails("search_files", json!({ "pattern": "" }), &["it is empty"]);
    desk.fails("search_files", json!({ "pattern": "a\nb" }), &["the argument `pattern`"]);
    desk.fails(
        "search_files",
        json!({ "pattern": "x{1000}{1000}{1000}" }),
        &["the argument `pattern`"],
    );
    desk.fails("search_files", json!({ "pattern": "x", "limit": 0 }), &["`limit` is 1 to 1000"]);
    desk.fails("search_files", json!({ "pattern": "x", "path": "scr" }), &["did you mean `src`?"]);
}

#[test]
fn what_there_is_too_much_of_is_cut_with_a_mark() {
    let desk = Desk::new();
    for number in 0..600 {
        desk.put(&format!("f{number:03}"), "match\n");
    }
    let told = desk.ok("list_files", json!({}));
    assert!(told.contains("\nf499 (6 bytes)\n[`.`: 500 entries; cut: there are more"), "{told}");
    let told = desk.ok("list_files", json!({ "limit": 600 }));
    assert!(told.ends_with("[`.`: 600 entries]"), "{told}");
    let told = desk.ok("search_files", json!({ "pattern": "match" }));
    assert!(
        told.contains("f099:1: match\n[100 matching lines in 100 files; cut: there may be more"),
        "{told}"
    );
    let told = desk.ok("search_files", json!({ "pattern": "match", "limit": 600 }));
    assert!(told.ends_with("[600 matching lines in 600 files]"), "{told}");
    desk.put("big", "match this\n".repeat(100_000));
    let told = desk.ok("search_files", json!({ "pattern": "this", "limit": 1000 }));
    assert!(
        told.contains("[1000 matching lines in 1 file; cut"),
        "{}",
        told.lines().last().unwrap()
    );
    assert!(told.len() < 50_000, "{}", told.len());
}

#[test]
fn a_long_line_is_shown_around_its_match() {
    let desk = Desk::new();
    desk.put("min.js", format!("{}needle{}\n", "a".repeat(10_000), "b".repeat(10_000)));
    let told = desk.ok("search_files", json!({ "pattern": "needle" }));
    assert!(told.contains("min.js:1: [cut: 9900 bytes]aaa"), "{told}");
    assert!(told.contains("needle") && told.len() < 1_000, "{told}");
}

#[test]
fn binary_files_are_not_searched_and_other_encodings_are() {
    let desk = Desk::new();
    desk.put("data", b"needle\0needle\n");
    let wide: Vec<u8> = "\u{feff}a needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    desk.put("wide.txt", wide);
    desk.put("latin.txt", b"caf\xe9 needle\n");
    let told = desk.ok("search_files", json!({ "pattern": "needle" }));
    assert!(!told.contains("data:"), "{told}");
    assert!(told.contains("wide.txt:1: a needle"), "{told}");
    assert!(told.contains("latin.txt:1: caf\u{fffd} needle"), "{told}");
}

#[test]
fn names_that_are_not_text_are_counted_and_odd_ones_stay_on_their_line() {
    let desk = Desk::new();
    desk.put("plain", "needle\n");
    std::fs::write(desk.path("").join(OsStr::from_bytes(b"caf\xe9")), "needle\n").unwrap();
    desk.put("two\nlines", "needle\n");
    let told = desk.ok("list_files", json!({}));
    assert_eq!(
        told,
        "plain (7 bytes)\ntwo\\nlines (7 bytes)\n[`.`: 2 entries; 1 left out, whose names are not UTF-8]"
    );
    let told = desk.ok("search_files", json!({ "pattern": "needle" }));
    assert!(told.contains("two\\nlines:1: needle\n[2 matching lines"), "{told}");
    assert!(told.contains("1 left out, whose names are not UTF-8"), "{told}");
    assert!(desk.ok("read_file", json!({ "path": "two\nlines" })).contains("needle"));
}

#[test]
fn a_rule_of_a_folder_above_counts_too() {
    let desk = Desk::new();
    std::fs::write(desk.outside(".gitignore"), "*.tmp\n").unwrap();
    desk.put("a.tmp", "");
    desk.put("b", "");
    assert_eq!(desk.ok("list_files", json!({})), "b (0 bytes)\n[`.`: 1 entry]");
}

fn listed(desk: &Desk, arguments: serde_json::Value) -> Vec<String> {
    let told = desk.ok("list_files", arguments);
    let lines = told.lines().filter(|line| !line.starts_with('['));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn rules_of_git_hold_from_the_nearest_folder_up() {
    let desk = Desk::new();
    let names = ["a.log", "a.tmp", "b.tmp", "own", "sub/a.log", "sub/b.log", "sub/own", "sub/x.o"];
    for name in names.iter().chain(&[".shown", ".hidden", "sub/in/b.log", "up", "sub/up"]) {
        desk.put(name, "");
    }
    std::fs::write(desk.outside(".gitignore"), "up\n").unwrap();
    desk.put(".gitignore", "\u{feff}*.log\n/own\n*.tmp\n!.shown\n# no\n");
    desk.put(".ignore", "!a.tmp\n");
    desk.put(".git/info/exclude", "*.o\n");
    desk.put("sub/.gitignore", "!b.log\n");
    let all = listed(&desk, json!({ "glob": "*" }));
    assert_eq!(all, [".shown", "a.tmp", "sub/b.log", "sub/in/b.log", "sub/own"]);
    let below = listed(&desk, json!({ "glob": "*", "path": "sub" }));
    assert_eq!(below, ["sub/b.log", "sub/in/b.log", "sub/own"]);
    let ignored = listed(&desk, json!({ "glob": "*", "path": "sub", "ignored": true }));
    assert_eq!(ignored.len(), 6, "{ignored:?}");
    let told = desk.ok("search_files", json!({ "pattern": "x", "path": "sub/a.log" }));
    assert_eq!(told, "[nothing matches]");
}

#[test]
fn rules_of_git_that_are_no_plain_file_are_not_read() {
    let desk = Desk::new();
    desk.put("file", "");
    desk.put("sub/file", "");
    std::fs::write(desk.outside("all"), "*\n").unwrap();
    symlink(desk.outside("all"), desk.path(".gitignore")).unwrap();
    symlink("/dev/zero", desk.path("sub/.gitignore")).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    for pipe in [desk.path(".ignore"), desk.path("sub/.ignore"), desk.outside(".gitignore")] {
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    assert_eq!(listed(&desk, json!({ "glob": "*" })), ["file", "sub/file"]);
}

#[test]
fn rules_of_git_are_read_as_far_as_is_sensible() {
    let desk = Desk::new();
    for name in ["first", "last", "other"] {
        desk.put(name, "");
    }
    desk.put(".gitignore", format!("first\n{}last\n", "#\n".repeat(1024 * 1024)));
    assert_eq!(listed(&desk, json!({})), ["last", "other"]);
}
