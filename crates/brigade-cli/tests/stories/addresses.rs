//! Tasks by what people type.

use crate::kitchen::Kitchen;

#[test]
fn a_task_is_found_by_number_kind_name_and_beginning() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Test Runner", "--", "sleep", "60"]);
    kitchen.ok(["exec", "-d", "--name", "Server", "--", "sleep", "60"]);
    let session = format!("{}/process:1", kitchen.project().display());
    for typed in ["1", "process:1", "Test Runner", "test runner", "Te", "test", &session, "1#1"] {
        assert_eq!(kitchen.json(["show", typed])["address"], "process:1", "{typed}");
    }
    let elsewhere = kitchen.folder("elsewhere");
    let ran = kitchen.run_in(&elsewhere, ["show", &session]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn what_is_not_there_is_said_and_the_nearest_offered() {
    let kitchen = Kitchen::new();
    let nothing = kitchen.run(["show", "1"]);
    assert_eq!(nothing.code, 127);
    assert!(nothing.err.contains("nothing was ever started"), "{}", nothing.err);
    kitchen.ok(["exec", "-d", "--name", "Server", "--", "sleep", "60"]);
    kitchen.ok(["exec", "-d", "--name", "Seraph", "--", "sleep", "60"]);
    let table = [
        ("Sevrer", 127, "did you mean process:1 (Server)?"),
        ("process:3", 127, "there is no task 3"),
        ("job:1", 127, "1 is process:1"),
        ("Se", 2, "process:1 (Server), process:2 (Seraph)"),
        ("Zebra", 127, "no task here is called"),
        ("0", 2, "has no number"),
        ("x:y:z", 2, "x"),
        ("1#7", 127, "has no run 7"),
        ("nowhere/process:1", 127, "there is no session nowhere"),
    ];
    for (typed, code, said) in table {
        for subcommand in ["show", "logs", "wait", "stop"] {
            let ran = kitchen.run([subcommand, typed]);
            assert_eq!(ran.code, code, "{subcommand} {typed}: {}", ran.err);
            assert!(ran.err.contains(said), "{subcommand} {typed}: {}", ran.err);
        }
    }
    assert_eq!(kitchen.state_of("1"), "running", "a wrong address stops nothing");
}

#[test]
fn a_name_means_the_living_one_then_the_newest() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--name", "Again", "--", "true"]);
    kitchen.ok(["exec", "--name", "Again", "--", "true"]);
    assert_eq!(kitchen.json(["show", "Again"])["address"], "process:2");
    kitchen.ok(["exec", "-d", "--name", "Again", "--", "sleep", "60"]);
    kitchen.ok(["exec", "--name", "Against", "--", "true"]);
    assert_eq!(kitchen.json(["show", "Again"])["address"], "process:3");
    assert_eq!(kitchen.json(["show", "Ag"])["address"], "process:3", "the living one");
}
