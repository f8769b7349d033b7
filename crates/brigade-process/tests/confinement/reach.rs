//! Files: what is read, written, made and executed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use brigade_process::landlock_rules::SandboxError;
use brigade_process::{LandlockSupport, LayerAccess, ProcessExit, PtySize, StartStep};

use crate::support::{Place, Run, can};

fn can_confine() -> bool {
    can("confinement", |_| true)
}

#[tokio::test]
async fn inside_everything_works_and_outside_nothing_is_written() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let ran = place
        .confined(
            "echo more >> file && mkdir -p a/b && mv file a/b/moved && cat a/b/moved && rm -r a || exit 1
             for try in 'echo x > $OUT/new' 'echo x >> $OUT/file' ': > $OUT/file' 'rm $OUT/file' \
                        'mkdir $OUT/d' 'ln $OUT/file hard' 'mv $OUT/file .' 'cp /bin/sh $OUT/'; do
               if sh -c \"$try\" 2>/dev/null; then echo \"done: $try\"; fi
             done",
        )
        .await;
    assert_eq!(
        (ran.text.as_str(), ran.record.exit),
        ("content\nmore\n", Some(ProcessExit::Code(0)))
    );
    assert_eq!(fs::read_to_string(place.outside.join("file")).unwrap(), "content\n");
    assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_link_leads_nowhere() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let ran = place
        .confined("cat link/file; ls link; echo x > link/file; ln -s $OUT/file new; cat new; cat ../outside/file")
        .await;
    assert!(!ran.text.contains("content"), "{}", ran.text);
    assert_eq!(ran.text.matches("ermission denied").count(), 5, "{}", ran.text);
    assert_eq!(fs::read_to_string(place.outside.join("file")).unwrap(), "content\n");
}

#[tokio::test]
async fn what_is_listed_is_read_and_what_is_not_is_refused() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let (listed, unlisted) = (place.outside.join("listed"), place.outside.join("unlisted"));
    fs::write(&listed, "for all\n").unwrap();
    fs::write(&unlisted, "secret\n").unwrap();
    let layer = LayerAccess { read: vec![&listed], ..place.layer() };
    let run = Run { layers: vec![layer], ..Run::default() };
    let ran = run.script(&place, "cat $OUT/listed; cat $OUT/unlisted; echo x >> $OUT/listed").await;
    assert!(ran.text.starts_with("for all\n") && !ran.text.contains("secret"), "{}", ran.text);
    assert_eq!(ran.text.matches("ermission denied").count(), 2, "{}", ran.text);
    assert_eq!(fs::read_to_string(&listed).unwrap(), "for all\n");
}

#[tokio::test]
async fn each_of_several_layers_holds() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let narrow = place.inside.join("narrow");
    fs::create_dir(&narrow).unwrap();
    // The inner one asks for more than the outer one leaves.
    let inner = LayerAccess { write: vec![&narrow, &place.outside], ..LayerAccess::default() };
    let run = Run { layers: vec![place.layer(), inner], ..Run::default() };
    let ran =
        run.script(&place, "echo a > narrow/new && echo fine; echo b > new; cat $OUT/file").await;
    assert!(ran.text.starts_with("fine\n") && !ran.text.contains("content"), "{}", ran.text);
    assert!(!place.inside.join("new").exists());
}

#[tokio::test]
async fn the_system_and_a_scratch_folder_are_there() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let ran = place
        .confined(
            "set -e; ls /usr/bin | grep -c . >/dev/null; grep -c . /etc/passwd >/dev/null
             echo x > $TMPDIR/x; cat $TMPDIR/x; echo lost > /dev/null; echo err > /dev/stderr
             grep NoNewPrivs /proc/self/status; ls /proc/self/fd | wc -l; ! ls /tmp 2>/dev/null; ! touch /tmp/y 2>/dev/null",
        )
        .await;
    assert_eq!(ran.record.exit, Some(ProcessExit::Code(0)), "{}", ran.text);
    assert_eq!(ran.text, "x\nerr\nNoNewPrivs:\t1\n4\n", "and no ruleset to be seen");
}

#[tokio::test]
async fn devices_are_not_made() {
    if !can_confine() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root can make a device");
        return;
    }
    let place = Place::new();
    let ran = place.confined("mknod null c 1 3; mkfifo pipe && echo fine").await;
    assert!(ran.text.ends_with("fine\n") && !place.inside.join("null").exists(), "{}", ran.text);
}

#[tokio::test]
async fn a_program_outside_is_not_executed() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let program = place.outside.join("program");
    fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = Run { layers: vec![place.layer()], ..Run::default() };
    let ran = run.program(&place, &[program.to_str().unwrap()]).await;
    let denied =
        ProcessExit::NotStarted { step: StartStep::ExecuteSandboxed, errno: libc_eacces() };
    assert_eq!((ran.record.exit, ran.text.as_str()), (Some(denied), ""));
    let layer = LayerAccess { read: vec![&program], ..place.layer() };
    let run = Run { layers: vec![layer], ..Run::default() };
    assert_eq!(run.program(&place, &[program.to_str().unwrap()]).await.text, "ran\n");
}

fn libc_eacces() -> i32 {
    rustix::io::Errno::ACCESS.raw_os_error()
}

#[tokio::test]
async fn on_a_terminal_only_that_one_can_be_opened() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let terminal = Some(PtySize { rows: 30, columns: 90 });
    let run = Run { layers: vec![place.layer()], terminal, ..Run::default() };
    let ran = run
        .script(&place, "echo a > /dev/stdout; echo b > $(tty); stty size < /dev/tty; ls /dev/pts; cat link/file")
        .await;
    assert!(ran.text.starts_with("a\r\nb\r\n30 90\r\n"), "{:?}", ran.text);
    assert_eq!(ran.text.matches("ermission denied").count(), 2, "{}", ran.text);
}

#[test]
fn what_has_become_a_link_or_is_gone_is_refused() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let refused = |path: &std::path::Path| {
        let layer = LayerAccess { write: vec![path], ..LayerAccess::default() };
        match LandlockSupport::detect().build_rulesets(&[layer], &place.inside) {
            Err(error @ SandboxError::Path { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&place.inside.join("link")).contains("has become a symbolic link"));
    // Neither may a part of the way be one.
    assert!(refused(&place.inside.join("link/file")).contains("has become a symbolic link"));
    assert!(refused(&place.inside.join("gone")).contains("No such file"));
}
