//! Tests that no path leads out of the directory.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use serde_json::{Value, json};

use crate::support::{TestDirectory, block_on, names};

/// Returns a call of each tool on a path.
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
fn all_fail(dir: &TestDirectory, path: &str, text: &str) {
    for (tool, arguments) in calls(path) {
        dir.fails(tool, arguments, &[text]);
    }
}

#[test]
fn dots_and_absolute_paths_do_not_lead_out() {
    let dir = TestDirectory::new();
    std::fs::write(dir.outside("secret"), "SECRET").unwrap();
    dir.write("a/b", "inside");
    let outside = dir.outside("secret");
    for path in ["../secret", "a/../../secret", "/etc/passwd", outside.to_str().unwrap(), "/"] {
        all_fail(&dir, path, "outside of your directory");
    }
    // A directory whose name only starts like ours is another one.
    std::fs::create_dir(dir.outside("work2")).unwrap();
    all_fail(&dir, dir.outside("work2").to_str().unwrap(), "outside of your directory");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "SECRET");
}

#[test]
fn paths_within_are_accepted_in_any_spelling() {
    let dir = TestDirectory::new();
    let file = dir.write("a/b", "inside\n");
    for path in ["a/b", "./a//b", "a/../a/./b", file.to_str().unwrap(), "a/c/../b"] {
        assert!(dir.ok("read_file", json!({ "path": path })).contains("1\tinside"), "{path}");
    }
    let whole = dir.path("");
    assert!(dir.ok("list_files", json!({ "path": whole.to_str().unwrap() })).contains("a/"));
}

#[test]
fn a_directory_behind_a_link_has_both_names() {
    let dir = TestDirectory::new();
    dir.write("file", "inside\n");
    symlink(dir.path(""), dir.outside("other")).unwrap();
    let rules = brigade_agent::permission::PermissionRules::all();
    let permissions = brigade_agent::permission::Permissions::of("the operator", rules);
    let working_dir = brigade_file_tools::WorkingDirectory::new(dir.outside("other"), permissions);
    let [read, ..] = brigade_file_tools::file_tools(working_dir);
    for path in [dir.outside("other/file"), dir.path("file")] {
        let call =
            brigade_agent::ToolInvocation::standalone(json!({ "path": path.to_str().unwrap() }));
        let reply = block_on(read.call(call));
        assert!(format!("{reply:?}").contains("inside"), "{reply:?}");
    }
}

#[test]
fn links_do_not_lead_out() {
    let dir = TestDirectory::new();
    std::fs::create_dir(dir.outside("other")).unwrap();
    std::fs::write(dir.outside("other/secret"), "SECRET").unwrap();
    symlink("../other/secret", dir.path("file")).unwrap();
    symlink(dir.outside("other/secret"), dir.path("absolute")).unwrap();
    symlink("../other", dir.path("directory")).unwrap();
    symlink("directory", dir.path("twice")).unwrap();
    symlink("/proc/self/cwd", dir.path("magic")).unwrap();
    symlink("../other/new", dir.path("dangling")).unwrap();
    for path in
        ["file", "absolute", "directory/secret", "twice/secret", "magic", "dangling", "directory"]
    {
        all_fail(&dir, path, "leads out of your directory");
    }
    dir.fails("write_file", json!({ "path": "directory/new", "content": "x" }), &["leads out"]);
    assert_eq!(names(&dir.outside("other")), ["secret"]);
    assert_eq!(std::fs::read_to_string(dir.outside("other/secret")).unwrap(), "SECRET");
    // Lists and searches do not follow them either.
    let listed = dir.ok("list_files", json!({ "depth": 9 }));
    assert!(!listed.contains("directory/"), "{listed}");
    assert!(listed.contains("directory -> ../other"), "{listed}");
    assert!(dir.ok("search_files", json!({ "pattern": "SECRET" })).contains("nothing matches"));
}

#[test]
fn links_within_are_followed_and_kept() {
    let dir = TestDirectory::new();
    dir.write("real/file", "one\n");
    symlink("real", dir.path("directory")).unwrap();
    symlink("directory/../real/file", dir.path("file")).unwrap();
    symlink(dir.path("real/file"), dir.path("absolute")).unwrap();
    symlink("real/new", dir.path("dangling")).unwrap();
    for path in ["directory/file", "file", "absolute"] {
        let reply = dir.ok("read_file", json!({ "path": path }));
        assert!(reply.contains("one") && reply.contains("`real/file`"), "{path}: {reply}");
    }
    let edits = json!([{ "old": "one", "new": "two" }]);
    dir.ok("edit_file", json!({ "path": "file", "edits": edits }));
    assert_eq!(dir.content("real/file"), "two\n");
    assert!(dir.path("file").symlink_metadata().unwrap().is_symlink());
    dir.ok("write_file", json!({ "path": "dangling", "content": "new" }));
    assert_eq!(dir.content("real/new"), "new");
    symlink("round", dir.path("round")).unwrap();
    all_fail(&dir, "round", "cycle of links");
}

#[test]
fn special_files_are_refused_without_blocking() {
    let dir = TestDirectory::new();
    mknodat(CWD, dir.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path("socket")).unwrap();
    for (path, kind) in [("pipe", "pipe"), ("socket", "socket")] {
        dir.fails("read_file", json!({ "path": path }), &[kind, "plain files only"]);
        let content = json!({ "path": path, "content": "x" });
        dir.fails("write_file", content, &["plain files only"]);
        let edits = json!({ "path": path, "edits": [{ "old": "a", "new": "b" }] });
        dir.fails("edit_file", edits, &[kind, "plain files only"]);
    }
    let listed = dir.ok("list_files", json!({}));
    assert!(
        listed.contains("pipe (a named pipe)") && listed.contains("socket (a socket)"),
        "{listed}"
    );
    dir.ok("search_files", json!({ "pattern": "x" }));
}

#[test]
fn a_removed_directory_is_reported() {
    let dir = TestDirectory::new();
    std::fs::remove_dir(dir.path("")).unwrap();
    all_fail(&dir, "file", "your directory");
    assert!(!dir.path("").exists(), "nothing created it again");
}

/// A thread swaps a directory for a link that leads out, and back, as fast as it can. Each call
/// sees one or the other, and never the files behind the link.
#[test]
fn a_directory_swapped_for_a_link_exposes_nothing() {
    let dir = Arc::new(TestDirectory::new());
    std::fs::create_dir(dir.outside("other")).unwrap();
    std::fs::write(dir.outside("other/file"), "SECRET\n").unwrap();
    std::fs::write(dir.outside("other/SECRET-name"), "").unwrap();
    dir.write("directory/file", "inside\n");
    symlink("../other", dir.path("link")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let swapped = dir.clone();
    let is_done = done.clone();
    let swapper = std::thread::spawn(move || {
        let one = swapped.path("directory");
        let other = swapped.path("link");
        while !is_done.load(Ordering::Relaxed) {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        }
    });
    let mut worked = 0;
    let mut refused = 0;
    let until = Instant::now() + Duration::from_secs(60);
    while (worked < 300 || refused < 300) && Instant::now() < until {
        for (tool, arguments) in [
            ("read_file", json!({ "path": "directory/file" })),
            ("search_files", json!({ "pattern": "SECRET", "path": "directory" })),
            ("list_files", json!({ "glob": "*SECRET*" })),
            ("write_file", json!({ "path": "directory/new", "content": "mine" })),
            (
                "edit_file",
                json!({ "path": "directory/file", "edits": [{ "old": "SECRET", "new": "x" }] }),
            ),
        ] {
            match block_on(dir.call(tool, arguments)) {
                Ok(reply) => {
                    worked += 1;
                    let reply = reply.replace("`*SECRET*`", "");
                    assert!(!reply.contains("SECRET"), "{tool}: {reply}");
                }
                Err(_) => refused += 1,
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(worked >= 300 && refused >= 300, "{worked} worked, {refused} were refused");
    assert_eq!(names(&dir.outside("other")), ["SECRET-name", "file"]);
    assert_eq!(std::fs::read_to_string(dir.outside("other/file")).unwrap(), "SECRET\n");
}
