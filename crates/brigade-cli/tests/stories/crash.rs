//! Killed daemons.

use std::io::Write;
use std::process::Child;

use rustix::process::Signal;

use crate::story_env::{Ran, StoryEnv, is_there, kill, poll};

const UNTIL_GO: &str = "echo up; until [ -e go ]; do sleep 0.02; done; echo done; exit 5";

#[test]
fn an_attached_client_reconnects_to_the_next_daemon() {
    let story = StoryEnv::new();
    let client = story.start(["exec", "--shell", UNTIL_GO]);
    poll("it is up", || story.run(["logs", "1"]).out.contains("up").then_some(()));
    for _ in 0..3 {
        let pid = story.daemon_pid();
        kill(pid, Signal::KILL);
        poll("the next", || {
            (story.run(["ps"]).code == 0 && story.daemon_pid() != pid).then_some(())
        });
    }
    std::fs::write(story.project().join("go"), "").unwrap();
    let ran: Ran = client.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (5, "up\ndone\n"), "each byte once: {}", ran.err);
    assert!(ran.err.contains("lost the daemon"), "{}", ran.err);
}

#[test]
fn a_process_that_ends_without_a_daemon_keeps_its_exit_code() {
    let story = StoryEnv::new();
    story.ok([
        "exec",
        "-d",
        "--name",
        "Orphan",
        "--shell",
        &UNTIL_GO.replace("exit 5", "echo x > ended; exit 7"),
    ]);
    story.ok(["exec", "-d", "--name", "Steady", "--", "sleep", "60"]);
    let pid = story.daemon_pid();
    kill(pid, Signal::KILL);
    poll("it is dead", || (!is_there(pid)).then_some(()));
    std::fs::write(story.project().join("go"), "").unwrap();
    story.file("ended");
    assert_eq!(story.run(["wait", "Orphan"]).code, 7);
    assert_eq!(story.ok(["logs", "Orphan"]), "up\ndone\n");
    let steady = story.json(["show", "Steady"]);
    assert_eq!((&steady["state"], &steady["attempt"]), (&"running".into(), &1.into()), "adopted");
    assert_eq!(story.run(["stop", "--wait", "Steady"]).out, "process:2 cancelled (signal 15)\n");
    assert_eq!(story.json(["doctor"])[1]["state"], "healthy");
}

#[test]
fn a_stale_socket_and_lock_are_replaced() {
    let story = StoryEnv::new();
    story.ok(["exec", "--", "true"]);
    let pid = story.daemon_pid();
    kill(pid, Signal::KILL);
    poll("it is dead", || (!is_there(pid)).then_some(()));
    assert!(story.socket().exists() && story.state().join("daemon.lock").exists());
    assert!(story.ok(["doctor"]).contains("replaces the socket of the last one"));
    assert_eq!(story.ok(["exec", "--", "echo", "again"]), "again\n");
    assert_eq!(story.json(["show", "2"])["state"], "succeeded", "numbers continue");
}

#[test]
fn tasks_start_once_while_daemons_are_killed() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let clients: Vec<_> = (0..8)
        .map(|no| {
            let mut command = story.command(["exec", "--key", &format!("k{no}"), "--shell"]);
            command.arg(format!("echo {no} >> ran; sleep 0.3; exit {no}"));
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            (no, command.spawn().unwrap())
        })
        .collect();
    poll("some run", || std::fs::read(story.project().join("ran")).ok());
    kill(story.daemon_pid(), Signal::KILL);
    for (no, client) in clients {
        let ran: Ran = client.wait_with_output().unwrap().into();
        // A client without a reply tries again with the same key.
        let code = if ran.code == 125 {
            let script = format!("echo {no} >> ran; sleep 0.3; exit {no}");
            story.run(["exec", "--key", &format!("k{no}"), "--shell", &script]).code
        } else {
            ran.code
        };
        assert_eq!(code, no, "{}", ran.err);
    }
    let ran = std::fs::read_to_string(story.project().join("ran")).unwrap();
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["0", "1", "2", "3", "4", "5", "6", "7"], "each once");
}

/// Writes to the stdin of a client.
fn feed(client: &mut Child, text: &str) {
    client.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn input_continues_with_the_next_daemon() {
    let story = StoryEnv::new();
    let mut client = story.start_fed(["exec", "--stdin", "--", "cat", "-n"]);
    let printed = |text: &str| {
        poll(text, || story.run(["logs", "1"]).out.contains(text).then_some(()));
    };
    feed(&mut client, "one\n");
    printed("one");
    story.kill_daemon();
    feed(&mut client, "two\n");
    printed("two");
    // The daemon never reads this line.
    let pid = story.daemon_pid();
    kill(pid, Signal::STOP);
    feed(&mut client, "three\n");
    poll("the client has read it", || (unread(client.id()) == 0).then_some(()));
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
    let story = StoryEnv::new();
    let script = "until [ -e go ]; do sleep 0.02; done; wc -l";
    story.ok(["exec", "-d", "--stdin", "--shell", script]);
    let mut client = story.start_fed(["send", "process:1", "-", "--close"]);
    // More than a pipe holds: the daemon dies while it writes.
    feed(&mut client, &format!("{}\n", "x".repeat(500_000)));
    poll("it is accepted", || story.run(["events"]).out.contains("message sent").then_some(()));
    story.kill_daemon();
    feed(&mut client, "more\n");
    poll("it is accepted", || {
        (story.run(["events"]).out.matches("message sent").count() == 2).then_some(())
    });
    std::fs::write(story.project().join("go"), "").unwrap();
    drop(client.stdin.take());
    let ran: Ran = client.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("whether line 1 reached process:1 is not known"), "{}", ran.err);
}

/// Returns the number of unread bytes in the stdin pipe of a process.
fn unread(pid: u32) -> u64 {
    let input = std::fs::File::open(format!("/proc/{pid}/fd/0")).unwrap();
    rustix::io::ioctl_fionread(input).unwrap()
}

#[test]
fn lines_arrive_once_while_daemons_are_killed() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--stdin", "--name", "Sink", "--", "cat"]);
    let mut sender = story.start_fed(["send", "Sink", "-", "--close"]);
    let lines: Vec<String> = (0..300).map(|no| format!("line {no}")).collect();
    for (no, line) in lines.iter().enumerate() {
        let written = writeln!(sender.stdin.as_mut().unwrap(), "{line}");
        if written.is_err() {
            break;
        }
        if no % 60 == 30 {
            story.ok(["daemon", "start"]);
            kill(story.daemon_pid(), Signal::KILL);
        }
    }
    drop(sender.stdin.take());
    let ran: Ran = sender.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(story.run(["wait", "Sink"]).code, 0);
    let arrived = story.ok(["logs", "Sink"]);
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
fn followers_continue_with_the_next_daemon() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Slow", "--shell", UNTIL_GO]);
    let logs = story.start(["logs", "-f", "Slow"]);
    let path = story.project().join("events");
    let mut events = story.command(["events", "-f", "--json"]);
    let mut events = events.stdout(std::fs::File::create(&path).unwrap()).spawn().unwrap();
    let until = |text: &str| {
        poll(text, || Some(std::fs::read_to_string(&path).ok()?).filter(|all| all.contains(text)))
    };
    until("spawned");
    for name in ["First", "Second"] {
        story.kill_daemon();
        story.ok(["exec", "--name", name, "--", "true"]);
        until(name);
    }
    // The same for a daemon that shuts down.
    story.ok(["daemon", "stop"]);
    std::fs::write(story.project().join("go"), "").unwrap();
    let items = until("exit_code\":5");
    let items = items.lines().map(|line| serde_json::from_str(line).unwrap());
    let positions = items.map(|event: serde_json::Value| event["event"]["position"].as_u64());
    let positions: Vec<u64> = positions.map(Option::unwrap).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "each once: {positions:?}");
    let ran: Ran = logs.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "up\ndone\n"), "each byte once: {}", ran.err);
    events.kill().unwrap();
    events.wait().unwrap();
}
