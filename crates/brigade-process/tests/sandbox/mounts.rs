//! Mount namespaces: read-only files and hidden directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use brigade_process::{LayerAccess, ProcessExit, PtySize, StartStep};

use crate::support::{ProcessSettings, TestDirs, become_user, can_mount, has, is_root};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns switches to both kinds of users: root first, if this is root.
fn user_switches() -> [fn(); 2] {
    [|| {}, become_user]
}

/// Returns a run in which the files outside are readable, because their directory is listed.
fn with_outside_readable(dirs: &TestDirs) -> ProcessSettings<'_> {
    let layer = LayerAccess { read: vec![&dirs.outside], ..dirs.layer() };
    ProcessSettings { layers: vec![layer], ..dirs.sandboxed() }
}

#[tokio::test]
async fn modes_owners_and_times_outside_do_not_change() {
    for switch_user in user_switches() {
        switch_user();
        if !can_mount() {
            return;
        }
        let dirs = TestDirs::new();
        let file = dirs.outside.join("file");
        let before = fs::metadata(&file).unwrap();
        let script = "chmod 777 $OUT/file; chgrp $(id -g) $OUT/file; touch -d 2001-01-01 $OUT/file
             chmod 700 $OUT; chmod 600 /etc/hostname; touch /usr; setfattr -n user.x -v y $OUT/file 2>/dev/null
             chmod 701 file && touch -d 2001-01-01 file && chmod 711 . && echo fine";
        let result = with_outside_readable(&dirs).script(&dirs, script).await;
        assert!(result.text.ends_with("fine\n") && result.record.sandbox.mount, "{}", result.text);
        let after = fs::metadata(&file).unwrap();
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        assert_eq!(after.permissions(), before.permissions());
        assert_eq!(mode(&dirs.inside.join("file")), 0o701);
        assert!(result.text.matches("Read-only file system").count() >= 4, "{}", result.text);
        // Without the namespace, Landlock alone does not deny it.
        let run = ProcessSettings { namespaces: None, ..with_outside_readable(&dirs) };
        run.script(&dirs, "chmod 640 $OUT/file").await;
        assert_eq!(mode(&file), 0o640, "the test needs this to be allowed");
    }
}

#[tokio::test]
async fn a_later_layer_does_not_widen_an_earlier_one() {
    for switch_user in user_switches() {
        switch_user();
        if !can_mount() {
            return;
        }
        let dirs = TestDirs::new();
        let narrow = dirs.inside.join("narrow");
        fs::create_dir(&narrow).unwrap();
        fs::write(narrow.join("file"), "content\n").unwrap();
        let wide =
            || LayerAccess { write: vec![&dirs.inside, &dirs.outside], ..LayerAccess::default() };
        let small = || LayerAccess { write: vec![&narrow], ..LayerAccess::default() };
        let script = "chmod 777 file && echo mine; chmod 777 ../file; chmod 777 $OUT/file
             echo shared > /dev/shm/x && cat /dev/shm/x; echo t > /tmp/t && cat $TMPDIR/t";
        for layers in [vec![small(), wide()], vec![wide(), small()]] {
            let run = ProcessSettings { layers, ..dirs.sandboxed() };
            let result = run.script_in(&dirs, &narrow, script).await;
            assert!(result.text.starts_with("mine\n"), "{}", result.text);
            assert!(result.text.ends_with("shared\nt\n"), "{}", result.text);
            for file in [&dirs.inside, &dirs.outside].map(|dir| dir.join("file")) {
                assert_eq!(mode(&file), 0o644);
            }
        }
    }
}

#[tokio::test]
async fn only_listed_paths_of_shared_directories_are_visible() {
    for switch_user in user_switches() {
        switch_user();
        if !can_mount() {
            return;
        }
        // In /tmp, as most directories of these tests.
        let dirs = TestDirs::new();
        let socket = dirs.outside.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let temporary = std::env::temp_dir().display().to_string();
        let script = "ls $OUT; ls -A /run; cat file; echo new > new; pwd; ls -A";
        let script = format!("{script} {temporary} | wc -l");
        let result = dirs.sandboxed().script(&dirs, &script).await;
        let pwd = dirs.inside.display().to_string();
        // That directory contains the paths to the workspace and to its scratch directory.
        let expect = format!("content\n{pwd}\n2\n");
        assert!(
            result.text.ends_with(&expect) && result.text.contains("No such file"),
            "{}",
            result.text
        );
        assert_eq!(fs::read_to_string(dirs.inside.join("new")).unwrap(), "new\n");
        if has("python3") {
            let connect = "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"OUT\"] + \"/socket\")'";
            let result = dirs.sandboxed().script(&dirs, connect).await;
            assert!(result.text.contains("FileNotFoundError"), "{}", result.text);
        }
    }
}

#[tokio::test]
async fn only_the_socket_of_the_state_directory_is_visible() {
    for switch_user in user_switches() {
        switch_user();
        if !can_mount() {
            return;
        }
        let dirs = TestDirs::new();
        let script = "cat $STATE/operator.key; cat $STATE/socket/../operator.key; ls $STATE/processes
             echo x > $STATE/new; echo x > $STATE/socket/new; rm -r $STATE/socket; stat -c %F $STATE/socket/brigade.sock";
        let grants = LayerAccess { read: vec![Path::new("/usr")], ..dirs.layer() };
        for namespaces in [None, dirs.sandboxed().namespaces] {
            let layers = vec![grants.clone()];
            let result = ProcessSettings { layers, namespaces, ..ProcessSettings::default() }
                .script(&dirs, script)
                .await;
            assert!(
                !result.text.contains("secret") && !result.text.contains("another"),
                "{}",
                result.text
            );
            assert!(result.text.ends_with("\nsocket\n"), "{}", result.text);
        }
        if has("python3") {
            let connect = "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"STATE\"] + \"/socket/brigade.sock\"); print(\"connected\")'";
            assert_eq!(dirs.sandboxed().script(&dirs, connect).await.text, "connected\n");
        }
    }
}

#[tokio::test]
async fn a_build_tool_works_in_a_sandbox() {
    for switch_user in user_switches() {
        switch_user();
        if !can_mount() {
            return;
        }
        let dirs = TestDirs::new();
        let script = "set -e; echo a > /tmp/a; mkdir /tmp/d; mv /tmp/a /tmp/d/b; cat $TMPDIR/d/b
             echo x > /dev/null; head -c 4 /dev/urandom | wc -c; readlink /proc/self/exe >/dev/null
             echo s > /dev/shm/s; mv /dev/shm/s /dev/shm/t; cat /dev/shm/t; rm /dev/shm/t
             [ $(id -u) = $WHO ]; [ $(stat -c %u file) = $WHO ]; ! touch /new 2>/dev/null; df /tmp >/dev/null
             grep -q . /etc/passwd; echo end > /dev/stderr";
        let user = rustix::process::geteuid().as_raw();
        let result = dirs.sandboxed().script(&dirs, &format!("WHO={user}; {script}")).await;
        assert_eq!(result.record.exit, Some(ProcessExit::Code(0)), "{}", result.text);
        assert_eq!(result.text, "a\n4\ns\nend\n");
        assert!(!Path::new("/tmp/d/b").exists() && !Path::new("/dev/shm/t").exists());
    }
}

#[tokio::test]
async fn a_terminal_can_be_opened_again() {
    for switch_user in user_switches() {
        switch_user();
        if !can_mount() {
            return;
        }
        let dirs = TestDirs::new();
        let terminal = Some(PtySize { rows: 30, columns: 90 });
        let run = ProcessSettings { terminal, ..dirs.sandboxed() };
        let script = "echo a > /dev/stdout; echo b > $(tty); stty size < /dev/tty";
        let result = run.script(&dirs, script).await;
        assert_eq!(result.text, "a\r\nb\r\n30 90\r\n");
    }
}

#[tokio::test]
async fn a_hidden_working_directory_is_an_error() {
    if !can_mount() {
        return;
    }
    let dirs = TestDirs::new();
    let result = dirs.sandboxed().script_in(&dirs, &dirs.outside, "echo ran").await;
    let refused = ProcessExit::NotStarted { step: StartStep::WorkingDirectory, errno: 2 };
    assert_eq!((result.text.as_str(), result.record.exit), ("", Some(refused)));
}

#[tokio::test]
async fn a_hidden_program_is_not_executed() {
    if !can_mount() {
        return;
    }
    let dirs = TestDirs::new();
    let program = dirs.outside.join("program");
    fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let result = dirs.sandboxed().program(&dirs, &[program.to_str().unwrap()]).await;
    let refused = ProcessExit::NotStarted { step: StartStep::ExecuteSandboxed, errno: 2 };
    assert_eq!((result.text.as_str(), result.record.exit), ("", Some(refused)));
}

#[tokio::test]
async fn capabilities_that_cannot_be_dropped_are_an_error() {
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
    use rustix::thread::{capabilities, set_capabilities};
    if !is_root() || !can_mount() {
        eprintln!("not tested: only root has capabilities to drop");
        return;
    }
    let dirs = TestDirs::new();
    let result =
        dirs.landlocked("grep CapBnd /proc/self/status; grep CapInh /proc/self/status").await;
    let expected = "CapBnd:\t00000000000004fb\nCapInh:\t0000000000000000\n";
    assert_eq!(result.text, expected);
    // For this thread, and so for its shim: root without the right to drop other capabilities.
    remove_capability_from_bounding_set(CapabilitySet::SETPCAP).unwrap();
    let mut sets = capabilities(None).unwrap();
    sets.permitted.remove(CapabilitySet::SETPCAP);
    sets.effective.remove(CapabilitySet::SETPCAP);
    set_capabilities(None, sets).unwrap();
    let result = dirs.landlocked("echo ran").await;
    let refused = ProcessExit::NotStarted { step: StartStep::Sandbox, errno: 1 };
    assert_eq!((result.text.as_str(), result.record.exit), ("", Some(refused)));
}
