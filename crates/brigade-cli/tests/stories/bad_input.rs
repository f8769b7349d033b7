//! Invalid input: a clear message with a hint, the right exit code, and no lost data.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::story_env::{Ran, StoryEnv, poll};

#[test]
fn usage_is_explained() {
    let story = StoryEnv::new();
    for args in [
        &["exec"][..],
        &["nonsense"],
        &["exec", "--bogus", "--", "true"],
        &["stop"],
        &["ps", "-n", "x"],
    ] {
        let ran = story.command(args).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(!ran.stderr.is_empty());
    }
    assert_eq!(story.processes(), Vec::<u32>::new(), "nothing was started");
}

#[test]
fn a_broken_configuration_is_explained() {
    let story = StoryEnv::new();
    let table = [
        ("idle_exti = \"5m\"", "unknown key idle_exti; did you mean idle_exit?"),
        ("colour = true", "unknown key colour"),
        ("idle_exit = \"soon\"", "idle_exit"),
        ("output_cap = \"big\"", "output_cap"),
        ("max_running = 0", "`max_running`: write a whole number from 1 to 4294967295"),
        ("max_running = -3", "`max_running`: write a whole number"),
        ("max_running = 99999999999", "`max_running`: write a whole number"),
        ("retention = \"0\"", "retention: 0 would remove each task as it ends"),
        ("retention = \"-1d\"", "retention: \"-1d\" is not a duration"),
        ("retention = \"99999d\"", "retention: it is longer than 36500d; write never"),
        ("drain = \"-1s\"", "drain: \"-1s\" is not a duration"),
        ("drain = \"2d\"", "drain: it is longer than 1d"),
        ("idle_exit = ", "config.toml"),
        (
            "[providers.x]\nkind = \"openai\"\nkey = \"SECRET\"",
            "line 3: `key`: unknown variant `…`",
        ),
        ("[providers.x]\nkind = \"openai\"\nkey = SECRET", "line 3"),
        (
            "[providers.x]\nkind = \"openai\"\nkey = { file = \"SECRET\" }",
            "`file` is not an absolute path",
        ),
        ("[providers.x]\nkind = \"openai\"\nkey = { env = \"SECRET\" }", "`env` is not the name"),
        ("SECRET = 1", "unknown key"),
        (
            "[providers.x]\nkind = \"openai\"\nbase_url = \"http://192.0.2.1/v1\"",
            "providers.x: a key is sent to other machines over https only",
        ),
    ];
    const SECRET: &str = "sk-proj-0123456789abcdef";
    for (text, message) in table {
        story.configure(&text.replace("SECRET", SECRET));
        let ran = story.run(["ps"]);
        assert_eq!(ran.code, 2, "{text}: {}", ran.err);
        assert!(!ran.err.contains("0123456789"), "a key is not quoted: {}", ran.err);
        assert!(
            ran.err.contains(message) && ran.err.contains("config.toml"),
            "{text}: {}",
            ran.err
        );
    }
}

#[test]
fn arguments_that_are_not_utf8_are_refused() {
    let story = StoryEnv::new();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let mut command = story.command(["exec", "--", "echo"]);
    let ran = command.arg(odd).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{err}");
    assert!(err.contains(r"caf\xE9") && err.contains("not UTF-8"), "{err}");
    let directory = story.project().join(odd);
    fs::create_dir(&directory).unwrap();
    let ran = story.run_in(&directory, ["ps"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("--workspace"), "{}", ran.err);
}

#[test]
fn an_unusable_state_directory_is_named() {
    let story = StoryEnv::new();
    let file = story.home().join("file");
    fs::write(&file, "not a directory").unwrap();
    let mut command = story.command(["ps"]);
    let ran = command.env("BRIGADE_STATE", file.join("below")).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(125), "{err}");
    assert!(err.contains("hint:"), "{err}");
    let mut command = story.command(["doctor"]);
    let ran = command.env("BRIGADE_STATE", &file).output().unwrap();
    assert_eq!(ran.status.code(), Some(120));
    assert!(String::from_utf8_lossy(&ran.stdout).starts_with("broken    state directory"));
}

#[test]
fn doctor_reports_a_state_directory_that_others_can_read() {
    let story = StoryEnv::new();
    fs::create_dir(story.state()).unwrap();
    fs::set_permissions(story.state(), Permissions::from_mode(0o755)).unwrap();
    let text = story.ok(["doctor"]);
    assert!(text.starts_with("degraded") && text.contains("chmod 700"), "{text}");
}

#[test]
fn foreign_stores_are_not_changed() {
    let table: [(&str, &str); 3] = [
        ("some text that is no store, and long enough to be read as one", "not a SQLite file"),
        ("foreign", "another program"),
        ("newer", "newer version"),
    ];
    for (kind, message) in table {
        let story = StoryEnv::new();
        fs::create_dir(story.state()).unwrap();
        let path = story.state().join("brigade.db");
        match kind {
            "foreign" => make_store(&path, &[(68, 77)]),
            "newer" => make_store(&path, &[(68, 0x6272_6764), (60, 99)]),
            text => fs::write(&path, text.repeat(20)).unwrap(),
        }
        let before = fs::read(&path).unwrap();
        let ran = story.run(["ps"]);
        assert_eq!(ran.code, 125, "{kind}: {}", ran.err);
        assert!(ran.err.contains(message) && ran.err.contains("hint"), "{kind}: {}", ran.err);
        let doctor = story.run(["doctor"]);
        assert_eq!(doctor.code, 120);
        assert!(doctor.out.contains(message), "{kind}: {}", doctor.out);
        assert_eq!(fs::read(&path).unwrap(), before, "{kind}");
    }
}

/// Makes a store, with some words of its header changed.
fn make_store(path: &std::path::Path, words: &[(usize, u32)]) {
    let other = StoryEnv::new();
    other.ok(["exec", "--", "true"]);
    other.ok(["daemon", "stop"]);
    let mut bytes = fs::read(other.state().join("brigade.db")).unwrap();
    for (at, word) in words {
        bytes[*at..*at + 4].copy_from_slice(&word.to_be_bytes());
    }
    fs::write(path, bytes).unwrap();
}

/// A handmade client of the daemon.
struct Peer {
    stream: UnixStream,
    lines: std::io::Lines<BufReader<UnixStream>>,
}

impl Peer {
    fn new(story: &StoryEnv) -> Self {
        let stream = UnixStream::connect(story.socket()).unwrap();
        stream.set_read_timeout(Some(crate::story_env::TOO_LONG)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        Self { stream, lines }
    }

    fn after_hello(story: &StoryEnv) -> Self {
        let mut peer = Self::new(story);
        let key = story.operator_key();
        let hello = json!({
            "protocol": 2, "version": "0.1.0", "role": "operator", "operator_key": key, "new": "field",
        });
        peer.send(&hello.to_string());
        assert_eq!(peer.receive()["protocol"], 2);
        peer
    }

    fn send(&mut self, line: &str) {
        self.stream.write_all(line.as_bytes()).unwrap();
        self.stream.write_all(b"\n").unwrap();
    }

    fn receive(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Returns true if the daemon sends nothing more.
    fn read_until_closed(mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok() && rest.is_empty()
    }
}

#[test]
fn malformed_lines_are_refused_and_harm_nobody() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let pid = story.daemon_pid();
    let mut peer = Peer::after_hello(&story);
    let bad = [
        "",
        "{",
        "[]",
        "7",
        "{\"id\":1}",
        r#"{"id":2,"request":{"dance":{}}}"#,
        r#"{"id":-1,"request":{"status":{}}}"#,
        r#"{"id":3,"request":{"show_task":{"target":7}}}"#,
        "\u{0}\u{1}",
    ];
    for line in bad {
        peer.send(line);
        assert_eq!(peer.receive()["refused"]["kind"], "invalid", "{line}");
    }
    // A line in two parts, with another request in between.
    peer.stream.write_all(br#"{"id":5,"request":{"sta"#).unwrap();
    poll("time for a reply", || (story.run(["ps"]).code == 0).then_some(()));
    peer.send(r#"tus":{}}}"#);
    assert_eq!(peer.receive()["reply"]["pid"], pid);
    // The id of an open request cannot be used again; after a cancel it can.
    story.ok(["exec", "-d", "--", "sleep", "60"]);
    let session = story.project().display().to_string();
    let wait =
        json!({"id": 9, "request": {"wait": {"session": session, "tasks": ["1"], "mode": "all"}}});
    peer.send(&wait.to_string());
    peer.send(&wait.to_string());
    let reply = peer.receive();
    assert_eq!((&reply["id"], &reply["refused"]["kind"]), (&9.into(), &"conflict".into()));
    peer.send(r#"{"id":9,"cancel":true}"#);
    assert_eq!(peer.receive()["refused"]["kind"], "unavailable");
    assert_eq!(story.daemon_pid(), pid);
}

#[test]
fn a_bad_hello_is_refused_with_a_reason() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    for (hello, message) in [
        ("GET / HTTP/1.1", "not a hello"),
        (r#"{"protocol":2,"version":"0.1.0","role":"root"}"#, "not a hello"),
    ] {
        let mut peer = Peer::new(&story);
        peer.send(hello);
        let reply = peer.receive();
        assert!(reply["refused"]["message"].as_str().unwrap().contains(message), "{reply}");
        assert_eq!(reply["version"], env!("CARGO_PKG_VERSION"));
        assert!(peer.read_until_closed());
    }
    assert_eq!(story.run(["daemon", "status"]).code, 0);
}

#[test]
fn a_client_that_disconnects_loses_nothing() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let session = story.project().display().to_string();
    for no in 0..20 {
        let mut peer = Peer::after_hello(&story);
        let exec = json!({
            "session": session, "key": format!("k{no}"), "command": {"shell": format!("echo {no} >> ran")},
            "cwd": session,
        });
        peer.send(&json!({"id": 1, "request": {"exec": exec}}).to_string());
    }
    // Received requests ran once; the same key finds them again.
    poll("the daemon has no other clients", || {
        (story.json(["daemon", "status"])["status"]["clients"] == 1).then_some(())
    });
    story.run(["wait"]);
    let tasks = story.json(["ps", "--ended"]).as_array().unwrap().len();
    let ran = fs::read_to_string(story.project().join("ran")).unwrap_or_default();
    assert_eq!(ran.lines().count(), tasks, "{ran}");
}

#[test]
fn a_broken_pipe_prints_no_error() {
    let story = StoryEnv::new();
    story.ok(["exec", "--", "seq", "100000"]);
    let mut shell = Command::new("sh");
    story.hermetic(&mut shell);
    let script = format!("{{ {0} logs 1; echo $? >&2; }} | head -n 1", crate::story_env::BRIGADE);
    let ran = shell.args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n");
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "141\n", "no error is printed");
}

#[test]
fn a_state_directory_of_another_user_is_refused() {
    let story = StoryEnv::new();
    fs::create_dir(story.state()).unwrap();
    if std::os::unix::fs::chown(story.state(), Some(12_345), None).is_err() {
        println!("only root can change an owner: skipped");
        return;
    }
    let ran = story.run(["exec", "--", "true"]);
    assert_eq!(ran.code, 125, "{}", ran.err);
    assert!(
        ran.err.contains("belongs to another user") && ran.err.contains("hint:"),
        "{}",
        ran.err
    );
}

/// A state directory on its own disk, which is unmounted on drop.
struct SmallDisk<'a>(&'a StoryEnv);

impl<'a> SmallDisk<'a> {
    fn mount(story: &'a StoryEnv) -> Option<Self> {
        fs::create_dir(story.state()).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs"]).arg(story.state());
        let mounted = mount.output().is_ok_and(|ran| ran.status.success());
        mounted.then_some(Self(story))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        self.0.run(["daemon", "stop"]);
        let _ = Command::new("umount").arg("--lazy").arg(self.0.state()).output();
    }
}

#[test]
fn a_full_disk_is_reported_and_loses_nothing_acknowledged() {
    let story = StoryEnv::new();
    let Some(_disk) = SmallDisk::mount(&story) else {
        println!("no disk can be mounted: skipped");
        return;
    };
    story.ok(["exec", "--key", "before", "--", "true"]);
    let long = story.ok(["exec", "-d", "--shell", "echo up; sleep 1; exit 5"]);
    poll("the command", || story.run(["logs", long.trim()]).out.contains("up").then_some(()));
    let filler = story.state().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let ran = story.run(["exec", "--", "true"]);
    assert!([120, 125].contains(&ran.code), "{} {}", ran.code, ran.err);
    assert!(ran.err.contains("full") || ran.err.contains("No space"), "{}", ran.err);
    // The space stays in use while the file is open.
    drop(file);
    fs::remove_file(filler).unwrap();
    assert_eq!(story.run(["wait", long.trim()]).code, 5, "it ran meanwhile");
    assert_eq!(story.run(["wait", "1"]).code, 0);
    story.ok(["exec", "--", "true"]);
}

#[test]
fn an_error_of_our_own_output_is_reported_as_ours() {
    let story = StoryEnv::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let run = |args: &[&str]| -> crate::story_env::Ran {
        story.command(args).stdout(full()).output().unwrap().into()
    };
    for args in [&["ps"][..], &["ps", "--json"], &["exec", "--", "echo", "hi"], &["logs", "1"]] {
        let ran = run(args);
        assert_eq!(ran.code, 125, "{args:?}: {ran:?}");
        assert!(ran.err.contains("our output cannot be written: No space"), "{args:?}: {ran:?}");
    }
    assert!(run(&["exec", "--", "echo", "hi"]).err.contains("process:2 keeps running"));
}

#[test]
fn exec_without_dashes_prints_the_right_form() {
    let story = StoryEnv::new();
    let ran = story.run(["exec", "true"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("put the command line after `--`"), "{}", ran.err);
    let ran = story.run(["close", "nowhere"]);
    assert!(ran.err.contains("`brigade sessions --all` lists"), "{}", ran.err);
}

#[test]
fn a_named_configuration_that_is_missing_is_an_error() {
    let story = StoryEnv::new();
    let missing = story.project().join("nowhere.toml");
    let ran: Ran = story.command(["ps"]).env("BRIGADE_CONFIG", &missing).output().unwrap().into();
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("nowhere.toml: there is no such file"), "{ran:?}");
    assert!(ran.err.contains("BRIGADE_CONFIG"), "{ran:?}");
    // The daemon has another working directory and reads the same file.
    std::fs::write(story.project().join("here.toml"), "output_cap = \"64K\"\n").unwrap();
    let ran: Ran = story
        .command(["exec", "--", "seq", "100000"])
        .env("BRIGADE_CONFIG", "here.toml")
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(story.ok(["logs", "1"]).len() < 200_000, "the cap applies");
    assert_eq!(story.run(["exec", "--", "true"]).code, 0, "an unnamed one may be missing");
}

#[test]
fn names_may_use_any_script() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "日本語", "--", "sleep", "1000"]);
    story.ok(["exec", "-d", "--name", "Prüfer", "--", "sleep", "1000"]);
    assert_eq!(story.json(["show", "日本"])["name"], "日本語", "also by its prefix");
    assert_eq!(story.json(["show", "PRÜFER"])["address"], "process:2");
    let taken = story.run(["exec", "--name", "pru\u{308}fer", "--", "true"]);
    assert_eq!(taken.code, 120, "{taken:?}");
    assert!(taken.err.contains("is taken by process:2, which is running"), "{taken:?}");
    for (name, part) in [
        ("p\u{430}ypal", "mixes alphabets in one word"),
        ("Te\u{200b}st", "the invisible character U+200B"),
        ("9lives", "must start with a letter"),
    ] {
        let refused = story.run(["exec", "--name", name, "--", "true"]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains(part), "{refused:?}");
    }
    story.ok(["stop", "日本語", "Prüfer"]);
}

#[test]
fn a_state_directory_that_cannot_be_created_is_named() {
    let story = StoryEnv::new();
    let ran = story.run(["--state", "/proc/nowhere/state", "ps"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(
        ran.err.contains("the daemon did not start: the state directory /proc/nowhere/state"),
        "{ran:?}"
    );
}
