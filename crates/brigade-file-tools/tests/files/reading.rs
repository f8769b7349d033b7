//! Tests of `read_file`.

use serde_json::json;

use crate::support::{TestDirectory, block_on};

#[test]
fn lines_are_numbered_and_can_be_continued() {
    let dir = TestDirectory::new();
    let text: String = (1..=5_000).map(|line| format!("line {line}\n")).collect();
    dir.write("long", &text);
    let reply = dir.ok("read_file", json!({ "path": "long" }));
    assert!(reply.starts_with("     1\tline 1\n"), "{reply}");
    assert!(reply.contains("lines 1 to 2000 of 5000"), "{}", reply.lines().last().unwrap());
    assert!(reply.ends_with("; continue with from_line 2001]"), "{reply}");
    let reply = dir.ok("read_file", json!({ "path": "long", "from_line": 4999 }));
    assert!(
        reply.starts_with(
            "  4999\tline 4999\n  5000\tline 5000\n[`long`: lines 4999 to 5000 of 5000,"
        )
    );
    assert!(!reply.contains("continue"), "{reply}");
    let reply = dir.ok("read_file", json!({ "path": "long", "from_line": 7, "to_line": 7 }));
    assert!(reply.starts_with("     7\tline 7\n["), "{reply}");
    assert!(reply.contains("continue with from_line 8"), "{reply}");
    let past = json!({ "path": "long", "from_line": 5001 });
    dir.fails("read_file", past, &["has 5000 lines", "past its end"]);
}

#[test]
fn the_digest_covers_the_whole_file() {
    let dir = TestDirectory::new();
    dir.write("file", "one\ntwo\nthree\n");
    let digest = |reply: &str| {
        let (_, rest) = reply.split_once("digest ").unwrap();
        rest[..16].to_owned()
    };
    let first = digest(&dir.ok("read_file", json!({ "path": "file", "to_line": 1 })));
    assert_eq!(first, digest(&dir.ok("read_file", json!({ "path": "file" }))));
    dir.write("file", "one\ntwo\nthree!\n");
    assert_ne!(first, digest(&dir.ok("read_file", json!({ "path": "file", "to_line": 1 }))));
}

#[test]
fn special_properties_are_noted() {
    let dir = TestDirectory::new();
    dir.write("empty", "");
    assert!(
        dir.ok("read_file", json!({ "path": "empty" })).starts_with("[`empty`: empty, 0 bytes")
    );
    dir.write("unended", "a\nb");
    let reply = dir.ok("read_file", json!({ "path": "unended" }));
    assert!(reply.contains("     2\tb\n[`unended`: lines 1 to 2 of 2, 3 bytes"), "{reply}");
    assert!(reply.contains("the last line has no line end"), "{reply}");
    dir.write("dos", "\u{feff}a\r\nb\r\n");
    let reply = dir.ok("read_file", json!({ "path": "dos" }));
    assert!(reply.starts_with("     1\ta\n     2\tb\n"), "{reply:?}");
    assert!(reply.contains("byte order mark") && reply.contains("CRLF"), "{reply}");
    dir.write("latin", b"caf\xe9\n");
    let reply = dir.ok("read_file", json!({ "path": "latin" }));
    assert!(reply.contains("caf\u{fffd}") && reply.contains("not UTF-8"), "{reply}");
    dir.write("blank", "\n\n");
    assert!(dir.ok("read_file", json!({ "path": "blank" })).contains("lines 1 to 2 of 2"));
}

#[test]
fn a_long_line_is_truncated_and_can_be_continued_by_offset() {
    let dir = TestDirectory::new();
    let line = "é".repeat(100_000);
    dir.write("minified", format!("{line}\nend\n"));
    let reply = dir.ok("read_file", json!({ "path": "minified" }));
    assert!(reply.contains(
        " [truncated: 198001 more bytes of this line, from offset 2000 on]\n     2\tend\n"
    ));
    let reply =
        dir.ok("read_file", json!({ "path": "minified", "offset": 2000, "max_bytes": 101 }));
    assert!(reply.starts_with(&format!("{}\n[", "é".repeat(50))), "{reply}");
    assert!(reply.contains("bytes 2000 to 2100 of 200005; continue with offset 2100"), "{reply}");
    let reply = dir.ok("read_file", json!({ "path": "minified", "offset": 200_001 }));
    assert!(reply.contains("end\n[`minified`: bytes 200001 to 200005 of 200005]"), "{reply}");
    dir.fails("read_file", json!({ "path": "minified", "offset": 200_005 }), &["past its end"]);
}

#[test]
fn no_reply_exceeds_the_limit_of_a_tool_result() {
    let dir = TestDirectory::new();
    dir.write("wide", format!("{}\n", "x".repeat(1_900)).repeat(1_000));
    for arguments in
        [json!({ "path": "wide" }), json!({ "path": "wide", "offset": 0, "max_bytes": 9_999_999 })]
    {
        let reply = dir.ok("read_file", arguments);
        assert!((30_000..50_000).contains(&reply.len()), "{}", reply.len());
        assert!(reply.contains("continue with"), "{}", reply.lines().last().unwrap());
    }
}

#[test]
fn a_binary_file_is_described_and_not_shown() {
    let dir = TestDirectory::new();
    dir.write("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    dir.write("data", b"abc\0def");
    let own = std::env::current_exe().unwrap();
    std::fs::hard_link(&own, dir.path("program"))
        .or_else(|_| std::fs::copy(&own, dir.path("program")).map(drop))
        .unwrap();
    dir.fails("read_file", json!({ "path": "image.png" }), &["binary", "a PNG image, 16 bytes"]);
    dir.fails("read_file", json!({ "path": "data" }), &["binary", "7 bytes"]);
    dir.fails("read_file", json!({ "path": "program" }), &["an ELF program"]);
    dir.fails("read_file", json!({ "path": "data", "offset": 0 }), &["binary"]);
}

#[test]
fn a_missing_path_is_reported_with_a_suggestion() {
    let dir = TestDirectory::new();
    dir.write("src/main.rs", "");
    dir.fails("read_file", json!({ "path": "src/mian.rs" }), &["did you mean `main.rs`?", "`src`"]);
    dir.fails(
        "read_file",
        json!({ "path": "scr/main.rs" }),
        &["no directory at `scr`", "did you mean `src`"],
    );
    dir.fails(
        "read_file",
        json!({ "path": "quite/another" }),
        &["no directory at `quite`", "list_files"],
    );
    dir.fails("read_file", json!({ "path": "src" }), &["is a directory", "list_files"]);
    dir.fails("read_file", json!({ "path": "src/main.rs/x" }), &["not a directory"]);
    dir.fails("list_files", json!({ "path": "src/main.rs" }), &["not a directory", "read_file"]);
    let long = "x".repeat(300);
    dir.fails("read_file", json!({ "path": long }), &["255 bytes"]);
    dir.fails("read_file", json!({ "path": "a\u{0}b" }), &["the argument `path`"]);
    dir.fails("read_file", json!({ "path": "x/".repeat(3_000) }), &["4096 bytes at most"]);
    dir.fails("read_file", json!({ "path": " " }), &["`path` is blank"]);
}

#[test]
fn contradictory_arguments_are_refused() {
    let dir = TestDirectory::new();
    dir.write("file", "x");
    for (arguments, text) in [
        (json!({ "path": "file", "from_line": 0 }), "counted from 1"),
        (json!({ "path": "file", "from_line": 3, "to_line": 2 }), "before `from_line`"),
        (json!({ "path": "file", "from_line": 1, "offset": 2 }), "give either"),
        (json!({ "path": "file", "max_bytes": 2 }), "goes with `offset`"),
        (json!({ "path": "file", "offset": 0, "max_bytes": 0 }), "`max_bytes` is 0"),
        (json!({ "path": "file", "lines": 3 }), "unknown argument `lines`"),
        (json!({}), "missing argument `path`"),
        (json!({ "path": 7 }), "`path`"),
    ] {
        dir.fails("read_file", arguments, &[text]);
    }
}

#[test]
fn deep_paths_work() {
    let dir = TestDirectory::new();
    let deep = format!("{}file", "directory/".repeat(200));
    dir.ok("write_file", json!({ "path": deep, "content": "deep\n" }));
    assert!(dir.ok("read_file", json!({ "path": deep })).contains("deep"));
    let found = dir.ok("search_files", json!({ "pattern": "deep" }));
    assert!(found.contains(&format!("{deep}:1: deep")), "{found}");
}

/// Runs as a user without root's rights. Each thread has its own uid, and the threads that it
/// starts inherit it.
#[test]
fn a_file_without_permission_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TestDirectory::new();
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(dir.outside(""), mode(0o755)).unwrap();
    std::fs::set_permissions(dir.path(""), mode(0o777)).unwrap();
    std::fs::set_permissions(dir.write("closed", "x"), mode(0o000)).unwrap();
    std::fs::set_permissions(dir.write("fixed", "x"), mode(0o444)).unwrap();
    std::fs::create_dir(dir.path("closed-dir")).unwrap();
    std::fs::set_permissions(dir.path("closed-dir"), mode(0o000)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_uid(nobody).unwrap();
            }
            dir.fails("read_file", json!({ "path": "closed" }), &["does not permit"]);
            dir.fails("read_file", json!({ "path": "closed-dir/x" }), &["does not permit"]);
            dir.fails("list_files", json!({ "path": "closed-dir" }), &["does not permit"]);
            let content = json!({ "path": "fixed", "content": "y" });
            dir.fails("write_file", content, &["does not permit"]);
            let found = dir.ok("search_files", json!({ "pattern": "x" }));
            assert!(found.contains("fixed:1: x"), "{found}");
            assert!(found.contains("1 file could not be searched"), "{found}");
            assert!(found.contains("unreadable entries: 1"), "{found}");
        });
    });
    assert_eq!(dir.content("fixed"), "x");
    std::fs::set_permissions(dir.path("closed-dir"), mode(0o700)).unwrap();
}

#[test]
fn reading_is_pure_and_can_be_repeated() {
    let dir = TestDirectory::new();
    dir.write("file", "x\n");
    for name in ["read_file", "list_files", "search_files"] {
        let hints = dir.tool(name).hints();
        assert_eq!(hints.effect, brigade_agent::ToolEffect::Pure);
        assert!(hints.read_only && !hints.destructive, "{name}");
    }
    // A dropped call has no effect.
    block_on(async {
        let call = dir.call("read_file", json!({ "path": "file" }));
        let _ = tokio::time::timeout(std::time::Duration::ZERO, call).await;
    });
    assert_eq!(dir.names(""), ["file"]);
}
