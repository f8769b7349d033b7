//! Looking: ps, tree, show, logs, events, sessions.

use crate::kitchen::{Kitchen, poll};

#[test]
fn ps_lists_what_runs_and_with_ended_what_ran() {
    let kitchen = Kitchen::new();
    assert_eq!(kitchen.ok(["ps"]), "TASK  NAME  STATE  AGE  COMMAND\n");
    assert_eq!(kitchen.json(["ps"]), serde_json::json!([]));
    kitchen.ok(["exec", "--", "true"]);
    kitchen.run(["exec", "--shell", "exit 3"]);
    kitchen.ok(["exec", "-d", "--name", "Long One", "--", "sleep", "60"]);
    let living = kitchen.ok(["ps"]);
    assert_eq!(living.lines().count(), 2, "{living}");
    let words: Vec<&str> = living.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["process:3", "Long", "One", "running"]);
    assert_eq!(words[5..], ["sleep", "60"]);

    let all = kitchen.json(["ps", "--ended"]);
    let seen =
        |key: &str| all.as_array().unwrap().iter().map(|t| t[key].clone()).collect::<Vec<_>>();
    assert_eq!(seen("address"), ["process:1", "process:2", "process:3"]);
    assert_eq!(seen("state"), ["succeeded", "failed", "running"]);
    assert_eq!(seen("living"), [false, false, true]);
    assert_eq!(seen("exit_code"), [0.into(), 3.into(), serde_json::Value::Null]);
    let newest = kitchen.json(["ps", "--ended", "-n", "2"]);
    assert_eq!(newest.as_array().unwrap().len(), 2);
    assert_eq!(newest[0]["address"], "process:2");
    assert!(kitchen.ok(["ps", "--ended"]).contains("failed (3)"));
}

#[test]
fn show_tells_all_and_json_has_stable_keys() {
    let kitchen = Kitchen::new();
    kitchen.run(["exec", "--name", "Broken", "--shell", "echo oh; exit 5"]);
    let shown = kitchen.ok(["show", "Broken"]);
    for part in [
        "process:1",
        "Broken",
        "echo oh; exit 5",
        "failed (5)",
        "exit code 5",
        "ended ",
        "output     3 bytes on stdout",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = kitchen.json(["show", "1"]);
    for key in [
        "address",
        "session",
        "name",
        "what",
        "state",
        "living",
        "run",
        "spawned",
        "ended",
        "exit_code",
        "outcome",
    ] {
        assert!(json.get(key).is_some(), "{key}: {json}");
    }
}

#[test]
fn a_list_is_short_and_show_is_not() {
    let kitchen = Kitchen::new();
    let long = format!("echo {}", "x".repeat(1000));
    kitchen.ok(["exec", "--shell", &long]);
    let listed = &kitchen.json(["ps", "--ended"])[0];
    assert!(listed["what"].as_str().unwrap().ends_with('…'), "{listed}");
    assert!(listed.get("result").is_none() && listed.get("outcome").is_none(), "{listed}");
    let shown = kitchen.json(["show", "1"]);
    assert_eq!((&shown["what"], &shown["result"]["stdout_bytes"]), (&long.into(), &1001.into()));
}

#[test]
fn logs_keep_the_streams_apart() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--shell", "echo one; echo two >&2; sleep 0.05; echo three"]);
    let both = kitchen.run(["logs", "1"]);
    assert_eq!((&*both.out, &*both.err), ("one\nthree\n", "two\n"));
    assert_eq!(kitchen.run(["logs", "--stdout", "1"]).err, "");
    let stderr = kitchen.run(["logs", "--stderr", "1"]);
    assert_eq!((&*stderr.out, &*stderr.err), ("", "two\n"));
    let lines: Vec<String> =
        kitchen.ok(["logs", "1", "--json"]).lines().map(str::to_owned).collect();
    let text: String = lines.concat();
    assert!(lines.iter().all(|line| line.starts_with(r#"{"std"#)), "{text}");
    assert!(text.contains(r#"{"stderr":"two\n"}"#), "{text}");
}

#[test]
fn logs_show_the_end_and_what_matches() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--", "seq", "1", "5000"]);
    assert_eq!(kitchen.ok(["logs", "--tail", "3", "1"]), "4998\n4999\n5000\n");
    assert_eq!(kitchen.ok(["logs", "--tail", "0", "1"]), "");
    assert_eq!(kitchen.ok(["logs", "--tail", "7B", "1"]), "9\n5000\n");
    assert_eq!(kitchen.ok(["logs", "--tail", "9999", "1"]).lines().count(), 5000);
    assert_eq!(kitchen.ok(["logs", "1"]).lines().count(), 5000);
    assert_eq!(kitchen.ok(["logs", "--grep", "^77[78]$", "1"]), "777\n778\n");
    let none = kitchen.run(["logs", "--grep", "x", "1"]);
    assert_eq!((none.code, &*none.out), (1, ""));
    let wrong = kitchen.run(["logs", "--grep", "(", "1"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    kitchen.ok(["exec", "--", "echo", "Warning"]);
    assert_eq!(kitchen.run(["logs", "--grep", "warn", "2"]).code, 1);
    assert_eq!(kitchen.ok(["logs", "--grep", "warn", "-i", "2"]), "Warning\n");
}

#[test]
fn logs_follow_to_the_end() {
    let kitchen = Kitchen::new();
    kitchen.ok([
        "exec",
        "-d",
        "--shell",
        "echo first; until [ -e go ]; do sleep 0.02; done; echo last",
    ]);
    let follower = kitchen.start(["logs", "-f", "1"]);
    poll("first", || kitchen.run(["logs", "1"]).out.contains("first").then_some(()));
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    let ran: crate::kitchen::Ran = follower.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "first\nlast\n"));
}

#[test]
fn events_come_in_order_and_go_on_from_a_position() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "--name", "First", "--", "true"]);
    let text = kitchen.ok(["events"]);
    assert!(text.contains("spawned: First") && text.contains("ended: succeeded"), "{text}");
    let positions = |text: &str| -> Vec<u64> {
        let lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|event| event["event"]["position"].as_u64().unwrap()).collect()
    };
    let seen = positions(&kitchen.ok(["events", "--json"]));
    assert!(seen.is_sorted() && seen.len() >= 3, "{seen:?}");
    let last = seen.last().unwrap().to_string();
    assert_eq!(kitchen.ok(["events", "--from", &last]), "");
    kitchen.ok(["exec", "--", "true"]);
    let more = positions(&kitchen.ok(["events", "--json", "--from", &last]));
    assert!(more[0] > *seen.last().unwrap());

    let mut follower = kitchen.start(["events", "-f", "--json", "--from", &last]);
    kitchen.ok(["exec", "--name", "Third", "--", "true"]);
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    let third = lines.find(|line| line.as_ref().unwrap().contains("Third")).unwrap().unwrap();
    assert!(third.contains("spawned"), "{third}");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn sessions_are_listed_closed_and_pruned() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--", "sleep", "60"]);
    let here = kitchen.project().display().to_string();
    let sessions = kitchen.json(["sessions"]);
    assert_eq!((&sessions[0]["name"], &sessions[0]["living"]), (&here.clone().into(), &1.into()));
    assert!(kitchen.ok(["sessions"]).contains(&here));
    assert_eq!(
        kitchen.ok(["close"]),
        format!("closing {here}: what runs in it is being stopped\n")
    );
    poll("it is closed", || (kitchen.json(["sessions"]) == serde_json::json!([])).then_some(()));
    assert_eq!(kitchen.json(["sessions", "--all"])[0]["state"], "closed");
    assert_eq!(kitchen.ok(["close"]), format!("{here} was already closed\n"));
    let again = serde_json::json!({ "closed": here, "state": "closed", "already": true });
    assert_eq!(kitchen.json(["close"]), again);
    assert_eq!(kitchen.json(["prune", "--older", "1h"])["tasks"], 0);
    let pruned = poll("it is pruned", || {
        let removed = kitchen.json(["prune", "--older", "0"]);
        (removed["sessions"] == 1).then_some(removed)
    });
    assert!(pruned["events"].as_u64().unwrap() > 0, "{pruned}");
    assert_eq!(kitchen.run(["close", "nowhere"]).code, 127);
}

/// What a text of a task, a definition or a file may have in it: a screen that is cleared, a title that is
/// set, a colour, a turned direction, and letters that nobody sees.
const HOSTILE: &str = "EVIL\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[35m\u{9b}1A\u{202e}\u{e0041}\u{200b}end";

#[test]
fn nothing_that_is_shown_is_obeyed_by_a_terminal() {
    let kitchen = Kitchen::new();
    kitchen.script(&format!(
        "agent Asking\nturn\n  call ask_parent {{\"question\": {HOSTILE_JSON}}}\nturn\n  say x\n\
         agent Leave\nturn\n  call run_process {{\"command\": {HOSTILE_JSON}}}\nturn\n  say x\n\
         agent *\nturn\n  say {HOSTILE}\n",
        HOSTILE_JSON = serde_json::to_string(HOSTILE).unwrap()
    ));
    kitchen.define(
        "evil",
        "---\nname: evil\ndescription: \"EVIL\\e[2J\\e]0;x\\a\\e[35m\\u202e\\U000E0041end\"\n---\nDo it.\n",
    );
    kitchen.define("broken", &format!("---\nname: {HOSTILE}\n---\nDo it.\n"));
    kitchen.ok(["run", "--name", "Said", HOSTILE]);
    kitchen.ok(["run", "-d", "--name", "Asking", HOSTILE]);
    kitchen.ok(["run", "-d", "--ask", "run_process", "--name", "Leave", "Go"]);
    kitchen.run(["exec", "--shell", &format!("true {HOSTILE}")]);
    kitchen.until_state("Asking", "waiting");
    kitchen.until_state("Leave", "waiting");
    let mut shown = 0;
    for command in [
        &["show", "Said"][..],
        &["show", "Asking"],
        &["show", "Leave"],
        &["show", "4"],
        &["agents"],
        &["ps", "--ended"],
        &["tree", "--ended"],
        &["events"],
        &["logs", "Said"],
        &["inbox"],
        &["approve"],
        &["approve", "Leave", "--show"],
        &["wait", "--timeout", "50ms", "Asking"],
        &["wait", "--timeout", "50ms", "Leave"],
        &["show", HOSTILE],
        &["run", "--agent", HOSTILE, "Go"],
    ] {
        // As on a terminal, where colours are.
        let ran = kitchen.command(command).env("CLICOLOR_FORCE", "1").output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let without_ours =
            text.replace("\u{1b}[0m", "").replace("\u{1b}[1m", "").replace("\u{1b}[2m", "");
        let obeyed = without_ours.match_indices('\u{1b}').any(|(at, _)| {
            !["31m", "32m", "33m", "36m"]
                .iter()
                .any(|ours| without_ours[at + 2..].starts_with(ours))
        });
        let hidden = |c: char| {
            c.is_control() && !"\n\t\u{1b}".contains(c) || "\u{202e}\u{e0041}\u{200b}".contains(c)
        };
        assert!(!obeyed && !text.contains(hidden), "{command:?}: {text:?}");
        shown += usize::from(text.contains("EVIL"));
    }
    assert!(shown >= 14, "only {shown} of them show the text");
    kitchen.ok(["stop", "Asking"]);
    kitchen.ok(["stop", "Leave"]);
}

/// Every file of a folder with what a change would change.
fn picture(folder: &std::path::Path) -> Vec<(std::path::PathBuf, u64, u32, i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let (path, about) = (entry.as_ref().unwrap().path(), entry.unwrap().metadata().unwrap());
        if about.is_dir() {
            found.extend(picture(&path));
        }
        found.push((path, about.ino(), about.mode(), about.ctime(), about.ctime_nsec()));
    }
    found.sort();
    found
}

#[test]
fn doctor_changes_nothing() {
    let kitchen = Kitchen::new();
    let said = kitchen.ok(["doctor"]);
    assert!(said.contains("the first daemon makes it"), "{said}");
    assert!(!kitchen.state().exists());
    let below = kitchen.home().join("not/there/yet");
    kitchen.ok(["doctor", "--state", below.to_str().unwrap()]);
    assert!(!kitchen.home().join("not").exists());

    kitchen.ok(["exec", "--", "true"]);
    kitchen.ok(["daemon", "stop"]);
    let before = picture(&kitchen.state());
    let said = kitchen.ok(["doctor"]);
    assert!(said.contains("brigade-shim-") && said.contains("brigade.db: 1 workspace"), "{said}");
    assert_eq!(picture(&kitchen.state()), before);
}

#[test]
fn doctor_config_and_completions_speak() {
    let kitchen = Kitchen::new();
    let findings = kitchen.json(["doctor"]);
    assert!(findings.as_array().unwrap().iter().all(|f| f["state"] != "broken"), "{findings}");
    assert_eq!(kitchen.run(["daemon", "status"]).code, 127, "doctor starts no daemon");
    kitchen.ok(["exec", "--", "true"]);
    assert!(kitchen.ok(["doctor"]).contains("none is left of what has ended"));
    kitchen.configure("idle_exit = \"5m\"\n");
    let config = kitchen.ok(["config"]);
    assert!(config.starts_with("# /") && config.contains("idle_exit = \"5m\""), "{config}");
    let shown: toml::Table = config.parse().unwrap();
    assert_eq!(shown["output_cap"].as_integer(), Some(8 << 20));
    assert_eq!(kitchen.json(["config"])["config"]["idle_exit"], "5m");
    for shell in ["bash", "zsh", "fish"] {
        assert!(kitchen.ok(["completions", shell]).contains("exec"), "{shell}");
    }
}

#[test]
fn the_demonstration_keeps_its_promises() {
    let kitchen = Kitchen::new();
    let ran = kitchen.command(["demo"]).env("TMPDIR", kitchen.folder("tmp")).output().unwrap();
    let shown = String::from_utf8(ran.stdout).unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), &*err), (Some(0), ""), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.starts_with("  kept ")).count(), 11, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("Chef: Dinner is served: leek soup, roast lamb, pears without nuts."));
    assert_eq!(std::fs::read_dir(kitchen.folder("tmp")).unwrap().count(), 0, "nothing is left");
}
