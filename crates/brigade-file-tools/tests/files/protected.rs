//! Tests that `.git` and `.brigade` can be read and not written.

use std::os::unix::fs::symlink;

use brigade_agent::permission::PermissionRules;
use serde_json::{Value, json};

use crate::support::{TestDirectory, parsed};

fn write(path: &str) -> Value {
    json!({ "path": path, "content": "[core]\n\tfsmonitor = ./evil\n" })
}

fn edit(path: &str) -> Value {
    json!({ "path": path, "edits": [{ "old": "bare = false", "new": "fsmonitor = ./evil" }] })
}

#[test]
fn protected_directories_are_not_written_at_any_depth() {
    let dir = TestDirectory::new();
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
        dir.fails("write_file", write(path), &["do not write to unless"]);
    }
    assert!(dir.names("").is_empty(), "nothing was created");
    dir.write(".git/config", "bare = false\n");
    dir.write("worktree/.git", "gitdir: /elsewhere\n");
    dir.write("modules/sub/.git/config", "bare = false\n");
    dir.fails("edit_file", edit(".git/config"), &["`.git`", "`edit_file(.git/**)`"]);
    dir.fails("edit_file", edit("modules/sub/.git/config"), &["`.git`"]);
    dir.fails("write_file", write("worktree/.git"), &["`.git`"]);
    assert_eq!(dir.content(".git/config"), "bare = false\n");
    assert!(dir.ok("read_file", json!({ "path": ".git/config" })).contains("bare"));
    for fine in [".gitignore", ".github/workflows/a.yml", "git/config", ".brigade.md", "a.git/x"] {
        dir.ok("write_file", write(fine));
    }
}

#[test]
fn a_link_does_not_bypass_the_protection() {
    let dir = TestDirectory::new();
    dir.write(".git/config", "bare = false\n");
    symlink(".git", dir.path("directory")).unwrap();
    symlink(".git/config", dir.path("file")).unwrap();
    symlink(".git/hooks/pre-commit", dir.path("dangling")).unwrap();
    for path in ["directory/config", "directory/hooks/pre-commit", "file", "dangling"] {
        dir.fails("write_file", write(path), &["`.git`"]);
    }
    dir.fails("edit_file", edit("file"), &["`.git`"]);
    assert_eq!(dir.names(".git"), ["config"]);
    assert_eq!(dir.content(".git/config"), "bare = false\n");
}

#[test]
fn a_rule_that_names_the_directory_allows_writing() {
    for rules in [
        PermissionRules {
            allow: Some(parsed(&["write_file", "edit_file(.git/*)"])),
            ..PermissionRules::default()
        },
        PermissionRules { ask: parsed(&["edit_file(.git/**)"]), ..PermissionRules::all() },
    ] {
        let dir = TestDirectory::permitting(rules);
        dir.write(".git/config", "bare = false\n");
        dir.fails("write_file", write(".git/config"), &["`.git`"]);
        dir.fails("edit_file", edit(".git/.brigade/config"), &[""]);
        dir.ok("edit_file", edit(".git/config"));
    }
    // A star does not name a directory, and each directory needs its own rule.
    for rule in
        ["write_file(**)", "write_file(.*/**)", "write_file(.brigade/**)", "read_file(.git/**)"]
    {
        let dir = TestDirectory::permitting(PermissionRules {
            ask: parsed(&[rule]),
            ..PermissionRules::all()
        });
        dir.fails("write_file", write(".git/config"), &["`.git`"]);
    }
}
