//! What rules say of files, and that a path is judged as what it is.

use std::os::unix::fs::symlink;

use brigade_agent::ToolSubject;
use brigade_agent::permission::PermissionRules;
use serde_json::{Value, json};

use crate::support::{Desk, parsed};

fn subject(desk: &Desk, tool: &str, arguments: Value) -> ToolSubject {
    desk.tool(tool).subject(&arguments)
}

#[test]
fn a_path_is_judged_as_what_it_is() {
    let desk = Desk::new();
    let absolute = desk.path("src/a.rs");
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
            assert_eq!(subject(&desk, tool, arguments), ToolSubject::Text(expect.into()), "{path}");
        }
    }
    assert_eq!(subject(&desk, "list_files", json!({})), ToolSubject::Text(".".into()));
    assert_eq!(
        subject(&desk, "search_files", json!({ "pattern": "x" })),
        ToolSubject::Text(".".into())
    );
    assert_eq!(subject(&desk, "read_file", json!({})), ToolSubject::Nothing);
}

#[test]
fn a_link_to_a_denied_file_is_denied() {
    let desk = Desk::denying(&["read_file(.env*)", "write_file(.env*)", "edit_file(.env*)"]);
    desk.put(".env", "SECRET=1\n");
    desk.put("fine", "text\n");
    symlink(".env", desk.path("plain")).unwrap();
    symlink(".", desk.path("here")).unwrap();
    symlink("fine", desk.path("ok")).unwrap();
    for path in ["plain", "here/.env", "here/here/plain"] {
        let read = json!({ "path": path });
        desk.fails("read_file", read, &["is a link to `.env`", "denies `read_file(.env*)`"]);
        let write = json!({ "path": path, "content": "" });
        desk.fails("write_file", write, &["denies `write_file(.env*)`"]);
        let edit = json!({ "path": path, "edits": [{ "old": "1", "new": "2" }] });
        desk.fails("edit_file", edit, &["denies `edit_file(.env*)`"]);
    }
    assert_eq!(desk.has(".env"), "SECRET=1\n");
    assert!(desk.ok("read_file", json!({ "path": "ok" })).contains("text"));
}

#[test]
fn a_link_out_of_what_is_allowed_is_not_allowed() {
    let desk = Desk::permitting(PermissionRules {
        allow: Some(parsed(&["read_file(src/**)"])),
        ..PermissionRules::all()
    });
    desk.put("src/a", "a\n");
    desk.put("other/b", "b\n");
    symlink("../other/b", desk.path("src/b")).unwrap();
    symlink("a", desk.path("src/c")).unwrap();
    desk.fails(
        "read_file",
        json!({ "path": "src/b" }),
        &["`other/b`", "allows only `read_file(src/**)`"],
    );
    assert!(desk.ok("read_file", json!({ "path": "src/c" })).contains("\ta"));
}

#[test]
fn a_search_shows_nothing_of_what_may_not_be_read() {
    let desk =
        Desk::denying(&["read_file(secrets/**)", "search_files(drafts/*)", "list_files(drafts/*)"]);
    desk.put("secrets/key", "needle\n");
    desk.put("drafts/one", "needle\n");
    desk.put("open", "needle\n");
    let told = desk.ok("search_files", json!({ "pattern": "needle" }));
    assert_eq!(
        told,
        "open:1: needle\n[1 matching line in 1 file; 2 files left out, which you are not permitted to read]"
    );
    let told = desk.ok("search_files", json!({ "pattern": "needle", "path": "secrets/key" }));
    assert!(!told.contains("needle"), "{told}");
    let told = desk.ok("list_files", json!({ "depth": 2 }));
    assert!(told.contains("secrets/key") && !told.contains("drafts/one"), "{told}");
}

#[test]
fn a_search_follows_the_rules_on_reading_only_where_there_are_any() {
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
        let desk = Desk::permitting(rules);
        desk.put("a", "needle\n");
        let told = desk.ok("search_files", json!({ "pattern": "needle" }));
        assert_eq!(told.contains("a:1: needle"), expect, "{allow:?} {deny:?}: {told}");
    }
}

#[test]
fn the_schemas_are_strict() {
    let desk = Desk::new();
    for name in ["read_file", "list_files", "search_files", "write_file", "edit_file"] {
        let spec = desk.tool(name).spec();
        assert_eq!(spec.parameters["additionalProperties"], json!(false), "{name}");
        assert_eq!(spec.parameters["type"], json!("object"), "{name}");
        for (argument, schema) in spec.parameters["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}.{argument}: {schema}");
        }
    }
    let edit = &desk.tool("edit_file").spec().parameters["properties"]["edits"]["items"];
    assert_eq!(edit["additionalProperties"], json!(false));
    assert_eq!(edit["required"], json!(["old", "new"]));
}

#[test]
fn a_link_to_what_is_asked_about_is_not_the_way_around_it() {
    let ask = vec!["read_file(secret)".parse().unwrap()];
    let desk = Desk::permitting(PermissionRules { ask, ..PermissionRules::all() });
    desk.put("secret", "soup\n");
    symlink("secret", desk.path("plain")).unwrap();
    desk.fails("read_file", json!({ "path": "plain" }), &["link to `secret`", "outright"]);
}
