//! Daemons that die between a question and its answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use rustix::process::Signal;

use crate::kitchen::{Kitchen, is_there, kill, poll};

/// Takes the daemon's place at its socket and passes everything on, until the daemon says that it
/// has started something: that is not passed on, and the daemon dies.
fn cut_off(kitchen: &Kitchen) -> JoinHandle<()> {
    kitchen.ok(["daemon", "start"]);
    let pid = kitchen.daemon_pid();
    let behind = kitchen.state().join("behind.sock");
    std::fs::rename(kitchen.socket(), &behind).unwrap();
    let listener = UnixListener::bind(kitchen.socket()).unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let daemon = UnixStream::connect(behind).unwrap();
        let (questions, mut to_daemon) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
        let asking = std::thread::spawn(move || {
            for line in BufReader::new(questions).lines() {
                let Ok(line) = line else { return };
                if writeln!(to_daemon, "{line}").is_err() {
                    return;
                }
            }
        });
        let mut to_client = client.try_clone().unwrap();
        for line in BufReader::new(daemon).lines() {
            let line = line.unwrap();
            if line.contains("\"existed\"") {
                break;
            }
            writeln!(to_client, "{line}").unwrap();
        }
        kill(pid, Signal::KILL);
        poll("it is dead", || (!is_there(pid)).then_some(()));
        drop(listener);
        client.shutdown(std::net::Shutdown::Both).unwrap();
        asking.join().unwrap();
    })
}

#[test]
fn a_command_whose_start_was_not_answered_is_found_again() {
    let kitchen = Kitchen::new();
    let between = cut_off(&kitchen);
    let ran = kitchen.run(["exec", "--shell", "echo once >> ran; exit 4"]);
    between.join().unwrap();
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert_eq!(kitchen.file("ran"), "once\n");
    assert_eq!(kitchen.json(["ps", "--ended"]).as_array().unwrap().len(), 1);
}

#[test]
fn nobody_is_told_of_a_key_that_he_did_not_give() {
    let kitchen = Kitchen::new();
    let between = cut_off(&kitchen);
    let ran = kitchen.run(["exec", "-d", "--json", "--", "true"]);
    between.join().unwrap();
    assert_eq!(ran.code, 0, "{}", ran.err);
    let started: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&started["existed"], &started["task"]["address"]),
        (&false.into(), &"process:1".into())
    );
}

#[test]
fn an_agent_whose_start_was_not_answered_is_found_again() {
    let kitchen = Kitchen::new();
    kitchen.script("agent *\nturn\n  say Soup is ready.\n");
    let between = cut_off(&kitchen);
    let ran = kitchen.run(["run", "Make soup"]);
    between.join().unwrap();
    assert_eq!((ran.code, &*ran.out), (0, "Soup is ready.\n"), "{}", ran.err);
    assert_eq!(kitchen.json(["ps", "--ended"]).as_array().unwrap().len(), 1);
}
