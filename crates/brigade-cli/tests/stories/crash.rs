//! Daemons that are killed.

use std::io::Write;
use std::process::Child;

use rustix::process::Signal;

use crate::kitchen::{Kitchen, Ran, is_there, kill, poll};

const UNTIL_GO: &str = "echo up; until [ -e go ]; do sleep 0.02; done; echo done; exit 5";

#[test]
fn an_attached_client_finds_the_next_daemon() {
    let kitchen = Kitchen::new();
    let client = kitchen.start(["exec", "--shell", UNTIL_GO]);
    poll("it is up", || kitchen.run(["logs", "1"]).out.contains("up").then_some(()));
    for _ in 0..3 {
        let pid = kitchen.daemon_pid();
        kill(pid, Signal::KILL);
        poll("the next", || {
            (kitchen.run(["ps"]).code == 0 && kitchen.daemon_pid() != pid).then_some(())
        });
    }
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    let ran: Ran = client.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (5, "up\ndone\n"), "each byte once: {}", ran.err);
    assert!(ran.err.contains("the daemon went away"), "{}", ran.err);
}

#[test]
fn a_command_that_ends_meanwhile_has_its_true_exit_code() {
    let kitchen = Kitchen::new();
    kitchen.ok([
        "exec",
        "-d",
        "--name",
        "Orphan",
        "--shell",
        &UNTIL_GO.replace("exit 5", "echo x > over; exit 7"),
    ]);
    kitchen.ok(["exec", "-d", "--name", "Steady", "--", "sleep", "60"]);
    let pid = kitchen.daemon_pid();
    kill(pid, Signal::KILL);
    poll("it is dead", || (!is_there(pid)).then_some(()));
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    kitchen.file("over");
    assert_eq!(kitchen.run(["wait", "Orphan"]).code, 7);
    assert_eq!(kitchen.ok(["logs", "Orphan"]), "up\ndone\n");
    let steady = kitchen.json(["show", "Steady"]);
    assert_eq!((&steady["state"], &steady["attempt"]), (&"running".into(), &1.into()), "adopted");
    assert_eq!(kitchen.run(["stop", "--wait", "Steady"]).out, "process:2 cancelled (signal 15)\n");
    assert_eq!(kitchen.json(["doctor"])[1]["state"], "fine");
}

#[test]
fn a_stale_socket_and_lock_are_in_nobodys_way() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--", "true"]);
    let pid = kitchen.daemon_pid();
    kill(pid, Signal::KILL);
    poll("it is dead", || (!is_there(pid)).then_some(()));
    assert!(kitchen.socket().exists() && kitchen.state().join("daemon.lock").exists());
    assert!(kitchen.ok(["doctor"]).contains("the socket of the last one is left"));
    assert_eq!(kitchen.ok(["exec", "--", "echo", "again"]), "again\n");
    assert_eq!(kitchen.json(["show", "2"])["state"], "succeeded", "numbers go on");
}

#[test]
fn many_are_started_while_daemons_die() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let clients: Vec<_> = (0..8)
        .map(|no| {
            let mut command = kitchen.command(["exec", "--key", &format!("k{no}"), "--shell"]);
            command.arg(format!("echo {no} >> ran; sleep 0.3; exit {no}"));
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            (no, command.spawn().unwrap())
        })
        .collect();
    poll("some run", || std::fs::read(kitchen.project().join("ran")).ok());
    kill(kitchen.daemon_pid(), Signal::KILL);
    for (no, client) in clients {
        let ran: Ran = client.wait_with_output().unwrap().into();
        // Whoever was not answered yet asks again with the same key.
        let code = if ran.code == 125 {
            let script = format!("echo {no} >> ran; sleep 0.3; exit {no}");
            kitchen.run(["exec", "--key", &format!("k{no}"), "--shell", &script]).code
        } else {
            ran.code
        };
        assert_eq!(code, no, "{}", ran.err);
    }
    let ran = std::fs::read_to_string(kitchen.project().join("ran")).unwrap();
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["0", "1", "2", "3", "4", "5", "6", "7"], "each once");
}

/// Writes to a client's input as it goes.
fn feed(client: &mut Child, text: &str) {
    client.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn input_goes_on_with_the_next_daemon() {
    let kitchen = Kitchen::new();
    let mut client = kitchen.start_fed(["exec", "--stdin", "--", "cat", "-n"]);
    let printed = |text: &str| {
        poll(text, || kitchen.run(["logs", "1"]).out.contains(text).then_some(()));
    };
    feed(&mut client, "one\n");
    printed("one");
    kitchen.kill_daemon();
    feed(&mut client, "two\n");
    printed("two");
    // This one is asked for, and never heard.
    let pid = kitchen.daemon_pid();
    kill(pid, Signal::STOP);
    feed(&mut client, "three\n");
    poll("it is asked for", || (unread(client.id()) == 0).then_some(()));
    kill(pid, Signal::KILL);
    printed("three");
    feed(&mut client, "four\n");
    drop(client.stdin.take());
    let ran: Ran = client.wait_with_output().unwrap().into();
    let expect = "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour\n";
    assert_eq!((ran.code, &*ran.out), (0, expect), "{}", ran.err);
}

#[test]
fn a_line_that_was_being_written_is_reported_and_not_repeated() {
    let kitchen = Kitchen::new();
    let script = "until [ -e go ]; do sleep 0.02; done; wc -l";
    kitchen.ok(["exec", "-d", "--stdin", "--shell", script]);
    let mut client = kitchen.start_fed(["send", "process:1", "-", "--close"]);
    // More than a pipe holds: the daemon is in the middle of writing it when it dies.
    feed(&mut client, &format!("{}\n", "x".repeat(500_000)));
    poll("it is accepted", || kitchen.run(["events"]).out.contains("message sent").then_some(()));
    kitchen.kill_daemon();
    feed(&mut client, "more\n");
    poll("it is accepted", || {
        (kitchen.run(["events"]).out.matches("message sent").count() == 2).then_some(())
    });
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    drop(client.stdin.take());
    let ran: Ran = client.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("whether line 1 reached process:1 is not known"), "{}", ran.err);
}

/// How many bytes are left in the pipe that is a process's input.
fn unread(pid: u32) -> u64 {
    let input = std::fs::File::open(format!("/proc/{pid}/fd/0")).unwrap();
    rustix::io::ioctl_fionread(input).unwrap()
}

#[test]
fn many_lines_arrive_once_while_daemons_die() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--stdin", "--name", "Sink", "--", "cat"]);
    let mut sender = kitchen.start_fed(["send", "Sink", "-", "--close"]);
    let lines: Vec<String> = (0..300).map(|no| format!("line {no}")).collect();
    for (no, line) in lines.iter().enumerate() {
        let written = writeln!(sender.stdin.as_mut().unwrap(), "{line}");
        if written.is_err() {
            break;
        }
        if no % 60 == 30 {
            kitchen.ok(["daemon", "start"]);
            kill(kitchen.daemon_pid(), Signal::KILL);
        }
    }
    drop(sender.stdin.take());
    let ran: Ran = sender.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(kitchen.run(["wait", "Sink"]).code, 0);
    let arrived = kitchen.ok(["logs", "Sink"]);
    let arrived: Vec<&str> = arrived.lines().collect();
    let in_doubt = |no: usize| ran.err.contains(&format!("whether line {} reached", no + 1));
    let mut rest = arrived.iter().peekable();
    for (no, line) in lines.iter().enumerate() {
        if rest.next_if(|arrived| **arrived == line).is_none() {
            assert!(in_doubt(no), "{line} is missing: {arrived:?} {}", ran.err);
        }
    }
    assert_eq!(rest.next(), None, "each once, in order");
}

#[test]
fn followers_go_on_with_the_next_daemon() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Slow", "--shell", UNTIL_GO]);
    let logs = kitchen.start(["logs", "-f", "Slow"]);
    let path = kitchen.project().join("happened");
    let mut events = kitchen.command(["events", "-f", "--json"]);
    let mut events = events.stdout(std::fs::File::create(&path).unwrap()).spawn().unwrap();
    let until = |text: &str| {
        poll(text, || Some(std::fs::read_to_string(&path).ok()?).filter(|all| all.contains(text)))
    };
    until("spawned");
    for name in ["First", "Second"] {
        kitchen.kill_daemon();
        kitchen.ok(["exec", "--name", name, "--", "true"]);
        until(name);
    }
    // A daemon that is asked to leave is gone as well.
    kitchen.ok(["daemon", "stop"]);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    let happened = until("exit_code\":5");
    let happened = happened.lines().map(|line| serde_json::from_str(line).unwrap());
    let positions = happened.map(|event: serde_json::Value| event["event"]["position"].as_u64());
    let positions: Vec<u64> = positions.map(Option::unwrap).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "each once: {positions:?}");
    let ran: Ran = logs.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "up\ndone\n"), "each byte once: {}", ran.err);
    events.kill().unwrap();
    events.wait().unwrap();
}
