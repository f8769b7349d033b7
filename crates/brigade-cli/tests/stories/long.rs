//! Answers that are longer than a line of the protocol.

use crate::kitchen::Kitchen;

#[test]
fn matches_that_do_not_fit_an_answer_are_cut_and_said_to_be() {
    let kitchen = Kitchen::new();
    // A byte of this is six in JSON.
    let script = "head -c 6000000 /dev/zero | tr '\\000' '\\001' | fold -w 1500";
    kitchen.ok(["exec", "-d", "--shell", script]);
    kitchen.ok(["wait", "1"]);
    let ran = kitchen.run(["logs", "--grep", ".", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = ran.out.lines().count();
    assert!(lines > 100, "{lines}");
    assert!(ran.err.contains(&format!("only the first {lines} matches")), "{}", ran.err);
}
