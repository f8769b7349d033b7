//! Mount namespaces: files that can be seen and not changed, and places that cannot be seen.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use brigade_process::{LayerAccess, ProcessExit, PtySize, StartStep};

use crate::support::{Place, Run, be_a_user, can_mount, has, is_root};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Both kinds of users, one after the other: root first, where this is root.
fn users() -> [fn(); 2] {
    [|| {}, be_a_user]
}

/// A file that can be named from inside, because its directory is listed to be read.
fn listed(place: &Place) -> Run<'_> {
    let layer = LayerAccess { read: vec![&place.outside], ..place.layer() };
    Run { layers: vec![layer], ..place.sandboxed() }
}

#[tokio::test]
async fn modes_owners_and_times_outside_stay_as_they_are() {
    for become_user in users() {
        become_user();
        if !can_mount() {
            return;
        }
        let place = Place::new();
        let file = place.outside.join("file");
        let before = fs::metadata(&file).unwrap();
        let script = "chmod 777 $OUT/file; chgrp $(id -g) $OUT/file; touch -d 2001-01-01 $OUT/file
             chmod 700 $OUT; chmod 600 /etc/hostname; touch /usr; setfattr -n user.x -v y $OUT/file 2>/dev/null
             chmod 701 file && touch -d 2001-01-01 file && chmod 711 . && echo fine";
        let ran = listed(&place).script(&place, script).await;
        assert!(ran.text.ends_with("fine\n") && ran.record.sandbox.mount, "{}", ran.text);
        let after = fs::metadata(&file).unwrap();
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        assert_eq!(after.permissions(), before.permissions());
        assert_eq!(mode(&place.inside.join("file")), 0o701);
        assert!(ran.text.matches("Read-only file system").count() >= 4, "{}", ran.text);
        // Without the namespace Landlock alone does not keep it from that.
        let run = Run { namespaces: None, ..listed(&place) };
        run.script(&place, "chmod 640 $OUT/file").await;
        assert_eq!(mode(&file), 0o640, "if this is refused too, the test is of no use");
    }
}

#[tokio::test]
async fn a_later_layer_does_not_widen_an_earlier_one() {
    for become_user in users() {
        become_user();
        if !can_mount() {
            return;
        }
        let place = Place::new();
        let narrow = place.inside.join("narrow");
        fs::create_dir(&narrow).unwrap();
        fs::write(narrow.join("file"), "content\n").unwrap();
        let wide =
            || LayerAccess { write: vec![&place.inside, &place.outside], ..LayerAccess::default() };
        let small = || LayerAccess { write: vec![&narrow], ..LayerAccess::default() };
        let script = "chmod 777 file && echo mine; chmod 777 ../file; chmod 777 $OUT/file
             echo shared > /dev/shm/x && cat /dev/shm/x; echo t > /tmp/t && cat $TMPDIR/t";
        for layers in [vec![small(), wide()], vec![wide(), small()]] {
            let run = Run { layers, ..place.sandboxed() };
            let ran = run.script_in(&place, &narrow, script).await;
            assert!(ran.text.starts_with("mine\n"), "{}", ran.text);
            assert!(ran.text.ends_with("shared\nt\n"), "{}", ran.text);
            for file in [&place.inside, &place.outside].map(|place| place.join("file")) {
                assert_eq!(mode(&file), 0o644);
            }
        }
    }
}

#[tokio::test]
async fn only_what_is_listed_is_seen_of_places_that_all_share() {
    for become_user in users() {
        become_user();
        if !can_mount() {
            return;
        }
        // In /tmp or below it, as most places of these tests.
        let place = Place::new();
        let socket = place.outside.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let temporary = std::env::temp_dir().display().to_string();
        let script = "ls $OUT; ls -A /run; cat file; echo new > new; pwd; ls -A";
        let script = format!("{script} {temporary} | wc -l");
        let ran = place.sandboxed().script(&place, &script).await;
        let pwd = place.inside.display().to_string();
        // In that directory are the ways to the place itself and to its scratch directory.
        let expect = format!("content\n{pwd}\n2\n");
        assert!(ran.text.ends_with(&expect) && ran.text.contains("No such file"), "{}", ran.text);
        assert_eq!(fs::read_to_string(place.inside.join("new")).unwrap(), "new\n");
        if has("python3") {
            let connect = "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"OUT\"] + \"/socket\")'";
            let ran = place.sandboxed().script(&place, connect).await;
            assert!(ran.text.contains("FileNotFoundError"), "{}", ran.text);
        }
    }
}

#[tokio::test]
async fn of_the_state_folder_only_the_socket_is_left() {
    for become_user in users() {
        become_user();
        if !can_mount() {
            return;
        }
        let place = Place::new();
        let script = "cat $STATE/operator.key; cat $STATE/socket/../operator.key; ls $STATE/processes
             echo x > $STATE/new; echo x > $STATE/socket/new; rm -r $STATE/socket; stat -c %F $STATE/socket/brigade.sock";
        let grants = LayerAccess { read: vec![Path::new("/usr")], ..place.layer() };
        for namespaces in [None, place.sandboxed().namespaces] {
            let layers = vec![grants.clone()];
            let ran = Run { layers, namespaces, ..Run::default() }.script(&place, script).await;
            assert!(!ran.text.contains("secret") && !ran.text.contains("another"), "{}", ran.text);
            assert!(ran.text.ends_with("\nsocket\n"), "{}", ran.text);
        }
        if has("python3") {
            let connect = "python3 -c 'import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ[\"STATE\"] + \"/socket/brigade.sock\"); print(\"connected\")'";
            assert_eq!(place.sandboxed().script(&place, connect).await.text, "connected\n");
        }
    }
}

#[tokio::test]
async fn a_build_tool_finds_what_it_needs() {
    for become_user in users() {
        become_user();
        if !can_mount() {
            return;
        }
        let place = Place::new();
        let script = "set -e; echo a > /tmp/a; mkdir /tmp/d; mv /tmp/a /tmp/d/b; cat $TMPDIR/d/b
             echo x > /dev/null; head -c 4 /dev/urandom | wc -c; readlink /proc/self/exe >/dev/null
             echo s > /dev/shm/s; mv /dev/shm/s /dev/shm/t; cat /dev/shm/t; rm /dev/shm/t
             [ $(id -u) = $WHO ]; [ $(stat -c %u file) = $WHO ]; ! touch /new 2>/dev/null; df /tmp >/dev/null
             grep -q . /etc/passwd; echo end > /dev/stderr";
        let user = rustix::process::geteuid().as_raw();
        let ran = place.sandboxed().script(&place, &format!("WHO={user}; {script}")).await;
        assert_eq!(ran.record.exit, Some(ProcessExit::Code(0)), "{}", ran.text);
        assert_eq!(ran.text, "a\n4\ns\nend\n");
        assert!(!Path::new("/tmp/d/b").exists() && !Path::new("/dev/shm/t").exists());
    }
}

#[tokio::test]
async fn a_terminal_can_be_opened_again() {
    for become_user in users() {
        become_user();
        if !can_mount() {
            return;
        }
        let place = Place::new();
        let terminal = Some(PtySize { rows: 30, columns: 90 });
        let run = Run { terminal, ..place.sandboxed() };
        let script = "echo a > /dev/stdout; echo b > $(tty); stty size < /dev/tty";
        let ran = run.script(&place, script).await;
        assert_eq!(ran.text, "a\r\nb\r\n30 90\r\n");
    }
}

#[tokio::test]
async fn a_working_directory_that_cannot_be_seen_is_an_error() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let ran = place.sandboxed().script_in(&place, &place.outside, "echo ran").await;
    let refused = ProcessExit::NotStarted { step: StartStep::WorkingDirectory, errno: 2 };
    assert_eq!((ran.text.as_str(), ran.record.exit), ("", Some(refused)));
}

#[tokio::test]
async fn a_program_that_is_hidden_is_not_executed() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let program = place.outside.join("program");
    fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = place.sandboxed().program(&place, &[program.to_str().unwrap()]).await;
    let refused = ProcessExit::NotStarted { step: StartStep::ExecuteSandboxed, errno: 2 };
    assert_eq!((ran.text.as_str(), ran.record.exit), ("", Some(refused)));
}

#[tokio::test]
async fn capabilities_that_cannot_be_dropped_are_an_error() {
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
    use rustix::thread::{capabilities, set_capabilities};
    if !is_root() || !can_mount() {
        eprintln!("not tested: only root has capabilities to drop");
        return;
    }
    let place = Place::new();
    let ran = place.confined("grep CapBnd /proc/self/status; grep CapInh /proc/self/status").await;
    let kept = "CapBnd:\t00000000000004fb\nCapInh:\t0000000000000000\n";
    assert_eq!(ran.text, kept);
    // Of this thread, and so of the shim that it starts: root without the right to give up the others.
    remove_capability_from_bounding_set(CapabilitySet::SETPCAP).unwrap();
    let mut sets = capabilities(None).unwrap();
    sets.permitted.remove(CapabilitySet::SETPCAP);
    sets.effective.remove(CapabilitySet::SETPCAP);
    set_capabilities(None, sets).unwrap();
    let ran = place.confined("echo ran").await;
    let refused = ProcessExit::NotStarted { step: StartStep::Sandbox, errno: 1 };
    assert_eq!((ran.text.as_str(), ran.record.exit), ("", Some(refused)));
}
