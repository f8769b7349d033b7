//! Addresses of tasks as people type them.

use crate::story_env::StoryEnv;

#[test]
fn a_task_is_found_by_number_kind_name_and_prefix() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Test Runner", "--", "sleep", "60"]);
    story.ok(["exec", "-d", "--name", "Server", "--", "sleep", "60"]);
    let session = format!("{}/process:1", story.project().display());
    for typed in ["1", "process:1", "Test Runner", "test runner", "Te", "test", &session, "1#1"] {
        assert_eq!(story.json(["show", typed])["address"], "process:1", "{typed}");
    }
    let elsewhere = story.directory("elsewhere");
    let ran = story.run_in(&elsewhere, ["show", &session]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn an_unknown_address_is_reported_with_the_nearest_one() {
    let story = StoryEnv::new();
    let nothing = story.run(["show", "1"]);
    assert_eq!(nothing.code, 127);
    assert!(nothing.err.contains("nothing was ever started"), "{}", nothing.err);
    story.ok(["exec", "-d", "--name", "Server", "--", "sleep", "60"]);
    story.ok(["exec", "-d", "--name", "Seraph", "--", "sleep", "60"]);
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
    for (typed, code, message) in table {
        for subcommand in ["show", "logs", "wait", "stop"] {
            let ran = story.run([subcommand, typed]);
            assert_eq!(ran.code, code, "{subcommand} {typed}: {}", ran.err);
            assert!(ran.err.contains(message), "{subcommand} {typed}: {}", ran.err);
        }
    }
    assert_eq!(story.state_of("1"), "running", "a wrong address stops nothing");
}

#[test]
fn a_name_means_the_alive_task_then_the_newest() {
    let story = StoryEnv::new();
    story.ok(["exec", "--name", "Again", "--", "true"]);
    story.ok(["exec", "--name", "Again", "--", "true"]);
    assert_eq!(story.json(["show", "Again"])["address"], "process:2");
    story.ok(["exec", "-d", "--name", "Again", "--", "sleep", "60"]);
    story.ok(["exec", "--name", "Against", "--", "true"]);
    assert_eq!(story.json(["show", "Again"])["address"], "process:3");
    assert_eq!(story.json(["show", "Ag"])["address"], "process:3", "the alive task");
}
