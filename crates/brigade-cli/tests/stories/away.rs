//! Processes of a node that was killed, as the other node of a fleet shows them.

use std::fs;

use serde_json::Value;

use crate::postgres::{ServingDaemon, store_url};
use crate::story_env::{Ran, StoryEnv, is_there, poll};

/// Two machines on one database. Commands are run in the project of the first one.
struct TwoNodes {
    first: StoryEnv,
    second: StoryEnv,
    url: String,
}

impl TwoNodes {
    fn new(schema: &str, host_grace: &str) -> Self {
        let [first, second] = ["kitchen-1", "kitchen-2"].map(|name| {
            let story = StoryEnv::new();
            story.configure(&format!(
                "[node]\nname = \"{name}\"\nlease = \"3s\"\nhost_grace = \"{host_grace}\"\n"
            ));
            story
        });
        Self { first, second, url: store_url(schema) }
    }

    fn start_first(&self) -> ServingDaemon {
        ServingDaemon::start(&self.first, &self.url)
    }

    fn on_second<const N: usize>(&self, args: [&str; N]) -> Ran {
        self.second.run_in(&self.first.project(), args)
    }

    fn shown_on_second(&self, task: &str) -> Value {
        let ran = self.on_second(["show", task, "--json"]);
        serde_json::from_str(&ran.out).unwrap_or_default()
    }

    fn wait_on_second(&self, task: &str, state: &str) -> Value {
        poll(&format!("{task} is {state}"), || {
            let shown = self.shown_on_second(task);
            (shown["state"] == state).then_some(shown)
        })
    }

    /// Returns the number of events of a type.
    fn count_events(&self, kind: &str) -> usize {
        let events = self.on_second(["events", "--json"]).out;
        let items = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        items.filter(|item| item["event"]["event"].get(kind).is_some()).count()
    }
}

#[test]
fn a_process_of_a_killed_node_returns_with_its_exit_code() {
    let nodes = TwoNodes::new("away_returns", "10m");
    let daemon = nodes.start_first();
    let other = ServingDaemon::start(&nodes.second, &nodes.url);
    let script = "echo cooking; until [ -e go ]; do sleep 0.02; done; echo done; exit 4";
    nodes.first.ok(["exec", "-d", "--name", "Long", "--shell", script]);
    nodes.first.until_state("Long", "running");
    daemon.kill();
    let away = nodes.wait_on_second("Long", "away");
    assert_eq!((&away["alive"], &away["away"]["node"]), (&true.into(), &"kitchen-1".into()));
    let listed = nodes.on_second(["ps"]).out;
    assert!(listed.contains("away (kitchen-1, "), "{listed}");
    let shown = nodes.on_second(["show", "Long"]).out;
    assert!(shown.contains("node kitchen-1 not seen since 20"), "{shown}");
    // It ends while nobody looks.
    let mut waiting = nodes.second.command(["wait", "Long"]);
    let waiting = waiting.current_dir(nodes.first.project()).spawn().unwrap();
    fs::write(nodes.first.project().join("go"), "").unwrap();
    let daemon = nodes.start_first();
    let ran: Ran = waiting.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(nodes.first.run(["wait", "Long"]).code, 4);
    assert_eq!(nodes.first.ok(["logs", "Long"]), "cooking\ndone\n");
    assert_eq!(nodes.count_events("ended"), 1, "the exit code arrives once");
    assert!(nodes.count_events("away") >= 1 && nodes.count_events("returned") >= 1);
    daemon.stop();
    other.stop();
}

#[test]
fn a_node_that_returns_too_late_ends_its_process() {
    let nodes = TwoNodes::new("away_lost", "2s");
    let daemon = nodes.start_first();
    let other = ServingDaemon::start(&nodes.second, &nodes.url);
    for name in ["Lost", "Stopped"] {
        let script = format!("echo $$ >{name}.new; mv {name}.new {name}; exec sleep 1000");
        nodes.first.ok(["exec", "-d", "--name", name, "--shell", &script]);
    }
    let pids = ["Lost", "Stopped"].map(|name| {
        let path = nodes.first.project().join(name);
        let text = poll("a process id", || fs::read_to_string(&path).ok());
        text.trim().parse::<u32>().unwrap()
    });
    daemon.kill();
    nodes.wait_on_second("Stopped", "away");
    let stopped = nodes.on_second(["stop", "Stopped"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let stopped = nodes.wait_on_second("Stopped", "cancelled");
    assert_eq!(stopped["detail"], "cancelled (unconfirmed)");
    let lost = nodes.wait_on_second("Lost", "failed");
    let detail = lost["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("failed (lost, says the owner of the session: node kitchen-1"),
        "{detail}"
    );
    assert!(pids.into_iter().all(is_there), "nobody could end them");

    let daemon = nodes.start_first();
    for pid in pids {
        poll("the process has ended", || (!is_there(pid)).then_some(()));
    }
    assert_eq!(nodes.shown_on_second("Lost"), lost, "the outcome stays");
    assert_eq!(nodes.shown_on_second("Stopped"), stopped);
    assert_eq!(nodes.count_events("ended"), 2);
    daemon.stop();
    other.stop();
}

#[test]
fn the_output_of_a_process_is_read_on_every_node() {
    let nodes = TwoNodes::new("output_pages", "10m");
    let daemon = nodes.start_first();
    let other = ServingDaemon::start(&nodes.second, &nodes.url);
    let script = "seq 1 100000; echo burnt >&2; until [ -e go ]; do sleep 0.02; done; echo done";
    nodes.first.ok(["exec", "-d", "--name", "Long", "--shell", script]);
    let here = poll("all lines", || {
        let ran = nodes.first.run(["logs", "Long"]);
        ran.err.contains("burnt").then_some(ran)
    });
    assert!(here.out.len() > 512 * 1024, "it needs several calls");
    let there = nodes.on_second(["logs", "Long"]);
    assert_eq!((there.code, there.out == here.out, &there.err), (0, true, &here.err));
    let tail = nodes.on_second(["logs", "Long", "--tail", "3"]);
    assert_eq!(tail.out, nodes.first.run(["logs", "Long", "--tail", "3"]).out);
    let matching = ["logs", "Long", "--grep", "^9999[0-9]$"];
    assert_eq!(nodes.on_second(matching).out, nodes.first.run(matching).out);
    let mut follow = nodes.second.command(["logs", "-f", "Long"]);
    follow.current_dir(nodes.first.project()).stdout(std::process::Stdio::piped());
    let follow = follow.spawn().unwrap();
    fs::write(nodes.first.project().join("go"), "").unwrap();
    let followed: Ran = follow.wait_with_output().unwrap().into();
    assert!(followed.code == 0 && followed.out == format!("{}done\n", here.out), "it ended");

    daemon.kill();
    let refused = poll("the node is closed", || {
        let ran = nodes.on_second(["logs", "Long"]);
        (ran.code != 0).then_some(ran)
    });
    assert_eq!((refused.code, &*refused.out), (125, ""), "{refused:?}");
    assert!(
        refused.err.contains("the output is on kitchen-1, which was last seen 20"),
        "{refused:?}"
    );
    other.stop();
}

#[test]
fn a_busy_session_reaches_its_processes_on_both_nodes() {
    let nodes = TwoNodes::new("both_nodes", "10m");
    let daemon = nodes.start_first();
    let other = ServingDaemon::start(&nodes.second, &nodes.url);
    let script = "echo $$ >pid.new; mv pid.new pid; echo there; exec sleep 1000";
    nodes.first.ok(["exec", "-d", "--name", "There", "--shell", script]);
    let path = nodes.first.project().join("pid");
    let pid: u32 = poll("a process id", || fs::read_to_string(&path).ok()).trim().parse().unwrap();
    daemon.kill();
    nodes.wait_on_second("There", "away");
    // A process of the second node keeps the session there.
    let started =
        nodes.on_second(["exec", "-d", "--name", "Here", "--shell", "echo here; sleep 1000"]);
    assert_eq!(started.code, 0, "{started:?}");
    nodes.wait_on_second("Here", "running");
    let daemon = nodes.start_first();
    nodes.wait_on_second("There", "running");
    assert_eq!(nodes.on_second(["logs", "There"]).out, "there\n");
    assert_eq!(nodes.first.ok(["logs", "Here"]), "here\n");
    let stopped = nodes.on_second(["stop", "There"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let stopped = nodes.wait_on_second("There", "cancelled");
    assert_eq!(stopped["detail"], "cancelled", "the host has confirmed it");
    assert!(!is_there(pid), "it has ended");
    nodes.first.ok(["stop", "Here"]);
    daemon.stop();
    other.stop();
}

#[test]
fn a_message_reaches_a_process_of_another_node_while_its_session_is_busy() {
    let nodes = TwoNodes::new("pushed_messages", "10m");
    let daemon = nodes.start_first();
    let other = ServingDaemon::start(&nodes.second, &nodes.url);
    let script = "while read -r line; do echo \"got $line\"; done; echo end";
    nodes.first.ok(["exec", "-d", "--stdin", "--name", "Reader", "--shell", script]);
    nodes.first.until_state("Reader", "running");
    daemon.kill();
    nodes.wait_on_second("Reader", "away");
    // A process of the second node keeps the session there.
    let started = nodes.on_second(["exec", "-d", "--name", "Here", "--", "sleep", "1000"]);
    assert_eq!(started.code, 0, "{started:?}");
    nodes.wait_on_second("Here", "running");
    let send = |words: [&str; 3]| {
        let ran = nodes.on_second(words);
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    send(["send", "Reader", "while away"]);
    let daemon = nodes.start_first();
    nodes.wait_on_second("Reader", "running");
    send(["send", "Reader", "when back"]);
    send(["send", "Reader", "--close"]);
    let ended = nodes.wait_on_second("Reader", "succeeded");
    assert_eq!(ended["alive"], false);
    let expected = "got while away\ngot when back\nend\n";
    assert_eq!(nodes.on_second(["logs", "Reader"]).out, expected);
    poll("three deliveries", || (nodes.count_events("message_delivered") == 3).then_some(()));
    nodes.first.ok(["stop", "Here"]);
    daemon.stop();
    other.stop();
}
