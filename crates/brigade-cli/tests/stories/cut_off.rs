//! Daemons that die proxy a request and its reply.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use rustix::process::Signal;

use crate::story_env::{StoryEnv, is_there, kill, poll};

/// Stands proxy the clients and the daemon, and forwards all lines until the daemon reports a
/// started task. That reply is dropped, and the daemon is killed.
fn cut_off(story: &StoryEnv) -> JoinHandle<()> {
    story.ok(["daemon", "start"]);
    let pid = story.daemon_pid();
    let behind = story.state().join("behind.sock");
    std::fs::rename(story.socket(), &behind).unwrap();
    let listener = UnixListener::bind(story.socket()).unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let daemon = UnixStream::connect(behind).unwrap();
        let requests = client.try_clone().unwrap();
        let mut to_daemon = daemon.try_clone().unwrap();
        let forwarding = std::thread::spawn(move || {
            for line in BufReader::new(requests).lines() {
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
        forwarding.join().unwrap();
    })
}

#[test]
fn a_process_whose_start_got_no_reply_is_found_again() {
    let story = StoryEnv::new();
    let proxy = cut_off(&story);
    let ran = story.run(["exec", "--shell", "echo once >> ran; exit 4"]);
    proxy.join().unwrap();
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert_eq!(story.file("ran"), "once\n");
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_generated_key_is_not_reported_as_existing() {
    let story = StoryEnv::new();
    let proxy = cut_off(&story);
    let ran = story.run(["exec", "-d", "--json", "--", "true"]);
    proxy.join().unwrap();
    assert_eq!(ran.code, 0, "{}", ran.err);
    let started: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&started["existed"], &started["task"]["address"]),
        (&false.into(), &"process:1".into())
    );
}

#[test]
fn an_agent_whose_start_got_no_reply_is_found_again() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Soup is ready.\n");
    let proxy = cut_off(&story);
    let ran = story.run(["run", "Make soup"]);
    proxy.join().unwrap();
    assert_eq!((ran.code, &*ran.out), (0, "Soup is ready.\n"), "{}", ran.err);
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 1);
}
