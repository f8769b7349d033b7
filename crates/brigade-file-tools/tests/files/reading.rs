//! `read_file`.

use serde_json::json;

use crate::support::{Desk, on_a_runtime};

#[test]
fn lines_come_with_their_numbers_and_how_to_read_on() {
    let desk = Desk::new();
    let text: String = (1..=5_000).map(|line| format!("line {line}\n")).collect();
    desk.put("long", &text);
    let told = desk.ok("read_file", json!({ "path": "long" }));
    assert!(told.starts_with("     1\tline 1\n"), "{told}");
    assert!(told.contains("lines 1 to 2000 of 5000"), "{}", told.lines().last().unwrap());
    assert!(told.ends_with("; read on with from_line 2001]"), "{told}");
    let told = desk.ok("read_file", json!({ "path": "long", "from_line": 4999 }));
    assert!(
        told.starts_with(
            "  4999\tline 4999\n  5000\tline 5000\n[`long`: lines 4999 to 5000 of 5000,"
        )
    );
    assert!(!told.contains("read on"), "{told}");
    let told = desk.ok("read_file", json!({ "path": "long", "from_line": 7, "to_line": 7 }));
    assert!(told.starts_with("     7\tline 7\n["), "{told}");
    assert!(told.contains("read on with from_line 8"), "{told}");
    let past = json!({ "path": "long", "from_line": 5001 });
    desk.fails("read_file", past, &["has 5000 lines", "past its end"]);
}

#[test]
fn the_digest_is_that_of_the_whole_file() {
    let desk = Desk::new();
    desk.put("file", "one\ntwo\nthree\n");
    let digest = |told: &str| {
        let (_, rest) = told.split_once("digest ").unwrap();
        rest[..16].to_owned()
    };
    let first = digest(&desk.ok("read_file", json!({ "path": "file", "to_line": 1 })));
    assert_eq!(first, digest(&desk.ok("read_file", json!({ "path": "file" }))));
    desk.put("file", "one\ntwo\nthree!\n");
    assert_ne!(first, digest(&desk.ok("read_file", json!({ "path": "file", "to_line": 1 }))));
}

#[test]
fn small_things_are_told() {
    let desk = Desk::new();
    desk.put("empty", "");
    assert!(
        desk.ok("read_file", json!({ "path": "empty" })).starts_with("[`empty`: empty, 0 bytes")
    );
    desk.put("unended", "a\nb");
    let told = desk.ok("read_file", json!({ "path": "unended" }));
    assert!(told.contains("     2\tb\n[`unended`: lines 1 to 2 of 2, 3 bytes"), "{told}");
    assert!(told.contains("the last line has no line end"), "{told}");
    desk.put("dos", "\u{feff}a\r\nb\r\n");
    let told = desk.ok("read_file", json!({ "path": "dos" }));
    assert!(told.starts_with("     1\ta\n     2\tb\n"), "{told:?}");
    assert!(told.contains("byte order mark") && told.contains("CRLF"), "{told}");
    desk.put("latin", b"caf\xe9\n");
    let told = desk.ok("read_file", json!({ "path": "latin" }));
    assert!(told.contains("caf\u{fffd}") && told.contains("not UTF-8"), "{told}");
    desk.put("blank", "\n\n");
    assert!(desk.ok("read_file", json!({ "path": "blank" })).contains("lines 1 to 2 of 2"));
}

#[test]
fn a_long_line_is_cut_and_can_be_read_on_by_position() {
    let desk = Desk::new();
    let line = "é".repeat(100_000);
    desk.put("minified", format!("{line}\nend\n"));
    let told = desk.ok("read_file", json!({ "path": "minified" }));
    assert!(
        told.contains(" [cut: 198001 more bytes of this line, from offset 2000 on]\n     2\tend\n")
    );
    let told =
        desk.ok("read_file", json!({ "path": "minified", "offset": 2000, "max_bytes": 101 }));
    assert!(told.starts_with(&format!("{}\n[", "é".repeat(50))), "{told}");
    assert!(told.contains("bytes 2000 to 2100 of 200005; read on with offset 2100"), "{told}");
    let told = desk.ok("read_file", json!({ "path": "minified", "offset": 200_001 }));
    assert!(told.contains("end\n[`minified`: bytes 200001 to 200005 of 200005]"), "{told}");
    desk.fails("read_file", json!({ "path": "minified", "offset": 200_005 }), &["past its end"]);
}

#[test]
fn nothing_is_so_long_that_its_middle_would_be_cut() {
    let desk = Desk::new();
    desk.put("wide", format!("{}\n", "x".repeat(1_900)).repeat(1_000));
    for arguments in
        [json!({ "path": "wide" }), json!({ "path": "wide", "offset": 0, "max_bytes": 9_999_999 })]
    {
        let told = desk.ok("read_file", arguments);
        assert!((30_000..50_000).contains(&told.len()), "{}", told.len());
        assert!(told.contains("read on with"), "{}", told.lines().last().unwrap());
    }
}

#[test]
fn a_binary_file_is_told_and_not_shown() {
    let desk = Desk::new();
    desk.put("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    desk.put("data", b"abc\0def");
    let own = std::env::current_exe().unwrap();
    std::fs::hard_link(&own, desk.path("program"))
        .or_else(|_| std::fs::copy(&own, desk.path("program")).map(drop))
        .unwrap();
    desk.fails("read_file", json!({ "path": "image.png" }), &["binary", "a PNG image, 16 bytes"]);
    desk.fails("read_file", json!({ "path": "data" }), &["binary", "7 bytes"]);
    desk.fails("read_file", json!({ "path": "program" }), &["an ELF program"]);
    desk.fails("read_file", json!({ "path": "data", "offset": 0 }), &["binary"]);
}

#[test]
fn what_is_not_there_is_told_with_what_may_be_meant() {
    let desk = Desk::new();
    desk.put("src/main.rs", "");
    desk.fails(
        "read_file",
        json!({ "path": "src/mian.rs" }),
        &["did you mean `main.rs`?", "`src`"],
    );
    desk.fails(
        "read_file",
        json!({ "path": "scr/main.rs" }),
        &["no directory at `scr`", "did you mean `src`"],
    );
    desk.fails(
        "read_file",
        json!({ "path": "quite/another" }),
        &["no directory at `quite`", "list_files"],
    );
    desk.fails("read_file", json!({ "path": "src" }), &["is a directory", "list_files"]);
    desk.fails("read_file", json!({ "path": "src/main.rs/x" }), &["not a directory"]);
    desk.fails("list_files", json!({ "path": "src/main.rs" }), &["no directory", "read_file"]);
    let long = "x".repeat(300);
    desk.fails("read_file", json!({ "path": long }), &["255 bytes"]);
    desk.fails("read_file", json!({ "path": "a\u{0}b" }), &["the argument `path`"]);
    desk.fails("read_file", json!({ "path": "x/".repeat(3_000) }), &["4096 bytes at most"]);
    desk.fails("read_file", json!({ "path": " " }), &["`path` is blank"]);
}

#[test]
fn arguments_that_contradict_each_other_are_refused() {
    let desk = Desk::new();
    desk.put("file", "x");
    for (arguments, word) in [
        (json!({ "path": "file", "from_line": 0 }), "counted from 1"),
        (json!({ "path": "file", "from_line": 3, "to_line": 2 }), "before `from_line`"),
        (json!({ "path": "file", "from_line": 1, "offset": 2 }), "give either"),
        (json!({ "path": "file", "max_bytes": 2 }), "goes with `offset`"),
        (json!({ "path": "file", "offset": 0, "max_bytes": 0 }), "`max_bytes` is 0"),
        (json!({ "path": "file", "lines": 3 }), "unknown argument `lines`"),
        (json!({}), "missing argument `path`"),
        (json!({ "path": 7 }), "`path`"),
    ] {
        desk.fails("read_file", arguments, &[word]);
    }
}

#[test]
fn deep_paths_are_no_trouble() {
    let desk = Desk::new();
    let deep = format!("{}file", "folder/".repeat(200));
    desk.ok("write_file", json!({ "path": deep, "content": "deep\n" }));
    assert!(desk.ok("read_file", json!({ "path": deep })).contains("deep"));
    let found = desk.ok("search_files", json!({ "pattern": "deep" }));
    assert!(found.contains(&format!("{deep}:1: deep")), "{found}");
}

/// As somebody who is not allowed everything. Each thread has its own rights, and those that it starts
/// have the same.
#[test]
fn a_file_that_may_not_be_read_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new();
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(desk.outside(""), mode(0o755)).unwrap();
    std::fs::set_permissions(desk.path(""), mode(0o777)).unwrap();
    std::fs::set_permissions(desk.put("closed", "x"), mode(0o000)).unwrap();
    std::fs::set_permissions(desk.put("fixed", "x"), mode(0o444)).unwrap();
    std::fs::create_dir(desk.path("room")).unwrap();
    std::fs::set_permissions(desk.path("room"), mode(0o000)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_uid(nobody).unwrap();
            }
            desk.fails("read_file", json!({ "path": "closed" }), &["does not permit"]);
            desk.fails("read_file", json!({ "path": "room/x" }), &["does not permit"]);
            desk.fails("list_files", json!({ "path": "room" }), &["does not permit"]);
            let content = json!({ "path": "fixed", "content": "y" });
            desk.fails("write_file", content, &["does not permit"]);
            let found = desk.ok("search_files", json!({ "pattern": "x" }));
            assert!(found.contains("fixed:1: x"), "{found}");
            assert!(found.contains("1 file could not be searched"), "{found}");
            assert!(found.contains("1 could not be read"), "{found}");
        });
    });
    assert_eq!(desk.has("fixed"), "x");
    std::fs::set_permissions(desk.path("room"), mode(0o700)).unwrap();
}

#[test]
fn reading_changes_nothing_and_may_be_repeated() {
    let desk = Desk::new();
    desk.put("file", "x\n");
    for name in ["read_file", "list_files", "search_files"] {
        let hints = desk.tool(name).hints();
        assert_eq!(hints.effect, brigade_agent::ToolEffect::Pure);
        assert!(hints.read_only && !hints.destructive, "{name}");
    }
    // A call that is dropped is of no consequence.
    on_a_runtime(async {
        let call = desk.call("read_file", json!({ "path": "file" }));
        let _ = tokio::time::timeout(std::time::Duration::ZERO, call).await;
    });
    assert_eq!(desk.names(""), ["file"]);
}
