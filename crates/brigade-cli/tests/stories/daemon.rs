//! The daemon: one per state directory, started and replaced without an effect on tasks.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use rustix::process::Signal;

use crate::story_env::{Ran, StoryEnv, is_there, kill, poll};

#[test]
fn the_daemon_is_started_inspected_and_stopped() {
    let story = StoryEnv::new();
    assert_eq!(story.run(["daemon", "status"]).code, 127);
    assert_eq!(story.ok(["daemon", "stop"]), "no daemon is running\n");
    assert!(story.ok(["daemon", "start"]).contains("running: version"));
    let pid = story.daemon_pid();
    story.ok(["daemon", "start"]);
    assert_eq!(story.daemon_pid(), pid);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&story.state()), mode(&story.socket())), (0o700, 0o600));
    let session = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = session.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(fields[3], pid.to_string(), "it leads its own OS session");
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
    assert_eq!(story.ok(["daemon", "stop"]), format!("stopped (pid {pid})\n"));
    assert!(!is_there(pid) && !story.socket().exists());
}

#[test]
fn a_second_daemon_is_refused() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let pid = story.daemon_pid();
    let ran = story.run(["daemon", "start", "--foreground"]);
    assert_eq!(ran.code, 119, "no other error has this code: {ran:?}");
    assert!(ran.err.contains(&format!("another daemon (pid {pid})")), "{}", ran.err);
}

#[test]
fn a_daemon_that_cannot_start_is_reported_at_once() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    story.ok(["daemon", "stop"]);
    std::fs::write(story.state().join("brigade.db"), "not a store").unwrap();
    let started = std::time::Instant::now();
    let ran = story.run(["ps"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("the daemon did not start: "), "{ran:?}");
    assert!(ran.err.contains("brigade.db"), "{ran:?}");
    assert!(started.elapsed() < std::time::Duration::from_secs(15), "{:?}", started.elapsed());
}

#[test]
fn twenty_clients_at_once_get_one_daemon() {
    let story = StoryEnv::new();
    let clients: Vec<_> = (0..20).map(|_| story.start(["daemon", "status", "--json"])).collect();
    for client in clients {
        // `status` starts no daemon.
        assert_eq!(client.wait_with_output().unwrap().status.code(), Some(127));
    }
    let clients: Vec<_> = (0..20).map(|_| story.start(["exec", "--", "echo", "hi"])).collect();
    for client in clients {
        let ran: Ran = client.wait_with_output().unwrap().into();
        assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "hi\n", ""));
    }
    let addresses: Vec<_> = story.json(["ps", "--ended"]).as_array().unwrap().clone();
    assert_eq!(addresses.len(), 20);
    let log = std::fs::read_to_string(story.state().join("daemon.log")).unwrap();
    assert_eq!(log.matches("serving").count(), 1, "{log}");
}

#[test]
fn concurrent_starts_get_the_same_daemon() {
    for round in 0..25 {
        let story = StoryEnv::new();
        let clients: Vec<_> = (0..4).map(|_| story.start(["daemon", "start", "--json"])).collect();
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
fn an_idle_daemon_shuts_down() {
    let story = StoryEnv::new();
    story.configure("idle_exit = \"300ms\"\n");
    story.ok(["exec", "-d", "--shell", "until [ -e go ]; do sleep 0.02; done"]);
    let pid = story.daemon_pid();
    std::thread::sleep(std::time::Duration::from_millis(900));
    assert!(is_there(pid), "a task runs");
    std::fs::write(story.project().join("go"), "").unwrap();
    poll("the shutdown", || (!is_there(pid)).then_some(()));
    assert_eq!(story.run(["wait", "1"]).code, 0, "the next daemon knows the outcome");
}

#[test]
fn the_daemon_runs_at_most_as_many_tasks_as_configured() {
    let story = StoryEnv::new();
    story.configure("max_running = 1\n");
    let other = story.directory("other");
    story.ok(["exec", "-d", "--name", "First", "--", "sleep", "1000"]);
    let second = story.run_in(&other, ["exec", "-d", "--name", "Second", "--", "sleep", "1000"]);
    assert_eq!(second.code, 0, "{second:?}");
    let state = || {
        let shown = story.run_in(&other, ["show", "Second", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
        shown["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(), "queued", "the limit covers all workspaces");
    story.ok(["stop", "First"]);
    poll("its turn", || (state() == "running").then_some(()));
}

#[test]
fn the_daemon_prunes_by_itself() {
    let story = StoryEnv::new();
    story.ok(["exec", "--", "true"]);
    story.ok(["daemon", "stop"]);
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 1);
    story.ok(["daemon", "stop"]);
    story.configure("retention = \"1ms\"\n");
    let is_empty = || story.json(["ps", "--ended"]).as_array().unwrap().is_empty();
    poll("the task is removed", || is_empty().then_some(()));
}

/// Starts a task that runs until the file `go` exists, with a daemon that drains.
fn drained_story() -> StoryEnv {
    let story = StoryEnv::new();
    story.configure("drain = \"1h\"\n");
    story.ok(["exec", "-d", "--shell", "until [ -e go ]; do sleep 0.02; done"]);
    story.until_state("1", "running");
    story
}

/// Waits until new tasks are refused.
fn until_draining(story: &StoryEnv) {
    poll("the drain", || {
        let ran = story.run(["exec", "-d", "--", "true"]);
        let refused = ran.code == 125 && ran.err.contains("drains and starts nothing new");
        assert!(refused || ran.code == 0, "{ran:?}");
        refused.then_some(())
    });
}

#[test]
fn a_stop_waits_for_running_tasks() {
    let story = drained_story();
    let pid = story.daemon_pid();
    let stop = story.start(["daemon", "stop"]);
    until_draining(&story);
    assert_eq!(story.daemon_pid(), pid, "it still serves");
    assert_eq!(story.state_of("1"), "running");
    std::fs::write(story.project().join("go"), "").unwrap();
    let ran: Ran = stop.wait_with_output().unwrap().into();
    assert_eq!((ran.code, ran.out), (0, format!("stopped (pid {pid})\n")), "{}", ran.err);
    assert!(!is_there(pid));
}

#[test]
fn a_second_stop_or_signal_ends_the_drain() {
    let story = drained_story();
    let pid = story.daemon_pid();
    let first = story.start(["daemon", "stop"]);
    until_draining(&story);
    assert_eq!(story.ok(["daemon", "stop"]), format!("stopped (pid {pid})\n"));
    let first: Ran = first.wait_with_output().unwrap().into();
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(story.state_of("1"), "running", "the next daemon has adopted it");
    let pid = story.daemon_pid();
    kill(pid, Signal::TERM);
    until_draining(&story);
    kill(pid, Signal::TERM);
    poll("the shutdown", || (!is_there(pid)).then_some(()));
}

#[test]
fn processes_and_clients_survive_a_daemon_stop() {
    let story = StoryEnv::new();
    let script = "echo up; until [ -e go ]; do sleep 0.02; done; echo done; exit 5";
    let client = story.start(["exec", "--shell", script]);
    poll("it is up", || story.run(["logs", "1"]).out.contains("up").then_some(()));
    let waiter = story.start(["wait", "1"]);
    let first = story.daemon_pid();
    story.ok(["daemon", "stop"]);
    let second = poll("the next", || {
        let ran = story.run(["daemon", "status"]);
        (ran.code == 0).then(|| story.daemon_pid())
    });
    assert_ne!(first, second);
    std::fs::write(story.project().join("go"), "").unwrap();
    let ran: Ran = client.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (5, "up\ndone\n"), "{}", ran.err);
    assert_eq!(waiter.wait_with_output().unwrap().status.code(), Some(5));
}

#[test]
fn clients_of_a_stopping_daemon_reach_the_next_one() {
    let story = StoryEnv::new();
    for round in 0..10 {
        story.ok(["daemon", "start"]);
        let stopper = story.start(["daemon", "stop"]);
        let clients: Vec<_> = (0..3).map(|_| story.start(["sessions"])).collect();
        assert!(stopper.wait_with_output().unwrap().status.success());
        for client in clients {
            let ran: Ran = client.wait_with_output().unwrap().into();
            assert_eq!(ran.code, 0, "round {round}: {}", ran.err);
        }
    }
}

#[test]
fn signals_shut_the_daemon_down() {
    let story = StoryEnv::new();
    for signal in [Signal::TERM, Signal::INT] {
        story.ok(["daemon", "start"]);
        let pid = story.daemon_pid();
        kill(pid, Signal::HUP);
        assert_eq!(story.daemon_pid(), pid, "a hangup does not end it");
        kill(pid, signal);
        poll("the shutdown", || (!is_there(pid)).then_some(()));
        assert!(!story.socket().exists());
    }
}

#[test]
fn an_older_daemon_is_asked_to_shut_down() {
    let story = StoryEnv::new();
    std::fs::create_dir_all(story.socket().parent().unwrap()).unwrap();
    let socket = story.socket();
    let listener = UnixListener::bind(&socket).unwrap();
    let old = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let hello = lines.next().unwrap().unwrap();
        writeln!(&stream, r#"{{"protocol":2,"version":"0.0.9","pid":1}}"#).unwrap();
        let request = lines.next().unwrap().unwrap();
        std::fs::remove_file(&socket).unwrap();
        drop(listener);
        writeln!(&stream, r#"{{"id":1,"reply":null}}"#).unwrap();
        (hello, request)
    });
    assert_eq!(story.ok(["exec", "--", "echo", "new"]), "new\n");
    let (hello, request) = old.join().unwrap();
    assert!(hello.contains(r#""protocol":3,"oldest_protocol":2"#), "{hello}");
    assert!(request.contains("shutdown"), "{request}");
}

#[test]
fn a_daemon_of_another_protocol_is_named() {
    let story = StoryEnv::new();
    std::fs::create_dir_all(story.socket().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(story.socket()).unwrap();
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
    let ran = story.run(["ps"]);
    assert_eq!(ran.code, 125);
    assert!(ran.err.contains("9.0.0") && ran.err.contains("protocol 8 to 9"), "{}", ran.err);
    assert!(ran.err.contains("hint: use the same version"), "{}", ran.err);
}

#[test]
fn a_long_path_has_one_socket_in_any_environment() {
    let story = StoryEnv::new();
    let long = story.directory(&"long/".repeat(40)).join("state");
    let mut command = story.command(["exec", "--", "echo", "hi"]);
    command.env("BRIGADE_STATE", &long).env("XDG_RUNTIME_DIR", story.directory("run"));
    let ran: Ran = command.stdin(Stdio::null()).output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "hi\n"), "{ran:?}");
    let mut stop = story.command(["daemon", "stop"]);
    stop.env("BRIGADE_STATE", &long).env("TMPDIR", story.directory("tmp"));
    let stopped: Ran = stop.output().unwrap().into();
    assert!(stopped.code == 0 && stopped.out.starts_with("stopped (pid"), "{stopped:?}");
}

#[test]
fn a_busy_daemon_stays_however_short_its_idle_time() {
    let story = StoryEnv::new();
    story.configure("idle_exit = \"0s\"");
    let ran = story.run(["exec", "--", "sleep", "0.5"]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
}

/// A huge page costs more to clear than a short-lived program needs memory.
#[test]
#[cfg(target_os = "linux")]
fn the_allocator_asks_for_no_huge_pages() {
    let story = StoryEnv::new();
    story.ok(["exec", "--", "true"]);
    let maps = format!("/proc/{}/smaps", story.daemon_pid());
    // Only root reads the mappings of a daemon.
    let Ok(maps) = std::fs::read_to_string(maps) else { return };
    let mut flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    assert!(!flags.any(|flags| flags.split_whitespace().any(|flag| flag == "hg")), "{maps}");
}
