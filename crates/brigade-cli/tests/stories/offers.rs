//! What is offered instead of an address that is not there.

use crate::kitchen::{Kitchen, poll};

#[test]
fn a_number_and_a_single_letter_are_like_no_name() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--name", "a", "--", "true"]);
    kitchen.ok(["exec", "--name", "go", "--", "true"]);
    for typed in ["9", "77", "process:9", "process:77", "x", "og", "zz"] {
        let ran = kitchen.run(["show", typed]);
        assert_eq!(ran.code, 127, "{typed}: {}", ran.err);
        assert!(!ran.err.contains("did you mean"), "{typed}: {}", ran.err);
    }
}

#[test]
fn a_daemon_counts_one_as_one() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--", "sleep", "60"]);
    // Those that went away are counted until the daemon notices.
    let says = |what: &str| {
        poll(what, || kitchen.ok(["daemon", "status"]).contains(what).then_some(()));
    };
    says("1 client, 1 workspace, 1 living task\n");
    kitchen.ok(["stop", "--wait", "1"]);
    says("1 client, 1 workspace, 0 living tasks\n");
}
