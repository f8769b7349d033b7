//! What should not be: a clear message with a hint, the right exit code, nothing lost.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::kitchen::{Kitchen, Ran, poll};

#[test]
fn usage_is_explained() {
    let kitchen = Kitchen::new();
    for args in [
        &["exec"][..],
        &["nonsense"],
        &["exec", "--bogus", "--", "true"],
        &["stop"],
        &["ps", "-n", "x"],
    ] {
        let ran = kitchen.command(args).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(!ran.stderr.is_empty());
    }
    assert_eq!(kitchen.processes(), Vec::<u32>::new(), "nothing was started for it");
}

#[test]
fn a_broken_configuration_is_explained() {
    let kitchen = Kitchen::new();
    let table = [
        ("idle_exti = \"5m\"", "unknown key idle_exti; did you mean idle_exit?"),
        ("colour = true", "unknown key colour"),
        ("idle_exit = \"soon\"", "idle_exit"),
        ("output_cap = \"big\"", "output_cap"),
        ("idle_exit = ", "config.toml"),
        (
            "[providers.x]\nkind = \"openai\"\nkey = \"SECRET\"",
            "line 3: `key`: unknown variant `…`",
        ),
        ("[providers.x]\nkind = \"openai\"\nkey = SECRET", "line 3"),
        (
            "[providers.x]\nkind = \"openai\"\nkey = { file = \"SECRET\" }",
            "`file` is no absolute path",
        ),
        ("[providers.x]\nkind = \"openai\"\nkey = { env = \"SECRET\" }", "`env` is no name"),
        ("SECRET = 1", "unknown key"),
        (
            "[providers.x]\nkind = \"openai\"\nbase_url = \"http://192.0.2.1/v1\"",
            "providers.x: a key is sent to other machines over https only",
        ),
    ];
    const SECRET: &str = "sk-proj-0123456789abcdef";
    for (text, said) in table {
        kitchen.configure(&text.replace("SECRET", SECRET));
        let ran = kitchen.run(["ps"]);
        assert_eq!(ran.code, 2, "{text}: {}", ran.err);
        assert!(!ran.err.contains("0123456789"), "a key is not quoted: {}", ran.err);
        assert!(ran.err.contains(said) && ran.err.contains("config.toml"), "{text}: {}", ran.err);
    }
}

#[test]
fn arguments_that_are_not_text_are_refused() {
    let kitchen = Kitchen::new();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let mut command = kitchen.command(["exec", "--", "echo"]);
    let ran = command.arg(odd).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{err}");
    assert!(err.contains(r"caf\xE9") && err.contains("not UTF-8"), "{err}");
    let folder = kitchen.project().join(odd);
    fs::create_dir(&folder).unwrap();
    let ran = kitchen.run_in(&folder, ["ps"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("--workspace"), "{}", ran.err);
}

#[test]
fn a_state_folder_that_cannot_be_used_is_named() {
    let kitchen = Kitchen::new();
    let file = kitchen.home().join("file");
    fs::write(&file, "not a folder").unwrap();
    let mut command = kitchen.command(["ps"]);
    let ran = command.env("BRIGADE_STATE", file.join("below")).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(125), "{err}");
    assert!(err.contains("hint:"), "{err}");
    let mut command = kitchen.command(["doctor"]);
    let ran = command.env("BRIGADE_STATE", &file).output().unwrap();
    assert_eq!(ran.status.code(), Some(120));
    assert!(String::from_utf8_lossy(&ran.stdout).starts_with("broken   state folder"));
}

#[test]
fn a_folder_that_others_can_read_is_pointed_out() {
    let kitchen = Kitchen::new();
    fs::create_dir(kitchen.state()).unwrap();
    fs::set_permissions(kitchen.state(), Permissions::from_mode(0o755)).unwrap();
    let said = kitchen.ok(["doctor"]);
    assert!(said.starts_with("lacking") && said.contains("chmod 700"), "{said}");
}

#[test]
fn stores_of_others_are_left_as_they_are() {
    let table: [(&str, &str); 3] = [
        ("some text that is no store, and long enough to be read as one", "not a SQLite file"),
        ("foreign", "another program"),
        ("newer", "newer version"),
    ];
    for (what, said) in table {
        let kitchen = Kitchen::new();
        fs::create_dir(kitchen.state()).unwrap();
        let path = kitchen.state().join("brigade.db");
        match what {
            "foreign" => make_store(&path, &[(68, 77)]),
            "newer" => make_store(&path, &[(68, 0x6272_6764), (60, 99)]),
            text => fs::write(&path, text.repeat(20)).unwrap(),
        }
        let before = fs::read(&path).unwrap();
        let ran = kitchen.run(["ps"]);
        assert_eq!(ran.code, 125, "{what}: {}", ran.err);
        assert!(ran.err.contains(said) && ran.err.contains("hint"), "{what}: {}", ran.err);
        let doctor = kitchen.run(["doctor"]);
        assert_eq!(doctor.code, 120);
        assert!(doctor.out.contains(said), "{what}: {}", doctor.out);
        assert_eq!(fs::read(&path).unwrap(), before, "{what}");
    }
}

/// A store as it is made, with some words of its header changed.
fn make_store(path: &std::path::Path, words: &[(usize, u32)]) {
    let other = Kitchen::new();
    other.ok(["exec", "--", "true"]);
    other.ok(["daemon", "stop"]);
    let mut bytes = fs::read(other.state().join("brigade.db")).unwrap();
    for (at, word) in words {
        bytes[*at..*at + 4].copy_from_slice(&word.to_be_bytes());
    }
    fs::write(path, bytes).unwrap();
}

/// Speaks to a daemon by hand.
struct Peer {
    stream: UnixStream,
    lines: std::io::Lines<BufReader<UnixStream>>,
}

impl Peer {
    fn new(kitchen: &Kitchen) -> Self {
        let stream = UnixStream::connect(kitchen.socket()).unwrap();
        stream.set_read_timeout(Some(crate::kitchen::TOO_LONG)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        Self { stream, lines }
    }

    fn greeted(kitchen: &Kitchen) -> Self {
        let mut peer = Self::new(kitchen);
        let key = kitchen.operator_key();
        let hello = json!({
            "protocol": 1, "version": "0.1.0", "who": "operator", "operator_key": key, "new": "field",
        });
        peer.say(&hello.to_string());
        assert_eq!(peer.hear()["protocol"], 1);
        peer
    }

    fn say(&mut self, line: &str) {
        self.stream.write_all(line.as_bytes()).unwrap();
        self.stream.write_all(b"\n").unwrap();
    }

    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Nothing more is said.
    fn hears_no_more(mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok() && rest.is_empty()
    }
}

#[test]
fn malformed_lines_are_answered_and_harm_nobody() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let pid = kitchen.daemon_pid();
    let mut peer = Peer::greeted(&kitchen);
    let bad = [
        "",
        "{",
        "[]",
        "7",
        "{\"id\":1}",
        r#"{"id":2,"ask":{"dance":{}}}"#,
        r#"{"id":-1,"ask":{"status":{}}}"#,
        r#"{"id":3,"ask":{"show":{"target":7}}}"#,
        "\u{0}\u{1}",
    ];
    for line in bad {
        peer.say(line);
        assert_eq!(peer.hear()["refused"]["kind"], "invalid", "{line}");
    }
    // A line in two parts with an answer in between.
    peer.stream.write_all(br#"{"id":5,"ask":{"sta"#).unwrap();
    poll("time for an answer", || (kitchen.run(["ps"]).code == 0).then_some(()));
    peer.say(r#"tus":{}}}"#);
    assert_eq!(peer.hear()["done"]["pid"], pid);
    // An id that is still open cannot be used again; taken back, it can.
    kitchen.ok(["exec", "-d", "--", "sleep", "60"]);
    let session = kitchen.project().display().to_string();
    let wait =
        json!({"id": 9, "ask": {"wait": {"session": session, "tasks": ["1"], "mode": "all"}}});
    peer.say(&wait.to_string());
    peer.say(&wait.to_string());
    let answer = peer.hear();
    assert_eq!((&answer["id"], &answer["refused"]["kind"]), (&9.into(), &"conflict".into()));
    peer.say(r#"{"id":9,"cancel":true}"#);
    assert_eq!(peer.hear()["refused"]["kind"], "unavailable");
    assert_eq!(kitchen.daemon_pid(), pid);
}

#[test]
fn a_bad_hello_is_sent_away_with_the_reason() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    for (hello, said) in [
        ("GET / HTTP/1.1", "not a hello"),
        (r#"{"protocol":1,"version":"0.1.0","who":"root"}"#, "not a hello"),
    ] {
        let mut peer = Peer::new(&kitchen);
        peer.say(hello);
        let answer = peer.hear();
        assert!(answer["refused"]["message"].as_str().unwrap().contains(said), "{answer}");
        assert_eq!(answer["version"], env!("CARGO_PKG_VERSION"));
        assert!(peer.hears_no_more());
    }
    assert_eq!(kitchen.run(["daemon", "status"]).code, 0);
}

#[test]
fn a_client_that_goes_away_in_the_middle_loses_nothing() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let session = kitchen.project().display().to_string();
    for no in 0..20 {
        let mut peer = Peer::greeted(&kitchen);
        let exec = json!({
            "session": session, "key": format!("k{no}"), "command": {"shell": format!("echo {no} >> ran")},
            "cwd": session,
        });
        peer.say(&json!({"id": 1, "ask": {"exec": exec}}).to_string());
    }
    // Those that were heard ran, once; whoever asks again finds them.
    poll("the daemon has nobody", || {
        (kitchen.json(["daemon", "status"])["status"]["clients"] == 1).then_some(())
    });
    kitchen.run(["wait"]);
    let tasks = kitchen.json(["ps", "--ended"]).as_array().unwrap().len();
    let ran = fs::read_to_string(kitchen.project().join("ran")).unwrap_or_default();
    assert_eq!(ran.lines().count(), tasks, "{ran}");
}

#[test]
fn a_pipe_that_breaks_is_no_failure() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--", "seq", "100000"]);
    let mut shell = Command::new("sh");
    kitchen.hermetic(&mut shell);
    let script = format!("{{ {0} logs 1; echo $? >&2; }} | head -n 1", crate::kitchen::BRIGADE);
    let ran = shell.args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n");
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "141\n", "nothing is said");
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let kitchen = Kitchen::new();
    fs::create_dir(kitchen.state()).unwrap();
    if std::os::unix::fs::chown(kitchen.state(), Some(12_345), None).is_err() {
        println!("only root can give a folder away: passed over");
        return;
    }
    let ran = kitchen.run(["exec", "--", "true"]);
    assert_eq!(ran.code, 125, "{}", ran.err);
    assert!(
        ran.err.contains("belongs to another user") && ran.err.contains("hint:"),
        "{}",
        ran.err
    );
}

/// A state folder on a disk of its own, which is unmounted with it.
struct SmallDisk<'a>(&'a Kitchen);

impl<'a> SmallDisk<'a> {
    fn mount(kitchen: &'a Kitchen) -> Option<Self> {
        fs::create_dir(kitchen.state()).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs"]).arg(kitchen.state());
        let mounted = mount.output().is_ok_and(|ran| ran.status.success());
        mounted.then_some(Self(kitchen))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        self.0.run(["daemon", "stop"]);
        let _ = Command::new("umount").arg("--lazy").arg(self.0.state()).output();
    }
}

#[test]
fn a_full_disk_is_said_to_be_full_and_loses_nothing_that_was_acknowledged() {
    let kitchen = Kitchen::new();
    let Some(_disk) = SmallDisk::mount(&kitchen) else {
        println!("a disk of its own cannot be mounted: passed over");
        return;
    };
    kitchen.ok(["exec", "--key", "before", "--", "true"]);
    let long = kitchen.ok(["exec", "-d", "--shell", "echo up; sleep 1; exit 5"]);
    poll("the command", || kitchen.run(["logs", long.trim()]).out.contains("up").then_some(()));
    let filler = kitchen.state().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let ran = kitchen.run(["exec", "--", "true"]);
    assert!([120, 125].contains(&ran.code), "{} {}", ran.code, ran.err);
    assert!(ran.err.contains("full") || ran.err.contains("No space"), "{}", ran.err);
    // As long as somebody has it open the space is taken.
    drop(file);
    fs::remove_file(filler).unwrap();
    assert_eq!(kitchen.run(["wait", long.trim()]).code, 5, "it ran through all this");
    assert_eq!(kitchen.run(["wait", "1"]).code, 0);
    kitchen.ok(["exec", "--", "true"]);
}

#[test]
fn a_full_output_is_said_to_be_ours() {
    let kitchen = Kitchen::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let run = |args: &[&str]| -> crate::kitchen::Ran {
        kitchen.command(args).stdout(full()).output().unwrap().into()
    };
    for args in [&["ps"][..], &["ps", "--json"], &["exec", "--", "echo", "hi"], &["logs", "1"]] {
        let ran = run(args);
        assert_eq!(ran.code, 125, "{args:?}: {ran:?}");
        assert!(ran.err.contains("our output cannot be written: No space"), "{args:?}: {ran:?}");
    }
    assert!(run(&["exec", "--", "echo", "hi"]).err.contains("process:2 goes on"));
}

#[test]
fn a_command_without_its_dashes_is_shown_them() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["exec", "true"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("stand after `--`"), "{}", ran.err);
    let ran = kitchen.run(["close", "nowhere"]);
    assert!(ran.err.contains("`brigade sessions --all` lists"), "{}", ran.err);
}

#[test]
fn a_named_configuration_that_is_missing_is_an_error() {
    let kitchen = Kitchen::new();
    let missing = kitchen.project().join("nowhere.toml");
    let ran: Ran = kitchen.command(["ps"]).env("BRIGADE_CONFIG", &missing).output().unwrap().into();
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("nowhere.toml: there is no such file"), "{ran:?}");
    assert!(ran.err.contains("BRIGADE_CONFIG"), "{ran:?}");
    // The daemon is at home elsewhere and reads the same file.
    std::fs::write(kitchen.project().join("here.toml"), "output_cap = \"64K\"\n").unwrap();
    let ran: Ran = kitchen
        .command(["exec", "--", "seq", "100000"])
        .env("BRIGADE_CONFIG", "here.toml")
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(kitchen.ok(["logs", "1"]).len() < 200_000, "the cap holds");
    assert_eq!(kitchen.run(["exec", "--", "true"]).code, 0, "an unnamed one may be missing");
}

#[test]
fn names_have_letters_of_any_script_and_are_found_by_them() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "日本語", "--", "sleep", "1000"]);
    kitchen.ok(["exec", "-d", "--name", "Prüfer", "--", "sleep", "1000"]);
    assert_eq!(kitchen.json(["show", "日本"])["name"], "日本語", "by its beginning too");
    assert_eq!(kitchen.json(["show", "PRÜFER"])["address"], "process:2");
    let taken = kitchen.run(["exec", "--name", "pru\u{308}fer", "--", "true"]);
    assert_eq!(taken.code, 120, "{taken:?}");
    assert!(taken.err.contains("is taken by process:2, which is running"), "{taken:?}");
    for (name, part) in [
        ("p\u{430}ypal", "mixes alphabets in one word"),
        ("Te\u{200b}st", "the invisible character U+200B"),
        ("9lives", "must start with a letter"),
    ] {
        let refused = kitchen.run(["exec", "--name", name, "--", "true"]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains(part), "{refused:?}");
    }
    kitchen.ok(["stop", "日本語", "Prüfer"]);
}

#[test]
fn a_state_folder_that_cannot_be_made_is_named() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["--state", "/proc/nowhere/state", "ps"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(
        ran.err.contains("the daemon did not start: the state folder /proc/nowhere/state"),
        "{ran:?}"
    );
}
