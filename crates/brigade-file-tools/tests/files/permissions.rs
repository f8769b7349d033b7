//! Tests of permission rules for files, matched against normalised paths.

use std::os::unix::fs::symlink;

use brigade_agent::ToolSubject;
use brigade_agent::permission::PermissionRules;
use serde_json::{Value, json};

use crate::support::{TestDirectory, parsed};

fn subject(dir: &TestDirectory, tool: &str, arguments: Value) -> ToolSubject {
    dir.tool(tool).handler().subject(&arguments)
}

#[test]
fn a_path_is_matched_in_normalised_form() {
    let dir = TestDirectory::new();
    let absolute = dir.path("src/a.rs");
    for (path, expect) in [
        ("./src/../.env", ".env"),
        ("src//a.rs", "src/a.rs"),
        (absolute.to_str().unwrap(), "src/a.rs"),
        ("src/..", "."),
        ("../x", "../x"),
    ] {
        for (tool, rest) in [("read_file", json!({})), ("write_file", json!({ "content": "" }))] {
            let mut arguments = rest;
            arguments["path"] = json!(path);
            assert_eq!(subject(&dir, tool, arguments), ToolSubject::Text(expect.into()), "{path}");
        }
    }
    assert_eq!(subject(&dir, "list_files", json!({})), ToolSubject::Text(".".into()));
    assert_eq!(
        subject(&dir, "search_files", json!({ "pattern": "x" })),
        ToolSubject::Text(".".into())
    );
    assert_eq!(subject(&dir, "read_file", json!({})), ToolSubject::Nothing);
}

#[test]
fn a_link_to_a_denied_file_is_denied() {
    let dir =
        TestDirectory::denying(&["read_file(.env*)", "write_file(.env*)", "edit_file(.env*)"]);
    dir.write(".env", "SECRET=1\n");
    dir.write("fine", "text\n");
    symlink(".env", dir.path("plain")).unwrap();
    symlink(".", dir.path("here")).unwrap();
    symlink("fine", dir.path("ok")).unwrap();
    for path in ["plain", "here/.env", "here/here/plain"] {
        let read = json!({ "path": path });
        dir.fails("read_file", read, &["is a link to `.env`", "denies `read_file(.env*)`"]);
        let write = json!({ "path": path, "content": "" });
        dir.fails("write_file", write, &["denies `write_file(.env*)`"]);
        let edit = json!({ "path": path, "edits": [{ "old": "1", "new": "2" }] });
        dir.fails("edit_file", edit, &["denies `edit_file(.env*)`"]);
    }
    assert_eq!(dir.content(".env"), "SECRET=1\n");
    assert!(dir.ok("read_file", json!({ "path": "ok" })).contains("text"));
}

#[test]
fn a_link_to_a_path_that_is_not_allowed_is_refused() {
    let dir = TestDirectory::permitting(PermissionRules {
        allow: Some(parsed(&["read_file(src/**)"])),
        ..PermissionRules::all()
    });
    dir.write("src/a", "a\n");
    dir.write("other/b", "b\n");
    symlink("../other/b", dir.path("src/b")).unwrap();
    symlink("a", dir.path("src/c")).unwrap();
    dir.fails(
        "read_file",
        json!({ "path": "src/b" }),
        &["`other/b`", "allows only `read_file(src/**)`"],
    );
    assert!(dir.ok("read_file", json!({ "path": "src/c" })).contains("\ta"));
}

#[test]
fn a_search_omits_files_that_may_not_be_read() {
    let dir = TestDirectory::denying(&[
        "read_file(secrets/**)",
        "search_files(drafts/*)",
        "list_files(drafts/*)",
    ]);
    dir.write("secrets/key", "needle\n");
    dir.write("drafts/one", "needle\n");
    dir.write("open", "needle\n");
    let reply = dir.ok("search_files", json!({ "pattern": "needle" }));
    assert_eq!(
        reply,
        "open:1: needle\n[1 matching line in 1 file; 2 files omitted that you are not permitted to read]"
    );
    let reply = dir.ok("search_files", json!({ "pattern": "needle", "path": "secrets/key" }));
    assert!(!reply.contains("needle"), "{reply}");
    let reply = dir.ok("list_files", json!({ "depth": 2 }));
    assert!(reply.contains("secrets/key") && !reply.contains("drafts/one"), "{reply}");
}

#[test]
fn a_search_respects_rules_for_read_file_if_there_are_any() {
    for (allow, deny, expect) in [
        (&["search_files"][..], &[][..], true),
        (&["search_files", "read_file(src/**)"], &[], false),
        (&["search_files", "read_file(a)"], &[], true),
        (&["search_files"], &["read_file"], false),
        (&["search_files"], &["read_file(a)"], false),
        (&["*"], &[], true),
    ] {
        let mut rules = PermissionRules::all();
        rules.allow = Some(parsed(allow));
        rules.deny = parsed(deny);
        let dir = TestDirectory::permitting(rules);
        dir.write("a", "needle\n");
        let reply = dir.ok("search_files", json!({ "pattern": "needle" }));
        assert_eq!(reply.contains("a:1: needle"), expect, "{allow:?} {deny:?}: {reply}");
    }
}

#[test]
fn the_schemas_are_strict() {
    let dir = TestDirectory::new();
    for name in ["read_file", "list_files", "search_files", "write_file", "edit_file"] {
        let spec = dir.tool(name).spec();
        assert_eq!(spec.parameters["additionalProperties"], json!(false), "{name}");
        assert_eq!(spec.parameters["type"], json!("object"), "{name}");
        for (argument, schema) in spec.parameters["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}.{argument}: {schema}");
        }
    }
    let edit = &dir.tool("edit_file").spec().parameters["properties"]["edits"]["items"];
    assert_eq!(edit["additionalProperties"], json!(false));
    assert_eq!(edit["required"], json!(["old", "new"]));
}

#[test]
fn a_link_does_not_bypass_an_ask_rule() {
    let ask = vec!["read_file(secret)".parse().unwrap()];
    let dir = TestDirectory::permitting(PermissionRules { ask, ..PermissionRules::all() });
    dir.write("secret", "soup\n");
    symlink("secret", dir.path("plain")).unwrap();
    dir.fails("read_file", json!({ "path": "plain" }), &["link to `secret`", "outright"]);
}
