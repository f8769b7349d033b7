//! Nothing leads out of the directory.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use serde_json::{Value, json};

use crate::support::{Desk, names, on_a_runtime};

/// Each tool on a path.
fn calls(path: &str) -> [(&'static str, Value); 5] {
    [
        ("read_file", json!({ "path": path })),
        ("list_files", json!({ "path": path })),
        ("search_files", json!({ "path": path, "pattern": "." })),
        ("write_file", json!({ "path": path, "content": "mine" })),
        ("edit_file", json!({ "path": path, "edits": [{ "old": "SECRET", "new": "mine" }] })),
    ]
}

#[track_caller]
fn all_fail(desk: &Desk, path: &str, word: &str) {
    for (tool, arguments) in calls(path) {
        desk.fails(tool, arguments, &[word]);
    }
}

#[test]
fn dots_and_absolute_paths_do_not_lead_out() {
    let desk = Desk::new();
    std::fs::write(desk.outside("secret"), "SECRET").unwrap();
    desk.put("a/b", "inside");
    let outside = desk.outside("secret");
    for path in ["../secret", "a/../../secret", "/etc/passwd", outside.to_str().unwrap(), "/"] {
        all_fail(&desk, path, "outside of your directory");
    }
    // A directory that only begins like ours is another one.
    std::fs::create_dir(desk.outside("desk2")).unwrap();
    all_fail(&desk, desk.outside("desk2").to_str().unwrap(), "outside of your directory");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "SECRET");
}

#[test]
fn paths_within_are_taken_however_they_are_written() {
    let desk = Desk::new();
    let file = desk.put("a/b", "inside\n");
    for path in ["a/b", "./a//b", "a/../a/./b", file.to_str().unwrap(), "a/c/../b"] {
        assert!(desk.ok("read_file", json!({ "path": path })).contains("1\tinside"), "{path}");
    }
    let whole = desk.path("");
    assert!(desk.ok("list_files", json!({ "path": whole.to_str().unwrap() })).contains("a/"));
}

#[test]
fn a_directory_that_is_reached_through_a_link_is_known_by_both_names() {
    let desk = Desk::new();
    desk.put("file", "inside\n");
    symlink(desk.path(""), desk.outside("other")).unwrap();
    let rules = brigade_agent::permission::PermissionRules::all();
    let permissions = brigade_agent::permission::Permissions::of("the operator", rules);
    let workspace =
        brigade_file_tools::WorkingDirectory::new(desk.outside("other"), permissions);
    let [read, ..] = brigade_file_tools::file_tools(workspace);
    for path in [desk.outside("other/file"), desk.path("file")] {
        let call =
            brigade_agent::ToolInvocation::standalone(json!({ "path": path.to_str().unwrap() }));
        let told = on_a_runtime(read.call(call));
        assert!(format!("{told:?}").contains("inside"), "{told:?}");
    }
}

#[test]
fn links_do_not_lead_out() {
    let desk = Desk::new();
    std::fs::create_dir(desk.outside("other")).unwrap();
    std::fs::write(desk.outside("other/secret"), "SECRET").unwrap();
    symlink("../other/secret", desk.path("file")).unwrap();
    symlink(desk.outside("other/secret"), desk.path("absolute")).unwrap();
    symlink("../other", desk.path("folder")).unwrap();
    symlink("folder", desk.path("twice")).unwrap();
    symlink("/proc/self/cwd", desk.path("magic")).unwrap();
    symlink("../other/new", desk.path("dangling")).unwrap();
    for path in ["file", "absolute", "folder/secret", "twice/secret", "magic", "dangling", "folder"]
    {
        all_fail(&desk, path, "leads out of your directory");
    }
    desk.fails("write_file", json!({ "path": "folder/new", "content": "x" }), &["leads out"]);
    assert_eq!(names(&desk.outside("other")), ["secret"]);
    assert_eq!(std::fs::read_to_string(desk.outside("other/secret")).unwrap(), "SECRET");
    // Neither do a list and a search go through them.
    let listed = desk.ok("list_files", json!({ "depth": 9 }));
    assert!(!listed.contains("folder/"), "{listed}");
    assert!(listed.contains("folder -> ../other"), "{listed}");
    assert!(desk.ok("search_files", json!({ "pattern": "SECRET" })).contains("nothing matches"));
}

#[test]
fn links_within_are_followed_and_stay_links() {
    let desk = Desk::new();
    desk.put("real/file", "one\n");
    symlink("real", desk.path("folder")).unwrap();
    symlink("folder/../real/file", desk.path("file")).unwrap();
    symlink(desk.path("real/file"), desk.path("absolute")).unwrap();
    symlink("real/new", desk.path("dangling")).unwrap();
    for path in ["folder/file", "file", "absolute"] {
        let told = desk.ok("read_file", json!({ "path": path }));
        assert!(told.contains("one") && told.contains("`real/file`"), "{path}: {told}");
    }
    let edits = json!([{ "old": "one", "new": "two" }]);
    desk.ok("edit_file", json!({ "path": "file", "edits": edits }));
    assert_eq!(desk.has("real/file"), "two\n");
    assert!(desk.path("file").symlink_metadata().unwrap().is_symlink());
    desk.ok("write_file", json!({ "path": "dangling", "content": "new" }));
    assert_eq!(desk.has("real/new"), "new");
    symlink("round", desk.path("round")).unwrap();
    all_fail(&desk, "round", "in a circle");
}

#[test]
fn what_is_no_plain_file_is_refused_without_waiting() {
    let desk = Desk::new();
    mknodat(CWD, desk.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(desk.path("socket")).unwrap();
    for (path, kind) in [("pipe", "pipe"), ("socket", "socket")] {
        desk.fails("read_file", json!({ "path": path }), &[kind, "plain files only"]);
        let content = json!({ "path": path, "content": "x" });
        desk.fails("write_file", content, &["plain files only"]);
        let edits = json!({ "path": path, "edits": [{ "old": "a", "new": "b" }] });
        desk.fails("edit_file", edits, &[kind, "plain files only"]);
    }
    let listed = desk.ok("list_files", json!({}));
    assert!(
        listed.contains("pipe (a named pipe)") && listed.contains("socket (a socket)"),
        "{listed}"
    );
    desk.ok("search_files", json!({ "pattern": "x" }));
}

#[test]
fn a_directory_that_vanished_is_told() {
    let desk = Desk::new();
    std::fs::remove_dir(desk.path("")).unwrap();
    all_fail(&desk, "file", "your directory");
    assert!(!desk.path("").exists(), "nobody made it again");
}

/// A folder is swapped for a link that leads out, and back, as fast as it goes. Each call sees the one
/// or the other, and never what is behind the link.
#[test]
fn a_folder_that_is_swapped_for_a_link_shows_and_takes_nothing() {
    let desk = Arc::new(Desk::new());
    std::fs::create_dir(desk.outside("other")).unwrap();
    std::fs::write(desk.outside("other/file"), "SECRET\n").unwrap();
    std::fs::write(desk.outside("other/SECRET-name"), "").unwrap();
    desk.put("folder/file", "inside\n");
    symlink("../other", desk.path("link")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (swapped, is_done) = (desk.clone(), done.clone());
    let swapper = std::thread::spawn(move || {
        let (one, other) = (swapped.path("folder"), swapped.path("link"));
        while !is_done.load(Ordering::Relaxed) {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        }
    });
    let (mut worked, mut refused) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    while (worked < 300 || refused < 300) && Instant::now() < until {
        for (tool, arguments) in [
            ("read_file", json!({ "path": "folder/file" })),
            ("search_files", json!({ "pattern": "SECRET", "path": "folder" })),
            ("list_files", json!({ "glob": "*SECRET*" })),
            ("write_file", json!({ "path": "folder/new", "content": "mine" })),
            (
                "edit_file",
                json!({ "path": "folder/file", "edits": [{ "old": "SECRET", "new": "x" }] }),
            ),
        ] {
            match on_a_runtime(desk.call(tool, arguments)) {
                Ok(told) => {
                    worked += 1;
                    let told = told.replace("`*SECRET*`", "");
                    assert!(!told.contains("SECRET"), "{tool}: {told}");
                }
                Err(_) => refused += 1,
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(worked >= 300 && refused >= 300, "{worked} worked, {refused} were refused");
    assert_eq!(names(&desk.outside("other")), ["SECRET-name", "file"]);
    assert_eq!(std::fs::read_to_string(desk.outside("other/file")).unwrap(), "SECRET\n");
}
