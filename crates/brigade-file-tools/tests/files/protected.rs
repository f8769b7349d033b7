//! What is in `.git` and `.brigade` is read, and not written.

use std::os::unix::fs::symlink;

use brigade_agent::permission::PermissionRules;
use serde_json::{Value, json};

use crate::support::{Desk, parsed};

fn write(path: &str) -> Value {
    json!({ "path": path, "content": "[core]\n\tfsmonitor = ./evil\n" })
}

fn edit(path: &str) -> Value {
    json!({ "path": path, "edits": [{ "old": "bare = false", "new": "fsmonitor = ./evil" }] })
}

#[test]
fn protected_directories_are_not_written_at_any_depth() {
    let desk = Desk::new();
    let paths = [
        ".git/config",
        "a/b/.git/hooks/pre-commit",
        ".brigade/agents/reviewer.md",
        "a/.brigade/x",
        ".GIT/config",
        ".Git/config",
        ".brigade",
        ".g\u{200d}it/config",
        ".git./config",
        "git~1/config",
        "a/../.git/config",
        ".git",
    ];
    for path in paths {
        desk.fails("write_file", write(path), &["do not write to unless"]);
    }
    assert!(desk.names("").is_empty(), "nothing was made");
    desk.put(".git/config", "bare = false\n");
    desk.put("worktree/.git", "gitdir: /elsewhere\n");
    desk.put("modules/sub/.git/config", "bare = false\n");
    desk.fails("edit_file", edit(".git/config"), &["`.git`", "`edit_file(.git/**)`"]);
    desk.fails("edit_file", edit("modules/sub/.git/config"), &["`.git`"]);
    desk.fails("write_file", write("worktree/.git"), &["`.git`"]);
    assert_eq!(desk.has(".git/config"), "bare = false\n");
    assert!(desk.ok("read_file", json!({ "path": ".git/config" })).contains("bare"));
    for fine in [".gitignore", ".github/workflows/a.yml", "git/config", ".brigade.md", "a.git/x"] {
        desk.ok("write_file", write(fine));
    }
}

#[test]
fn a_link_leads_to_no_protected_directory() {
    let desk = Desk::new();
    desk.put(".git/config", "bare = false\n");
    symlink(".git", desk.path("folder")).unwrap();
    symlink(".git/config", desk.path("file")).unwrap();
    symlink(".git/hooks/pre-commit", desk.path("dangling")).unwrap();
    for path in ["folder/config", "folder/hooks/pre-commit", "file", "dangling"] {
        desk.fails("write_file", write(path), &["`.git`"]);
    }
    desk.fails("edit_file", edit("file"), &["`.git`"]);
    assert_eq!(desk.names(".git"), ["config"]);
    assert_eq!(desk.has(".git/config"), "bare = false\n");
}

#[test]
fn a_rule_that_names_the_directory_lets_it_be_written() {
    for rules in [
        PermissionRules {
            allow: Some(parsed(&["write_file", "edit_file(.git/*)"])),
            ..PermissionRules::default()
        },
        PermissionRules { ask: parsed(&["edit_file(.git/**)"]), ..PermissionRules::all() },
    ] {
        let desk = Desk::permitting(rules);
        desk.put(".git/config", "bare = false\n");
        desk.fails("write_file", write(".git/config"), &["`.git`"]);
        desk.fails("edit_file", edit(".git/.brigade/config"), &[""]);
        desk.ok("edit_file", edit(".git/config"));
    }
    // A star is no name, and one name is not the other.
    for rule in
        ["write_file(**)", "write_file(.*/**)", "write_file(.brigade/**)", "read_file(.git/**)"]
    {
        let desk =
            Desk::permitting(PermissionRules { ask: parsed(&[rule]), ..PermissionRules::all() });
        desk.fails("write_file", write(".git/config"), &["`.git`"]);
    }
}
