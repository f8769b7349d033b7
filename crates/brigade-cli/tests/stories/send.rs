//! Sending lines to a command.

use crate::kitchen::Kitchen;

#[test]
fn lines_arrive_in_order_and_the_end_ends_it() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--stdin", "--name", "Numbers", "--", "cat", "-n"]);
    assert_eq!(kitchen.ok(["send", "Numbers", "one"]), "");
    assert_eq!(kitchen.run_with_input(["send", "Numbers", "-"], "two\nthree\n").code, 0);
    assert_eq!(
        kitchen.json(["send", "Numbers", "four", "--close"])["messages"],
        serde_json::json!([4, 5])
    );
    assert_eq!(kitchen.run(["wait", "Numbers"]).code, 0);
    assert_eq!(
        kitchen.ok(["logs", "1"]),
        "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour\n"
    );
    let late = kitchen.run(["send", "Numbers", "five"]);
    assert_eq!(late.code, 120, "{}", late.err);
    assert_eq!(kitchen.run(["send", "Nobody", "x"]).code, 127);
    assert_eq!(kitchen.run(["send", "Numbers"]).code, 2);
}
