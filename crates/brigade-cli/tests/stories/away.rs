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
