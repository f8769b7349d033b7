//! Commands on a terminal, with limits, and confined, as people start them.

use std::fs;
use std::path::Path;

use brigade_process::LandlockSupport;
use serde_json::json;

use crate::kitchen::{BRIGADE, Kitchen};

fn can_confine(kitchen: &Kitchen) -> bool {
    let can = LandlockSupport::detect().check().is_ok();
    let told = kitchen.ok(["doctor"]);
    assert!(told.lines().any(|line| line.contains("confinement")), "{told}");
    if !can {
        eprintln!(
            "not tested: this kernel cannot confine commands ({:?})",
            LandlockSupport::detect()
        );
    }
    can
}

/// What Landlock refuses may also be hidden or read-only, where namespaces can be made.
fn kept_out(text: &str) -> usize {
    let refusals =
        ["ermission denied", "No such file", "irectory nonexistent", "Read-only file system"];
    refusals.iter().map(|refusal| text.matches(refusal).count()).sum()
}

/// Where the program under test lies, for a confined command to execute.
fn programs() -> &'static str {
    Path::new(BRIGADE).parent().and_then(Path::to_str).unwrap()
}

#[test]
fn a_confined_command_stays_inside() {
    let kitchen = Kitchen::new();
    if !can_confine(&kitchen) {
        return;
    }
    fs::write(kitchen.home().join("secret"), "soup\n").unwrap();
    let data = kitchen.folder("data");
    fs::write(data.join("file"), "listed\n").unwrap();
    let script = "echo in > in; cat ~/secret; echo x > ~/new; cat ../data/file";
    let ran = kitchen.run(["exec", "--confine-read", "../data", "--shell", script]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "listed\n"), "{ran:?}");
    assert_eq!(kept_out(&ran.err), 2, "{ran:?}");
    assert_eq!(kitchen.file("in"), "in\n");
    assert!(!kitchen.home().join("new").exists());
    let shown = kitchen.ok(["show", "1"]);
    let (project, data) = (kitchen.project(), data.display());
    let expect = format!("confined   writes {}; reads {data}\n", project.display());
    assert!(shown.contains(&expect), "{shown}");
    let json = kitchen.json(["show", "1"]);
    assert_eq!(json["enclosure"]["confinement"][0]["read"][0], data.to_string());
    // What holds is told by the shim that did it.
    assert!(shown.contains("sandbox    Landlock, seccomp"), "{shown}");
    assert_eq!(json["sandbox"][1], "seccomp");
    let has_mounts = kitchen.ok(["doctor"]).contains("are a command's own");
    assert_eq!(shown.contains("mount namespace\n"), has_mounts, "{shown}");
}

#[test]
fn no_network_is_left_where_none_is_wanted() {
    let kitchen = Kitchen::new();
    if !can_confine(&kitchen) {
        return;
    }
    let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("bash -c 'echo out > /dev/udp/127.0.0.1/{port}'; {BRIGADE} ps --json");
    let read = ["exec", "--confine-read", programs(), "--no-tcp", "--shell", &script];
    let ran = kitchen.run(read);
    assert_eq!((ran.code, ran.out.as_str()), (0, "[]\n"), "{ran:?}");
    assert!(listener.recv(&mut [0; 8]).is_ok(), "UDP is left by --no-tcp");
    // The daemon's socket is no network.
    let ran =
        kitchen.run(["exec", "--confine-read", programs(), "--no-network", "--shell", &script]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "[]\n"), "{ran:?}");
    assert!(ran.err.contains("not permitted"), "{ran:?}");
    assert!(listener.recv(&mut [0; 8]).is_err());
    let shown = kitchen.ok(["show", "2"]);
    assert!(shown.contains("; reads ") && shown.contains("; no network\n"), "{shown}");
}

#[test]
fn a_sandboxed_command_speaks_to_the_next_daemon_too() {
    let kitchen = Kitchen::new();
    if !can_confine(&kitchen) {
        return;
    }
    let script = format!(
        "{BRIGADE} ps --json > before; echo > up; while [ ! -e go ]; do sleep 0.02; done
         {BRIGADE} exec --shell 'echo inner; cat {state}/operator.key {state}/brigade.db' > after 2>&1; echo > over",
        state = kitchen.state().display()
    );
    kitchen.ok(["exec", "-d", "--confine-read", programs(), "--name", "Long", "--shell", &script]);
    kitchen.file("up");
    kitchen.kill_daemon();
    kitchen.ok(["ps"]);
    fs::write(kitchen.project().join("go"), "").unwrap();
    assert_eq!(kitchen.run(["wait", "Long"]).code, 0);
    let after = kitchen.file("after");
    assert!(after.contains("inner\n") && !after.contains(&kitchen.operator_key()), "{after}");
    assert!(!after.contains("SQLite"), "{after}");
    assert_eq!(kept_out(&after), 2, "{after}");
}

#[test]
fn limits_bite_and_the_ending_says_so() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["exec", "--max-cpu", "1s", "--shell", "while :; do :; done"]);
    assert!(ran.err.contains("signal 24: its processor time is used up"), "{ran:?}");
    let limits =
        ["exec", "--max-files", "64", "--max-memory", "512M", "--shell", "ulimit -n; ulimit -v"];
    let ran = kitchen.run(limits);
    assert_eq!(ran.out, "64\n524288\n", "{ran:?}");
    let shown = kitchen.ok(["show", "2"]);
    assert!(shown.contains("limits     512M of memory, 64 open files for each process"), "{shown}");
    let ran = kitchen.run(["exec", "--max-memory", "lots", "--", "true"]);
    assert!(ran.code == 2 && ran.err.contains("is no size; write bytes"), "{ran:?}");
}

#[test]
fn a_confined_command_is_not_the_operator() {
    let kitchen = Kitchen::new();
    if !can_confine(&kitchen) || !LandlockSupport::detect().has_scopes() {
        eprintln!("not tested: this kernel does not keep signals inside");
        return;
    }
    kitchen.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    fs::write(kitchen.home().join("secret"), "soup\n").unwrap();
    // It cannot end its shim, to be nobody's child; what it starts through the daemon is confined too.
    let script = format!(
        "kill -9 $PPID; setsid {BRIGADE} stop 1; {BRIGADE} ps --json | grep -c Sibling
         {BRIGADE} exec --shell 'cat {home}/secret; echo x > {home}/new; echo nested'
         {BRIGADE} exec --confine-write {home} --shell 'cat {home}/secret'
         {BRIGADE} exec --cwd {home} --shell 'cat secret'",
        home = kitchen.home().display()
    );
    let ran = kitchen.run(["exec", "--confine-read", programs(), "--shell", &script]);
    assert!(!ran.out.contains("soup") && ran.out.contains("nested"), "{ran:?}");
    assert_eq!(ran.out.lines().next(), Some("0"), "{ran:?}");
    assert!(ran.err.contains("not permitted") && ran.err.contains("not yours"), "{ran:?}");
    assert!(kept_out(&ran.err) >= 4, "{ran:?}");
    assert!(!kitchen.home().join("new").exists());
    assert_eq!(kitchen.state_of("Sibling"), "running");
}

#[test]
fn a_terminal_outlives_the_daemon() {
    let kitchen = Kitchen::new();
    let script = "stty -echo; stty size; echo up > up; read a; read b; echo $a and $b; tty > tty";
    kitchen.ok(["exec", "-d", "--pty=99x31", "--name", "Terminal", "--shell", script]);
    kitchen.file("up");
    kitchen.ok(["send", "Terminal", "one"]);
    kitchen.kill_daemon();
    kitchen.ok(["send", "Terminal", "two"]);
    assert_eq!(kitchen.run(["wait", "Terminal"]).code, 0);
    assert_eq!(kitchen.ok(["logs", "Terminal"]), "31 99\r\none and two\r\n");
    assert!(kitchen.file("tty").starts_with("/dev/"));
    assert!(kitchen.ok(["show", "Terminal"]).contains("terminal   99x31\n"));
}

#[test]
fn lines_of_ours_are_typed() {
    let kitchen = Kitchen::new();
    let script = "while read line; do echo got $line; done";
    let ran = kitchen.run_with_input(["exec", "--pty", "--stdin", "--shell", script], "a\nb\n");
    // What is typed also appears, as on every terminal; when, is another matter.
    let got: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("got ")).collect();
    assert_eq!((ran.code, &*got), (0, &["got a", "got b"][..]), "{ran:?}");
    let ran = kitchen.run(["exec", "--pty=wide", "--", "true"]);
    assert!(ran.err.contains("such as 80x24"), "{ran:?}");
}

#[test]
fn an_agent_that_is_run_confined_has_confined_commands() {
    let kitchen = Kitchen::new();
    if !can_confine(&kitchen) {
        return;
    }
    fs::write(kitchen.home().join("secret"), "soup\n").unwrap();
    let home = kitchen.home().display().to_string();
    kitchen.script(&format!(
        "agent *
turn
  call run_process {{\"command\": \"cat {home}/secret; echo in > in\"}}
turn
  when cat: {home}/secret
  say It is shut.
"
    ));
    let run = ["run", "--confine", "--allow", "run_process", "Look"];
    assert_eq!(kitchen.ok(run), "It is shut.\n");
    assert_eq!(kitchen.file("in"), "in\n");
    kitchen.define("shut", "---\nname: shut\ndescription: Looks.\nconfine: true\n---\nLook.\n");
    kitchen.trust();
    let run = ["run", "--agent", "shut", "--allow", "run_process", "Look"];
    assert_eq!(kitchen.ok(run), "It is shut.\n");
}

#[test]
fn a_confined_command_reaches_no_file_through_the_daemon() {
    let kitchen = Kitchen::new();
    if !can_confine(&kitchen) {
        return;
    }
    let home = kitchen.home();
    fs::write(home.join("secret"), "soup\n").unwrap();
    fs::write(kitchen.project().join("own"), "agent *\nturn\n  say Fine.\n").unwrap();
    let agents = home.join(".config/brigade/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("mine.md"), "---\nname: mine\ndescription: M.\n---\nMine.\n").unwrap();
    let ran = kitchen.run(["exec", "--confine-read", programs(), "--", BRIGADE, "agents"]);
    assert!(ran.out.contains("general") && !ran.out.contains("mine"), "{ran:?}");
    // By hand: it may not see the directory that it names.
    let hello = json!({ "protocol": 1, "version": "0.1.0", "who": "operator" });
    let ask = json!({ "id": 1, "ask": { "agents": { "cwd": home } } });
    fs::write(kitchen.project().join("lines"), format!("{hello}\n{ask}\n")).unwrap();
    let speak = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
        s.send(open('lines', 'rb').read())\n\
        answers = s.makefile()\n\
        answers.readline(); print(answers.readline())";
    let socket = kitchen.socket().display().to_string();
    let ran = kitchen.run(["exec", "--confine", "--", "python3", "-c", speak, &socket]);
    assert!(ran.out.contains("outside of what"), "{ran:?}");
    for (asked, told) in [
        ("run -d --model script:own x".to_owned(), "starts no agents"),
        (format!("run -d --model script:{}/secret x", home.display()), "starts no agents"),
        (format!("exec --env-file X={}/secret -- env", home.display()), "X refers to"),
        ("exec --env-from X=HOME -- env".to_owned(), "X refers to"),
    ] {
        let script = format!("{BRIGADE} {asked}");
        let ran = kitchen.run(["exec", "--confine-read", programs(), "--shell", &script]);
        // What is hidden is not even there to be named.
        let is_refused = ran.code == 126 && ran.err.contains(told);
        assert!(is_refused || ran.err.contains("there is no script"), "{ran:?}");
        assert!(!ran.err.contains("soup"), "{ran:?}");
    }
    let script = format!("{BRIGADE} run -d --model script:own x");
    let ran = kitchen.run(["exec", "--no-tcp", "--confine-read", programs(), "--shell", &script]);
    assert!(ran.code == 126 && ran.err.contains("without TCP starts no agents"), "{ran:?}");
    // With a budget it starts agents, and still reaches nothing through them.
    let within = |asked: &str| {
        let script = format!("{BRIGADE} {asked}");
        let args =
            ["exec", "--agent-budget", "1m", "--confine-read", programs(), "--shell", &script];
        kitchen.run(args)
    };
    let ran = within("run -d --model script:own x");
    assert!(ran.code == 126 && ran.err.contains("which is a file"), "{ran:?}");
    let ran = within(&format!("run -d --model script:own --record {}/new x", home.display()));
    assert!(ran.code == 126 && ran.err.contains("which is a file"), "{ran:?}");
    assert!(!home.join("new").exists());
}
