//! Waiting.

use crate::kitchen::{Kitchen, Ran};

const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.02; done; exit 6";

#[test]
fn the_exit_code_is_the_tasks() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Gate", "--shell", UNTIL_GO]);
    let waiter = kitchen.start(["wait", "Gate"]);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    let ran: Ran = waiter.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (6, "process:1 (Gate) failed (6)\n"));
    // As often as it is asked for.
    assert_eq!(kitchen.run(["wait", "1"]).code, 6);
    assert_eq!(kitchen.run(["wait", "Gate"]).code, 6);
}

#[test]
fn time_that_is_up_ends_the_wait_and_not_the_task() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--", "sleep", "60"]);
    let ran = kitchen.run(["wait", "--timeout", "100ms", "1"]);
    assert_eq!((ran.code, &*ran.out), (124, ""));
    assert!(ran.err.contains("still running"), "{}", ran.err);
    assert_eq!(kitchen.state_of("1"), "running");
    for bad in ["-1", "soon", "1e400"] {
        assert_eq!(kitchen.run(["wait", "--timeout", bad, "1"]).code, 2, "{bad}");
    }
}

#[test]
fn any_is_the_first_and_all_are_all() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--shell", UNTIL_GO]);
    kitchen.ok(["exec", "-d", "--shell", "exit 0"]);
    kitchen.ok(["exec", "-d", "--shell", "exit 9"]);
    let ran = kitchen.run(["wait", "--any", "1", "2"]);
    assert_eq!((ran.code, &*ran.out), (0, "process:2 succeeded\n"));
    let json = kitchen.json(["wait", "--any", "1", "2"]);
    assert_eq!(json["ended"][0]["address"], "process:2");
    assert_eq!(json["going_on"][0]["address"], "process:1");
    assert_eq!(json["timed_out"], false);

    let late = kitchen.run(["wait", "--timeout", "100ms", "--json", "1", "2"]);
    let json: serde_json::Value = serde_json::from_str(&late.out).unwrap();
    assert_eq!((late.code, &json["timed_out"]), (124, &true.into()));
    assert_eq!(json["ended"][0]["address"], "process:2", "what has ended is not going on");

    let all = kitchen.start(["wait", "2", "3", "1"]);
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    let ran: Ran = all.wait_with_output().unwrap().into();
    let expect = "process:2 succeeded\nprocess:3 failed (9)\nprocess:1 failed (6)\n";
    assert_eq!((ran.code, &*ran.out), (9, expect), "in the order in which they were named");
}

#[test]
fn without_an_address_it_is_everything_here() {
    let kitchen = Kitchen::new();
    let idle = kitchen.run(["wait"]);
    assert_eq!((idle.code, &*idle.out, &*idle.err), (0, "", "brigade: nothing runs here\n"));
    let nothing = serde_json::json!({ "ended": [], "going_on": [], "timed_out": false });
    assert_eq!(kitchen.json(["wait"]), nothing);
    kitchen.ok(["exec", "-d", "--shell", "sleep 0.2; exit 4"]);
    kitchen.ok(["exec", "-d", "--", "sleep", "0.1"]);
    assert_eq!(kitchen.run(["wait"]).code, 4);
    assert_eq!(kitchen.json(["ps"]), serde_json::json!([]));
}

#[test]
fn a_failure_is_told_with_its_reason() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--deadline", "100ms", "--name", "Late", "--", "sleep", "100"]);
    kitchen.ok(["exec", "-d", "--name", "Absent", "--", "/nonexistent/program"]);
    kitchen.ok(["exec", "-d", "--name", "Wrong", "--", "sh", "-c", "exit 3"]);
    for (name, expect) in [
        ("Late", "failed (timeout after 100 ms)"),
        ("Absent", "failed (error: "),
        ("Wrong", "failed (3)"),
    ] {
        let waited = kitchen.run(["wait", name]);
        assert_ne!(waited.code, 0, "{waited:?}");
        assert!(waited.out.contains(expect), "{name}: {waited:?}");
        let listed = kitchen.ok(["ps", "--ended"]);
        let line = listed.lines().find(|line| line.contains(name)).unwrap();
        assert!(line.contains(expect), "{line}");
    }
}
