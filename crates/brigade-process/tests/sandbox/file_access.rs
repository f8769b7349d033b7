//! Access to files: read, write, create and execute.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use brigade_process::landlock_rules::SandboxError;
use brigade_process::{LandlockSupport, LayerAccess, ProcessExit, PtySize, StartStep};

use crate::support::{ProcessSettings, TestDirs, can};

fn can_sandbox() -> bool {
    can("a sandbox", |_| true)
}

#[tokio::test]
async fn files_inside_are_writable_and_files_outside_are_not() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let result = dirs
        .landlocked(
            "echo more >> file && mkdir -p a/b && mv file a/b/moved && cat a/b/moved && rm -r a || exit 1
             for try in 'echo x > $OUT/new' 'echo x >> $OUT/file' ': > $OUT/file' 'rm $OUT/file' \
                        'mkdir $OUT/d' 'ln $OUT/file hard' 'mv $OUT/file .' 'cp /bin/sh $OUT/'; do
               if sh -c \"$try\" 2>/dev/null; then echo \"done: $try\"; fi
             done",
        )
        .await;
    assert_eq!(
        (result.text.as_str(), result.record.exit),
        ("content\nmore\n", Some(ProcessExit::Code(0)))
    );
    assert_eq!(fs::read_to_string(dirs.outside.join("file")).unwrap(), "content\n");
    assert_eq!(fs::read_dir(&dirs.outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_link_grants_no_access() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let result = dirs
        .landlocked("cat link/file; ls link; echo x > link/file; ln -s $OUT/file new; cat new; cat ../outside/file")
        .await;
    assert!(!result.text.contains("content"), "{}", result.text);
    assert_eq!(result.text.matches("ermission denied").count(), 5, "{}", result.text);
    assert_eq!(fs::read_to_string(dirs.outside.join("file")).unwrap(), "content\n");
}

#[tokio::test]
async fn listed_files_are_readable_and_others_are_denied() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let listed = dirs.outside.join("listed");
    let unlisted = dirs.outside.join("unlisted");
    fs::write(&listed, "for all\n").unwrap();
    fs::write(&unlisted, "secret\n").unwrap();
    let layer = LayerAccess { read: vec![&listed], ..dirs.layer() };
    let run = ProcessSettings { layers: vec![layer], ..ProcessSettings::default() };
    let result =
        run.script(&dirs, "cat $OUT/listed; cat $OUT/unlisted; echo x >> $OUT/listed").await;
    assert!(
        result.text.starts_with("for all\n") && !result.text.contains("secret"),
        "{}",
        result.text
    );
    assert_eq!(result.text.matches("ermission denied").count(), 2, "{}", result.text);
    assert_eq!(fs::read_to_string(&listed).unwrap(), "for all\n");
}

#[tokio::test]
async fn all_layers_apply() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let narrow = dirs.inside.join("narrow");
    fs::create_dir(&narrow).unwrap();
    // The inner layer asks for more than the outer one grants.
    let inner = LayerAccess { write: vec![&narrow, &dirs.outside], ..LayerAccess::default() };
    let run = ProcessSettings { layers: vec![dirs.layer(), inner], ..ProcessSettings::default() };
    let result =
        run.script(&dirs, "echo a > narrow/new && echo fine; echo b > new; cat $OUT/file").await;
    assert!(
        result.text.starts_with("fine\n") && !result.text.contains("content"),
        "{}",
        result.text
    );
    assert!(!dirs.inside.join("new").exists());
}

#[tokio::test]
async fn system_paths_and_a_scratch_directory_are_available() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let result = dirs
        .landlocked(
            "set -e; ls /usr/bin | grep -c . >/dev/null; grep -c . /etc/passwd >/dev/null
             echo x > $TMPDIR/x; cat $TMPDIR/x; echo lost > /dev/null; echo err > /dev/stderr
             grep NoNewPrivs /proc/self/status; ls /proc/self/fd | wc -l; ! ls /tmp 2>/dev/null; ! touch /tmp/y 2>/dev/null",
        )
        .await;
    assert_eq!(result.record.exit, Some(ProcessExit::Code(0)), "{}", result.text);
    assert_eq!(result.text, "x\nerr\nNoNewPrivs:\t1\n4\n", "and no ruleset is visible");
}

#[tokio::test]
async fn devices_cannot_be_created() {
    if !can_sandbox() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root can create a device");
        return;
    }
    let dirs = TestDirs::new();
    let result = dirs.landlocked("mknod null c 1 3; mkfifo pipe && echo fine").await;
    assert!(
        result.text.ends_with("fine\n") && !dirs.inside.join("null").exists(),
        "{}",
        result.text
    );
}

#[tokio::test]
async fn a_program_outside_is_not_executed() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let program = dirs.outside.join("program");
    fs::write(&program, "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = ProcessSettings { layers: vec![dirs.layer()], ..ProcessSettings::default() };
    let result = run.program(&dirs, &[program.to_str().unwrap()]).await;
    let denied =
        ProcessExit::NotStarted { step: StartStep::ExecuteSandboxed, errno: access_errno() };
    assert_eq!((result.record.exit, result.text.as_str()), (Some(denied), ""));
    let layer = LayerAccess { read: vec![&program], ..dirs.layer() };
    let run = ProcessSettings { layers: vec![layer], ..ProcessSettings::default() };
    assert_eq!(run.program(&dirs, &[program.to_str().unwrap()]).await.text, "ran\n");
}

fn access_errno() -> i32 {
    rustix::io::Errno::ACCESS.raw_os_error()
}

#[tokio::test]
async fn only_the_own_terminal_can_be_opened() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let terminal = Some(PtySize { rows: 30, columns: 90 });
    let run =
        ProcessSettings { layers: vec![dirs.layer()], terminal, ..ProcessSettings::default() };
    let result = run
        .script(&dirs, "echo a > /dev/stdout; echo b > $(tty); stty size < /dev/tty; ls /dev/pts; cat link/file")
        .await;
    assert!(result.text.starts_with("a\r\nb\r\n30 90\r\n"), "{:?}", result.text);
    assert_eq!(result.text.matches("ermission denied").count(), 2, "{}", result.text);
}

#[test]
fn links_and_missing_paths_are_refused() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let refusal = |path: &std::path::Path| {
        let layer = LayerAccess { write: vec![path], ..LayerAccess::default() };
        match LandlockSupport::detect().build_rulesets(&[layer], &dirs.inside) {
            Err(error @ SandboxError::Path { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(refusal(&dirs.inside.join("link")).contains("has become a symbolic link"));
    // No component of the path may be a link either.
    assert!(refusal(&dirs.inside.join("link/file")).contains("has become a symbolic link"));
    assert!(refusal(&dirs.inside.join("missing")).contains("No such file"));
}

#[tokio::test]
async fn shared_directories_get_plain_files_only() {
    if !can_sandbox() {
        return;
    }
    let dirs = TestDirs::new();
    let layer = LayerAccess { write_plain: vec![&dirs.outside], ..dirs.layer() };
    let run = ProcessSettings { layers: vec![layer], ..ProcessSettings::default() };
    let result = run
        .script(
            &dirs,
            "mkdir $OUT/d && echo x > $OUT/d/new && ln $OUT/d/new $OUT/d/hard && \
             mv $OUT/d/new $OUT/d/moved && rm $OUT/d/hard && echo more >> $OUT/file || exit 1
             mkdir full && ln -s /etc full/link && mkfifo full/pipe pipe && ln -s /etc sym || exit 2
             for try in 'ln -s /etc $OUT/link' 'mkfifo $OUT/pipe' 'mkfifo $OUT/d/pipe' \
                        'mv -T full $OUT/full' 'ln -P sym $OUT/sym' 'ln pipe $OUT/pipe' \
                        'perl -e \"rename(q(pipe), q($OUT/p)) or exit 1\"'; do
               if sh -c \"$try\" 2>/dev/null; then echo \"done: $try\"; fi
             done; find $OUT ! -type f ! -type d",
        )
        .await;
    assert_eq!((result.text.as_str(), result.record.exit), ("", Some(ProcessExit::Code(0))));
    assert_eq!(fs::read_to_string(dirs.outside.join("d/moved")).unwrap(), "x\n");
}
