//! Processes on a terminal, with limits, and in a sandbox.

use std::fs;
use std::path::Path;

use brigade_process::LandlockSupport;
use serde_json::json;

use crate::story_env::{BRIGADE, StoryEnv};

pub(crate) fn can_sandbox(story: &StoryEnv) -> bool {
    let is_supported = LandlockSupport::detect().check().is_ok();
    let findings = story.ok(["doctor"]);
    assert!(findings.lines().any(|line| line.contains("sandbox")), "{findings}");
    if !is_supported {
        eprintln!(
            "not tested: this kernel cannot sandbox processes ({:?})",
            LandlockSupport::detect()
        );
    }
    is_supported
}

/// Counts denied accesses. With namespaces, a file that Landlock denies may also be hidden or
/// read-only.
fn count_denials(text: &str) -> usize {
    let refusals =
        ["ermission denied", "No such file", "irectory nonexistent", "Read-only file system"];
    refusals.iter().map(|refusal| text.matches(refusal).count()).sum()
}

/// Returns the directory of the program under test, for a sandboxed process to execute.
fn program_dir() -> &'static str {
    Path::new(BRIGADE).parent().and_then(Path::to_str).unwrap()
}

#[test]
fn a_sandboxed_process_is_kept_inside() {
    let story = StoryEnv::new();
    if !can_sandbox(&story) {
        return;
    }
    fs::write(story.home().join("secret"), "soup\n").unwrap();
    let data = story.directory("data");
    fs::write(data.join("file"), "listed\n").unwrap();
    let script = "echo in > in; cat ~/secret; echo x > ~/new; cat ../data/file";
    let ran = story.run(["exec", "--sandbox-read", "../data", "--shell", script]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "listed\n"), "{ran:?}");
    assert_eq!(count_denials(&ran.err), 2, "{ran:?}");
    assert_eq!(story.file("in"), "in\n");
    assert!(!story.home().join("new").exists());
    let shown = story.ok(["show", "1"]);
    let project = story.project();
    let data = data.display();
    let expect = format!("sandbox    writes {}; reads {data}\n", project.display());
    assert!(shown.contains(&expect), "{shown}");
    let json = story.json(["show", "1"]);
    assert_eq!(json["sandbox"]["layers"][0]["read"][0], data.to_string());
    // The shim reports the active layers.
    assert!(shown.contains("layers     Landlock, seccomp"), "{shown}");
    assert_eq!(json["sandbox_parts"][1], "seccomp");
    let has_mounts = story.ok(["doctor"]).contains("belong to the process alone");
    assert_eq!(shown.contains("mount namespace\n"), has_mounts, "{shown}");
}

#[test]
fn no_network_denies_tcp_and_udp() {
    let story = StoryEnv::new();
    if !can_sandbox(&story) {
        return;
    }
    let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("bash -c 'echo out > /dev/udp/127.0.0.1/{port}'; {BRIGADE} ps --json");
    let read = ["exec", "--sandbox-read", program_dir(), "--no-tcp", "--shell", &script];
    let ran = story.run(read);
    assert_eq!((ran.code, ran.out.as_str()), (0, "[]\n"), "{ran:?}");
    assert!(listener.recv(&mut [0; 8]).is_ok(), "--no-tcp allows UDP");
    // The daemon's socket is not a network.
    let ran =
        story.run(["exec", "--sandbox-read", program_dir(), "--no-network", "--shell", &script]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "[]\n"), "{ran:?}");
    assert!(ran.err.contains("not permitted"), "{ran:?}");
    assert!(listener.recv(&mut [0; 8]).is_err());
    let shown = story.ok(["show", "2"]);
    assert!(shown.contains("; reads ") && shown.contains("; no network\n"), "{shown}");
}

#[test]
fn a_sandboxed_process_reaches_the_next_daemon() {
    let story = StoryEnv::new();
    if !can_sandbox(&story) {
        return;
    }
    let script = format!(
        "{BRIGADE} ps --json > before; echo > up; while [ ! -e go ]; do sleep 0.02; done
         {BRIGADE} exec --shell 'echo inner; cat {state}/operator.key {state}/brigade.db' > after 2>&1; echo > over",
        state = story.state().display()
    );
    story.ok(["exec", "-d", "--sandbox-read", program_dir(), "--name", "Long", "--shell", &script]);
    story.file("up");
    story.kill_daemon();
    story.ok(["ps"]);
    fs::write(story.project().join("go"), "").unwrap();
    assert_eq!(story.run(["wait", "Long"]).code, 0);
    let after = story.file("after");
    assert!(after.contains("inner\n") && !after.contains(&story.operator_key()), "{after}");
    assert!(!after.contains("SQLite"), "{after}");
    assert_eq!(count_denials(&after), 2, "{after}");
}

#[test]
fn limits_end_a_process_with_a_reason() {
    let story = StoryEnv::new();
    let ran = story.run(["exec", "--max-cpu", "1s", "--shell", "while :; do :; done"]);
    assert!(ran.err.contains("signal 24: its processor time is used up"), "{ran:?}");
    let limits =
        ["exec", "--max-files", "64", "--max-memory", "512M", "--shell", "ulimit -n; ulimit -v"];
    let ran = story.run(limits);
    assert_eq!(ran.out, "64\n524288\n", "{ran:?}");
    let shown = story.ok(["show", "2"]);
    assert!(shown.contains("limits     512M of memory, 64 open files for each process"), "{shown}");
    let ran = story.run(["exec", "--max-memory", "lots", "--", "true"]);
    assert!(ran.code == 2 && ran.err.contains("is not a size; write bytes"), "{ran:?}");
}

#[test]
fn a_sandboxed_process_is_not_the_operator() {
    let story = StoryEnv::new();
    if !can_sandbox(&story) || !LandlockSupport::detect().has_scopes() {
        eprintln!("not tested: this kernel does not restrict signals");
        return;
    }
    story.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    fs::write(story.home().join("secret"), "soup\n").unwrap();
    // It cannot kill its shim to lose its parent; processes that it starts through the daemon are
    // sandboxed too.
    let script = format!(
        "kill -9 $PPID; setsid {BRIGADE} stop 1; {BRIGADE} ps --json | grep -c Sibling
         {BRIGADE} exec --shell 'cat {home}/secret; echo x > {home}/new; echo nested'
         {BRIGADE} exec --sandbox-write {home} --shell 'cat {home}/secret'
         {BRIGADE} exec --cwd {home} --shell 'cat secret'",
        home = story.home().display()
    );
    let ran = story.run(["exec", "--sandbox-read", program_dir(), "--shell", &script]);
    assert!(!ran.out.contains("soup") && ran.out.contains("nested"), "{ran:?}");
    assert_eq!(ran.out.lines().next(), Some("0"), "{ran:?}");
    assert!(ran.err.contains("not permitted") && ran.err.contains("not yours"), "{ran:?}");
    assert!(count_denials(&ran.err) >= 4, "{ran:?}");
    assert!(!story.home().join("new").exists());
    assert_eq!(story.state_of("Sibling"), "running");
}

#[test]
fn a_terminal_outlives_the_daemon() {
    let story = StoryEnv::new();
    let script = "stty -echo; stty size; echo up > up; read a; read b; echo $a and $b; tty > tty";
    story.ok(["exec", "-d", "--pty=99x31", "--name", "Terminal", "--shell", script]);
    story.file("up");
    story.ok(["send", "Terminal", "one"]);
    story.kill_daemon();
    story.ok(["send", "Terminal", "two"]);
    assert_eq!(story.run(["wait", "Terminal"]).code, 0);
    assert_eq!(story.ok(["logs", "Terminal"]), "31 99\r\none and two\r\n");
    assert!(story.file("tty").starts_with("/dev/"));
    assert!(story.ok(["show", "Terminal"]).contains("terminal   99x31\n"));
}

#[test]
fn stdin_is_typed_on_the_terminal() {
    let story = StoryEnv::new();
    let script = "while read line; do echo got $line; done";
    let ran = story.run_with_input(["exec", "--pty", "--stdin", "--shell", script], "a\nb\n");
    // The terminal echoes typed input at some time.
    let got: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("got ")).collect();
    assert_eq!((ran.code, &*got), (0, &["got a", "got b"][..]), "{ran:?}");
    let ran = story.run(["exec", "--pty=wide", "--", "true"]);
    assert!(ran.err.contains("such as 80x24"), "{ran:?}");
}

#[test]
fn a_sandboxed_agent_has_sandboxed_processes() {
    let story = StoryEnv::new();
    if !can_sandbox(&story) {
        return;
    }
    fs::write(story.home().join("secret"), "soup\n").unwrap();
    let home = story.home().display().to_string();
    story.script(&format!(
        "agent *
turn
  call run_process {{\"command\": \"cat {home}/secret; echo in > in\"}}
turn
  when cat: {home}/secret
  say It is shut.
"
    ));
    let run = ["run", "--sandbox", "--allow", "run_process", "Look"];
    assert_eq!(story.ok(run), "It is shut.\n");
    assert_eq!(story.file("in"), "in\n");
    story.define("shut", "---\nname: shut\ndescription: Looks.\nsandbox: true\n---\nLook.\n");
    story.trust();
    let run = ["run", "--agent", "shut", "--allow", "run_process", "Look"];
    assert_eq!(story.ok(run), "It is shut.\n");
}

#[test]
fn a_sandboxed_process_reaches_no_file_through_the_daemon() {
    let story = StoryEnv::new();
    if !can_sandbox(&story) {
        return;
    }
    let home = story.home();
    fs::write(home.join("secret"), "soup\n").unwrap();
    fs::write(story.project().join("own"), "agent *\nturn\n  say Fine.\n").unwrap();
    let agents = home.join(".config/brigade/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("mine.md"), "---\nname: mine\ndescription: M.\n---\nMine.\n").unwrap();
    let ran = story.run(["exec", "--sandbox-read", program_dir(), "--", BRIGADE, "agents"]);
    assert!(ran.out.contains("general") && !ran.out.contains("mine"), "{ran:?}");
    // A handmade request: it may not see the directory that it names.
    let hello = json!({ "protocol": 2, "version": "0.1.0", "role": "operator" });
    let request = json!({ "id": 1, "request": { "list_agents": { "cwd": home } } });
    fs::write(story.project().join("lines"), format!("{hello}\n{request}\n")).unwrap();
    let client = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
        s.send(open('lines', 'rb').read())\n\
        replies = s.makefile()\n\
        replies.readline(); print(replies.readline())";
    let socket = story.socket().display().to_string();
    let ran = story.run(["exec", "--sandbox", "--", "python3", "-c", client, &socket]);
    assert!(ran.out.contains("is outside of"), "{ran:?}");
    for (arguments, refusal) in [
        ("run -d --model script:own x".to_owned(), "starts no agents"),
        (format!("run -d --model script:{}/secret x", home.display()), "starts no agents"),
        (format!("exec --env-file X={}/secret -- env", home.display()), "X refers to"),
        ("exec --env-from X=HOME -- env".to_owned(), "X refers to"),
    ] {
        let script = format!("{BRIGADE} {arguments}");
        let ran = story.run(["exec", "--sandbox-read", program_dir(), "--shell", &script]);
        // A hidden file does not exist for it.
        let is_refused = ran.code == 126 && ran.err.contains(refusal);
        assert!(is_refused || ran.err.contains("there is no script"), "{ran:?}");
        assert!(!ran.err.contains("soup"), "{ran:?}");
    }
    let script = format!("{BRIGADE} run -d --model script:own x");
    let ran = story.run(["exec", "--no-tcp", "--sandbox-read", program_dir(), "--shell", &script]);
    assert!(ran.code == 126 && ran.err.contains("without TCP starts no agents"), "{ran:?}");
    // With a budget it starts agents, and still reaches no file through them.
    let run_within = |arguments: &str| {
        let script = format!("{BRIGADE} {arguments}");
        let args =
            ["exec", "--agent-budget", "1m", "--sandbox-read", program_dir(), "--shell", &script];
        story.run(args)
    };
    let ran = run_within("run -d --model script:own x");
    assert!(ran.code == 126 && ran.err.contains("which is a file"), "{ran:?}");
    let ran = run_within(&format!("run -d --model script:own --record {}/new x", home.display()));
    assert!(ran.code == 126 && ran.err.contains("which is a file"), "{ran:?}");
    assert!(!home.join("new").exists());
}
