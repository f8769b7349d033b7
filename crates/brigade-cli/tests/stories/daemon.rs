//! The daemon: one at a time, coming and going without anybody noticing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use rustix::process::Signal;

use crate::kitchen::{Kitchen, Ran, is_there, kill, poll};

#[test]
fn it_is_started_looked_at_and_stopped() {
    let kitchen = Kitchen::new();
    assert_eq!(kitchen.run(["daemon", "status"]).code, 127);
    assert_eq!(kitchen.ok(["daemon", "stop"]), "no daemon is running\n");
    assert!(kitchen.ok(["daemon", "start"]).contains("running: version"));
    let pid = kitchen.daemon_pid();
    kitchen.ok(["daemon", "start"]);
    assert_eq!(kitchen.daemon_pid(), pid);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&kitchen.state()), mode(&kitchen.socket())), (0o700, 0o600));
    let session = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = session.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(fields[3], pid.to_string(), "it leads a session of its own");
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
    assert_eq!(kitchen.ok(["daemon", "stop"]), format!("stopped (pid {pid})\n"));
    assert!(!is_there(pid) && !kitchen.socket().exists());
}

#[test]
fn a_second_one_is_told_that_there_is_one() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let pid = kitchen.daemon_pid();
    let ran = kitchen.run(["daemon", "start", "--foreground"]);
    assert_eq!(ran.code, 119, "no other failure has this code: {ran:?}");
    assert!(ran.err.contains(&format!("another daemon (pid {pid})")), "{}", ran.err);
}

#[test]
fn a_daemon_that_cannot_start_is_not_waited_for() {
    let kitchen = Kitchen::new();
    // A rule of the configuration that fails with the code for what failed otherwise.
    kitchen.ok(["daemon", "start"]);
    kitchen.ok(["daemon", "stop"]);
    std::fs::write(kitchen.state().join("brigade.db"), "no store at all").unwrap();
    let began = std::time::Instant::now();
    let ran = kitchen.run(["ps"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("the daemon did not start: "), "{ran:?}");
    assert!(ran.err.contains("brigade.db"), "{ran:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn twenty_clients_at_once_get_one_daemon() {
    let kitchen = Kitchen::new();
    let clients: Vec<_> = (0..20).map(|_| kitchen.start(["daemon", "status", "--json"])).collect();
    for client in clients {
        // Status alone starts nobody.
        assert_eq!(client.wait_with_output().unwrap().status.code(), Some(127));
    }
    let clients: Vec<_> = (0..20).map(|_| kitchen.start(["exec", "--", "echo", "hi"])).collect();
    for client in clients {
        let ran: Ran = client.wait_with_output().unwrap().into();
        assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "hi\n", ""));
    }
    let addresses: Vec<_> = kitchen.json(["ps", "--ended"]).as_array().unwrap().clone();
    assert_eq!(addresses.len(), 20);
    let log = std::fs::read_to_string(kitchen.state().join("daemon.log")).unwrap();
    assert_eq!(log.matches("serving").count(), 1, "{log}");
}

#[test]
fn a_race_to_start_has_one_winner_and_no_loser() {
    for round in 0..25 {
        let kitchen = Kitchen::new();
        let clients: Vec<_> =
            (0..4).map(|_| kitchen.start(["daemon", "start", "--json"])).collect();
        let pids: std::collections::BTreeSet<u64> = clients
            .into_iter()
            .map(|client| {
                let ran: Ran = client.wait_with_output().unwrap().into();
                assert_eq!(ran.code, 0, "round {round}: {}", ran.err);
                let status: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
                status["status"]["pid"].as_u64().unwrap()
            })
            .collect();
        assert_eq!(pids.len(), 1, "round {round}");
    }
}

#[test]
fn it_leaves_when_there_is_nothing_to_do() {
    let kitchen = Kitchen::new();
    kitchen.configure("idle_exit = \"300ms\"\n");
    kitchen.ok(["exec", "-d", "--shell", "until [ -e go ]; do sleep 0.02; done"]);
    let pid = kitchen.daemon_pid();
    std::thread::sleep(std::time::Duration::from_millis(900));
    assert!(is_there(pid), "something runs");
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    poll("it leaves", || (!is_there(pid)).then_some(()));
    assert_eq!(kitchen.run(["wait", "1"]).code, 0, "the next one knows");
}

#[test]
fn a_stop_leaves_commands_alone_and_clients_find_the_next_daemon() {
    let kitchen = Kitchen::new();
    let script = "echo up; until [ -e go ]; do sleep 0.02; done; echo done; exit 5";
    let client = kitchen.start(["exec", "--shell", script]);
    poll("it is up", || kitchen.run(["logs", "1"]).out.contains("up").then_some(()));
    let waiter = kitchen.start(["wait", "1"]);
    let first = kitchen.daemon_pid();
    kitchen.ok(["daemon", "stop"]);
    let second = poll("the next", || {
        let ran = kitchen.run(["daemon", "status"]);
        (ran.code == 0).then(|| kitchen.daemon_pid())
    });
    assert_ne!(first, second);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    let ran: Ran = client.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (5, "up\ndone\n"), "{}", ran.err);
    assert_eq!(waiter.wait_with_output().unwrap().status.code(), Some(5));
}

#[test]
fn daemons_that_leave_are_followed_without_a_gap() {
    let kitchen = Kitchen::new();
    for round in 0..10 {
        kitchen.ok(["daemon", "start"]);
        let stopper = kitchen.start(["daemon", "stop"]);
        let clients: Vec<_> = (0..3).map(|_| kitchen.start(["sessions"])).collect();
        assert!(stopper.wait_with_output().unwrap().status.success());
        for client in clients {
            let ran: Ran = client.wait_with_output().unwrap().into();
            assert_eq!(ran.code, 0, "round {round}: {}", ran.err);
        }
    }
}

#[test]
fn signals_let_it_leave_in_good_order() {
    let kitchen = Kitchen::new();
    for signal in [Signal::TERM, Signal::INT] {
        kitchen.ok(["daemon", "start"]);
        let pid = kitchen.daemon_pid();
        kill(pid, Signal::HUP);
        assert_eq!(kitchen.daemon_pid(), pid, "a terminal that hangs up is nothing to it");
        kill(pid, signal);
        poll("it leaves", || (!is_there(pid)).then_some(()));
        assert!(!kitchen.socket().exists());
    }
}

#[test]
fn an_older_daemon_makes_way() {
    let kitchen = Kitchen::new();
    std::fs::create_dir_all(kitchen.socket().parent().unwrap()).unwrap();
    let socket = kitchen.socket();
    let listener = UnixListener::bind(&socket).unwrap();
    let old = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let hello = lines.next().unwrap().unwrap();
        writeln!(&stream, r#"{{"protocol":1,"version":"0.0.9","pid":1}}"#).unwrap();
        let asked = lines.next().unwrap().unwrap();
        std::fs::remove_file(&socket).unwrap();
        drop(listener);
        writeln!(&stream, r#"{{"id":1,"done":null}}"#).unwrap();
        (hello, asked)
    });
    assert_eq!(kitchen.ok(["exec", "--", "echo", "new"]), "new\n");
    let (hello, asked) = old.join().unwrap();
    assert!(hello.contains(r#""protocol":1"#), "{hello}");
    assert!(asked.contains("leave"), "{asked}");
}

#[test]
fn a_daemon_of_another_protocol_is_named() {
    let kitchen = Kitchen::new();
    std::fs::create_dir_all(kitchen.socket().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(kitchen.socket()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut hello = String::new();
            BufReader::new(&stream).read_line(&mut hello).unwrap();
            let refused =
                r#"{"kind":"unavailable","message":"this daemon speaks protocol 8 to 9"}"#;
            writeln!(&stream, r#"{{"refused":{refused},"version":"9.0.0"}}"#).unwrap();
        }
    });
    let ran = kitchen.run(["ps"]);
    assert_eq!(ran.code, 125);
    assert!(ran.err.contains("9.0.0") && ran.err.contains("protocol 8 to 9"), "{}", ran.err);
    assert!(ran.err.contains("hint: use the same version"), "{}", ran.err);
}

#[test]
fn a_long_path_has_one_socket_whatever_the_surroundings() {
    let kitchen = Kitchen::new();
    let long = kitchen.folder(&"long/".repeat(40)).join("state");
    let mut command = kitchen.command(["exec", "--", "echo", "hi"]);
    command.env("BRIGADE_STATE", &long).env("XDG_RUNTIME_DIR", kitchen.folder("run"));
    let ran: Ran = command.stdin(Stdio::null()).output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "hi\n"), "{ran:?}");
    let mut stop = kitchen.command(["daemon", "stop"]);
    stop.env("BRIGADE_STATE", &long).env("TMPDIR", kitchen.folder("tmp"));
    let stopped: Ran = stop.output().unwrap().into();
    assert!(stopped.code == 0 && stopped.out.starts_with("stopped (pid"), "{stopped:?}");
}

#[test]
fn a_busy_daemon_stays_however_short_its_idle_time() {
    let kitchen = Kitchen::new();
    kitchen.configure("idle_exit = \"0s\"");
    let ran = kitchen.run(["exec", "--", "sleep", "0.5"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
}
