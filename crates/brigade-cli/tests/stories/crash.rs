//! Daemons that are killed.

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
