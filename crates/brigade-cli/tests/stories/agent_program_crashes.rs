//! Killed daemons and killed programs in a turn of another vendor's agent.

use rustix::process::Signal;
use serde_json::Value;

use crate::agent_programs::ProgramStory;
use crate::story_env::{is_there, kill, poll};

impl ProgramStory {
    /// Starts an agent whose turn waits for the gate.
    fn start_gated(&self) {
        self.ok(["run", "-d", "--agent", "claude", "--name", "Cook", "wait for the gate"]);
        poll("the turn", || self.ok(["logs", "Cook"]).contains("Waiting.").then_some(()));
    }

    fn open_gate(&self) {
        std::fs::write(self.story.project().join("gate"), "").unwrap();
    }

    fn program_pid(&self) -> u32 {
        self.story.file("pid").trim().parse().unwrap()
    }

    /// Starts an agent whose program waits for an approval, and returns the approval.
    fn start_asking(&self) -> Value {
        self.ok(["run", "-d", "--agent", "claude", "--name", "Cook", "touch the proof"]);
        self.pending_approval()
    }

    fn pending_approval(&self) -> Value {
        poll("a pending approval", || {
            let pending = self.story.json(["approve", "--list"])["pending"].as_array()?.clone();
            pending.first().cloned()
        })
    }

    /// Checks that the agent failed because its program was killed, and that nothing can be approved.
    fn assert_killed_while_asking(&self) {
        let waited = self.run(["wait", "Cook"]);
        assert_eq!(waited.code, 120, "{waited:?}");
        let shown = self.ok(["show", "Cook"]);
        assert!(shown.contains("killed by signal 9"), "{shown}");
        let approvals = self.story.json(["approve", "--list"]);
        assert_eq!(approvals["pending"], serde_json::json!([]), "{approvals}");
        assert!(!self.story.project().join("proof").exists());
        assert_eq!(self.start_count(), 1, "it is not started again");
    }

    fn start_count(&self) -> usize {
        self.story.file("starts").lines().count()
    }
}

#[test]
fn a_killed_daemon_does_not_disturb_the_turn() {
    let story = ProgramStory::with_fakes();
    story.start_gated();
    story.story.kill_daemon();
    assert!(is_there(story.program_pid()), "the program goes on");
    story.open_gate();
    let waited = story.run(["wait", "Cook"]);
    assert_eq!((waited.code, waited.out.trim()), (0, "agent:1 (Cook) succeeded"), "{waited:?}");
    assert_eq!(story.start_count(), 1, "the prompt is sent once");
    let shown = story.story.json(["show", "Cook"]);
    assert_eq!(shown["result"], "The gate is open.");
    let transcript = story.ok(["logs", "Cook"]);
    assert_eq!(transcript.matches("Waiting.").count(), 1, "{transcript}");
}

#[test]
fn a_killed_program_fails_its_agent() {
    let story = ProgramStory::with_fakes();
    story.start_gated();
    kill(story.program_pid(), Signal::KILL);
    let waited = story.run(["wait", "Cook"]);
    assert_eq!(waited.code, 120, "{waited:?}");
    let shown = story.ok(["show", "Cook"]);
    assert!(shown.contains("killed by signal 9"), "{shown}");
    assert_eq!(story.start_count(), 1);
}

#[test]
fn a_program_that_is_killed_without_a_daemon_fails_its_agent() {
    let story = ProgramStory::with_fakes();
    story.start_gated();
    let pid = story.program_pid();
    story.story.kill_daemon();
    kill(pid, Signal::KILL);
    poll("it is dead", || (!is_there(pid)).then_some(()));
    let waited = story.run(["wait", "Cook"]);
    assert_eq!(waited.code, 120, "{waited:?}");
    let shown = story.ok(["show", "Cook"]);
    assert!(shown.contains("killed by signal 9"), "{shown}");
    assert_eq!(story.start_count(), 1, "it is not started again");
}

#[test]
fn an_approval_outlives_a_killed_daemon_and_is_answered_once() {
    let story = ProgramStory::with_fakes();
    let before = story.start_asking();
    story.story.kill_daemon();
    let after = story.pending_approval();
    assert_eq!(after, before, "a crash changes nothing");
    let call = after["call"].to_string();
    story.ok(["approve", "Cook", &call, "--digest", after["digest"].as_str().unwrap()]);
    story.ok(["wait", "Cook"]);
    assert!(story.story.project().join("proof").exists());
    assert_eq!(story.story.file("answers").lines().count(), 1, "one answer");
    assert_eq!(story.start_count(), 1);
}

#[test]
fn a_program_that_is_killed_while_it_asks_fails_its_agent() {
    let story = ProgramStory::with_fakes();
    story.start_asking();
    kill(story.program_pid(), Signal::KILL);
    story.assert_killed_while_asking();
}

#[test]
fn a_program_that_is_killed_with_the_daemon_while_it_asks_fails_its_agent() {
    let story = ProgramStory::with_fakes();
    story.start_asking();
    let pid = story.program_pid();
    story.story.kill_daemon();
    kill(pid, Signal::KILL);
    story.assert_killed_while_asking();
}

#[test]
fn a_stop_after_a_killed_daemon_leaves_nothing() {
    let story = ProgramStory::with_fakes();
    story.start_gated();
    let pid = story.program_pid();
    story.story.kill_daemon();
    let stopped = story.run(["stop", "--wait", "Cook"]);
    assert!(stopped.out.contains("agent:1 cancelled"), "{stopped:?}");
    poll("the program has ended", || (!is_there(pid)).then_some(()));
}
