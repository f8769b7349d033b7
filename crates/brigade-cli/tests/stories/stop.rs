//! Stopping.

use crate::kitchen::{Kitchen, is_there};

#[test]
fn a_stop_reaches_all_that_came_of_it() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--shell", "sleep 60 & setsid sleep 61 & echo $! > pid; wait"]);
    let pid: u32 = kitchen.file("pid").trim().parse().unwrap();
    let ran = kitchen.run(["stop", "--wait", "--reason", "enough", "1"]);
    assert_eq!((ran.code, &*ran.out), (0, "process:1 cancelled (signal 15)\n"));
    assert!(!is_there(pid));
    assert_eq!(kitchen.run(["wait", "1"]).code, 121);
    // Again is no failure, and changes nothing.
    let again = kitchen.json(["stop", "1"]);
    assert_eq!(
        (&again[0]["already"], &again[0]["task"]["state"]),
        (&true.into(), &"cancelled".into())
    );
    assert!(kitchen.ok(["events", "--json"]).contains("enough"));
}

#[test]
fn now_means_now() {
    let kitchen = Kitchen::new();
    let stubborn = "trap '' TERM; echo up > up; while :; do sleep 1; done";
    kitchen.ok(["exec", "-d", "--grace", "1h", "--shell", stubborn]);
    kitchen.ok(["exec", "-d", "--", "sleep", "60"]);
    kitchen.file("up");
    let told = kitchen.ok(["stop", "--now", "--wait", "1", "2"]);
    let first = told.lines().next().unwrap();
    assert_eq!(first, "process:1 cancelled (signal 9)", "{told}");
    assert_eq!(kitchen.json(["ps"]), serde_json::json!([]));
}
