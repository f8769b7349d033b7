//! `ps`, `tree`, `show`, `logs`, `events`, `sessions`, `doctor` and `demo`.

use std::fs;

use crate::story_env::{StoryEnv, poll};

#[test]
fn ps_lists_alive_tasks_and_with_ended_all_tasks() {
    let story = StoryEnv::new();
    assert_eq!(story.ok(["ps"]), "TASK  NAME  STATE  AGE  DESCRIPTION\n");
    assert_eq!(story.json(["ps"]), serde_json::json!([]));
    story.ok(["exec", "--", "true"]);
    story.run(["exec", "--shell", "exit 3"]);
    story.ok(["exec", "-d", "--name", "Long One", "--", "sleep", "60"]);
    let alive = story.ok(["ps"]);
    assert_eq!(alive.lines().count(), 2, "{alive}");
    let words: Vec<&str> = alive.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["process:3", "Long", "One", "running"]);
    assert_eq!(words[5..], ["sleep", "60"]);

    let all = story.json(["ps", "--ended"]);
    let seen =
        |key: &str| all.as_array().unwrap().iter().map(|t| t[key].clone()).collect::<Vec<_>>();
    assert_eq!(seen("address"), ["process:1", "process:2", "process:3"]);
    assert_eq!(seen("state"), ["succeeded", "failed", "running"]);
    assert_eq!(seen("alive"), [false, false, true]);
    assert_eq!(seen("exit_code"), [0.into(), 3.into(), serde_json::Value::Null]);
    let newest = story.json(["ps", "--ended", "-n", "2"]);
    assert_eq!(newest.as_array().unwrap().len(), 2);
    assert_eq!(newest[0]["address"], "process:2");
    assert!(story.ok(["ps", "--ended"]).contains("failed (3)"));
}

#[test]
fn show_prints_all_and_json_has_stable_keys() {
    let story = StoryEnv::new();
    story.run(["exec", "--name", "Broken", "--shell", "echo oh; exit 5"]);
    let shown = story.ok(["show", "Broken"]);
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
    let json = story.json(["show", "1"]);
    for key in [
        "address",
        "session",
        "name",
        "description",
        "state",
        "alive",
        "run",
        "spawned_at",
        "ended_at",
        "exit_code",
        "outcome",
    ] {
        assert!(json.get(key).is_some(), "{key}: {json}");
    }
}

#[test]
fn lists_truncate_descriptions_and_show_does_not() {
    let story = StoryEnv::new();
    let long = format!("echo {}", "x".repeat(1000));
    story.ok(["exec", "--shell", &long]);
    let listed = &story.json(["ps", "--ended"])[0];
    assert!(listed["description"].as_str().unwrap().ends_with('…'), "{listed}");
    assert!(listed.get("result").is_none() && listed.get("outcome").is_none(), "{listed}");
    let shown = story.json(["show", "1"]);
    assert_eq!(
        (&shown["description"], &shown["result"]["stdout_bytes"]),
        (&long.into(), &1001.into())
    );
}

#[test]
fn logs_keep_the_streams_apart() {
    let story = StoryEnv::new();
    story.ok(["exec", "--shell", "echo one; echo two >&2; sleep 0.05; echo three"]);
    let both = story.run(["logs", "1"]);
    assert_eq!((&*both.out, &*both.err), ("one\nthree\n", "two\n"));
    assert_eq!(story.run(["logs", "--stdout", "1"]).err, "");
    let stderr = story.run(["logs", "--stderr", "1"]);
    assert_eq!((&*stderr.out, &*stderr.err), ("", "two\n"));
    let lines: Vec<String> = story.ok(["logs", "1", "--json"]).lines().map(str::to_owned).collect();
    let text: String = lines.concat();
    assert!(lines.iter().all(|line| line.starts_with(r#"{"std"#)), "{text}");
    assert!(text.contains(r#"{"stderr":"two\n"}"#), "{text}");
}

#[test]
fn logs_print_the_tail_and_matching_lines() {
    let story = StoryEnv::new();
    story.ok(["exec", "--", "seq", "1", "5000"]);
    assert_eq!(story.ok(["logs", "--tail", "3", "1"]), "4998\n4999\n5000\n");
    assert_eq!(story.ok(["logs", "--tail", "0", "1"]), "");
    assert_eq!(story.ok(["logs", "--tail", "7B", "1"]), "9\n5000\n");
    assert_eq!(story.ok(["logs", "--tail", "9999", "1"]).lines().count(), 5000);
    assert_eq!(story.ok(["logs", "1"]).lines().count(), 5000);
    assert_eq!(story.ok(["logs", "--grep", "^77[78]$", "1"]), "777\n778\n");
    let none = story.run(["logs", "--grep", "x", "1"]);
    assert_eq!((none.code, &*none.out), (1, ""));
    let wrong = story.run(["logs", "--grep", "(", "1"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    story.ok(["exec", "--", "echo", "Warning"]);
    assert_eq!(story.run(["logs", "--grep", "warn", "2"]).code, 1);
    assert_eq!(story.ok(["logs", "--grep", "warn", "-i", "2"]), "Warning\n");
}

#[test]
fn logs_follow_until_the_end() {
    let story = StoryEnv::new();
    story.ok([
        "exec",
        "-d",
        "--shell",
        "echo first; until [ -e go ]; do sleep 0.02; done; echo last",
    ]);
    let follower = story.start(["logs", "-f", "1"]);
    poll("first", || story.run(["logs", "1"]).out.contains("first").then_some(()));
    std::fs::write(story.project().join("go"), "").unwrap();
    let ran: crate::story_env::Ran = follower.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "first\nlast\n"));
}

#[test]
fn events_are_ordered_and_continue_after_a_position() {
    let story = StoryEnv::new();
    story.ok(["exec", "--name", "First", "--", "true"]);
    let text = story.ok(["events"]);
    assert!(text.contains("spawned: First") && text.contains("ended: succeeded"), "{text}");
    let positions = |text: &str| -> Vec<u64> {
        let lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|event| event["event"]["position"].as_u64().unwrap()).collect()
    };
    let seen = positions(&story.ok(["events", "--json"]));
    assert!(seen.is_sorted() && seen.len() >= 3, "{seen:?}");
    let last = seen.last().unwrap().to_string();
    assert_eq!(story.ok(["events", "--from", &last]), "");
    // The file has only lane 0.
    assert_eq!(positions(&story.ok(["events", "--json", "--from", "5:3"])), seen);
    story.ok(["exec", "--", "true"]);
    let more = positions(&story.ok(["events", "--json", "--from", &last]));
    assert!(more[0] > *seen.last().unwrap());

    let mut follower = story.start(["events", "-f", "--json", "--from", &last]);
    story.ok(["exec", "--name", "Third", "--", "true"]);
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    let third = lines.find(|line| line.as_ref().unwrap().contains("Third")).unwrap().unwrap();
    assert!(third.contains("spawned"), "{third}");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn sessions_are_listed_closed_and_pruned() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "60"]);
    let here = story.project().display().to_string();
    let sessions = story.json(["sessions"]);
    assert_eq!(
        (&sessions[0]["name"], &sessions[0]["alive_tasks"]),
        (&here.clone().into(), &1.into())
    );
    assert!(story.ok(["sessions"]).contains(&here));
    assert_eq!(story.ok(["close"]), format!("closing {here}: its tasks are being stopped\n"));
    poll("it is closed", || (story.json(["sessions"]) == serde_json::json!([])).then_some(()));
    assert_eq!(story.json(["sessions", "--all"])[0]["state"], "closed");
    assert_eq!(story.ok(["close"]), format!("{here} was already closed\n"));
    let again = serde_json::json!({ "closed": here, "state": "closed", "already": true });
    assert_eq!(story.json(["close"]), again);
    assert_eq!(story.json(["prune", "--older", "1h"])["tasks"], 0);
    let pruned = poll("it is pruned", || {
        let removed = story.json(["prune", "--older", "0"]);
        (removed["sessions"] == 1).then_some(removed)
    });
    assert!(pruned["events"].as_u64().unwrap() > 0, "{pruned}");
    assert_eq!(story.run(["close", "nowhere"]).code, 127);
}

/// A hostile text: it clears the screen, sets a title and a colour, reverses the direction, and has
/// invisible letters.
const HOSTILE: &str = "EVIL\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[35m\u{9b}1A\u{202e}\u{e0041}\u{200b}end";

#[test]
fn printed_texts_have_no_effect_on_the_terminal() {
    let story = StoryEnv::new();
    story.script(&format!(
        "agent Asking\nturn\n  call ask_parent {{\"question\": {HOSTILE_JSON}}}\nturn\n  say x\n\
         agent Careful\nturn\n  call run_process {{\"command\": {HOSTILE_JSON}}}\nturn\n  say x\n\
         agent *\nturn\n  say {HOSTILE}\n",
        HOSTILE_JSON = serde_json::to_string(HOSTILE).unwrap()
    ));
    story.define(
        "evil",
        "---\nname: evil\ndescription: \"EVIL\\e[2J\\e]0;x\\a\\e[35m\\u202e\\U000E0041end\"\n---\nDo it.\n",
    );
    story.define("broken", &format!("---\nname: {HOSTILE}\n---\nDo it.\n"));
    story.ok(["run", "--name", "Said", HOSTILE]);
    story.ok(["run", "-d", "--name", "Asking", HOSTILE]);
    story.ok(["run", "-d", "--ask", "run_process", "--name", "Careful", "Go"]);
    story.run(["exec", "--shell", &format!("true {HOSTILE}")]);
    story.until_state("Asking", "waiting");
    story.until_state("Careful", "waiting");
    let mut shown = 0;
    for command in [
        &["show", "Said"][..],
        &["show", "Asking"],
        &["show", "Careful"],
        &["show", "4"],
        &["agents"],
        &["ps", "--ended"],
        &["tree", "--ended"],
        &["events"],
        &["logs", "Said"],
        &["inbox"],
        &["approve"],
        &["approve", "Careful", "--show"],
        &["wait", "--timeout", "50ms", "Asking"],
        &["wait", "--timeout", "50ms", "Careful"],
        &["show", HOSTILE],
        &["run", "--agent", HOSTILE, "Go"],
    ] {
        // With colours, as on a terminal.
        let ran = story.command(command).env("CLICOLOR_FORCE", "1").output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let without_ours =
            text.replace("\u{1b}[0m", "").replace("\u{1b}[1m", "").replace("\u{1b}[2m", "");
        let has_effect = without_ours.match_indices('\u{1b}').any(|(at, _)| {
            !["31m", "32m", "33m", "36m"]
                .iter()
                .any(|ours| without_ours[at + 2..].starts_with(ours))
        });
        let hidden = |c: char| {
            c.is_control() && !"\n\t\u{1b}".contains(c) || "\u{202e}\u{e0041}\u{200b}".contains(c)
        };
        assert!(!has_effect && !text.contains(hidden), "{command:?}: {text:?}");
        shown += usize::from(text.contains("EVIL"));
    }
    assert!(shown >= 14, "only {shown} outputs contain the text");
    story.ok(["stop", "Asking"]);
    story.ok(["stop", "Careful"]);
}

/// A file, with the metadata that every change of it changes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileState {
    path: std::path::PathBuf,
    inode: u64,
    mode: u32,
    changed_secs: i64,
    changed_nanos: i64,
}

/// Lists the files of a directory and its subdirectories.
fn file_states(directory: &std::path::Path) -> Vec<FileState> {
    use std::os::unix::fs::MetadataExt;
    let mut states = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            states.extend(file_states(&path));
        }
        states.push(FileState {
            path,
            inode: metadata.ino(),
            mode: metadata.mode(),
            changed_secs: metadata.ctime(),
            changed_nanos: metadata.ctime_nsec(),
        });
    }
    states.sort();
    states
}

#[test]
fn doctor_changes_nothing() {
    let story = StoryEnv::new();
    let findings = story.ok(["doctor"]);
    assert!(findings.contains("the first daemon creates it"), "{findings}");
    assert!(!story.state().exists());
    let missing = story.home().join("not/there/yet");
    story.ok(["doctor", "--state", missing.to_str().unwrap()]);
    assert!(!story.home().join("not").exists());

    story.ok(["exec", "--", "true"]);
    story.ok(["daemon", "stop"]);
    let before = file_states(&story.state());
    let findings = story.ok(["doctor"]);
    assert!(
        findings.contains("brigade-shim-") && findings.contains("brigade.db: 1 workspace"),
        "{findings}"
    );
    assert_eq!(file_states(&story.state()), before);
}

#[test]
fn doctor_config_and_completions_print() {
    let story = StoryEnv::new();
    let findings = story.json(["doctor"]);
    assert!(findings.as_array().unwrap().iter().all(|f| f["state"] != "broken"), "{findings}");
    assert_eq!(story.run(["daemon", "status"]).code, 127, "doctor starts no daemon");
    story.ok(["exec", "--", "true"]);
    assert!(story.ok(["doctor"]).contains("no leftover processes of ended tasks"));
    story.configure("idle_exit = \"5m\"\n");
    let config = story.ok(["config"]);
    assert!(config.starts_with("# /") && config.contains("idle_exit = \"5m\""), "{config}");
    let shown: toml::Table = config.parse().unwrap();
    assert_eq!(shown["output_cap"].as_integer(), Some(8 << 20));
    assert_eq!(story.json(["config"])["config"]["idle_exit"], "5m");
    for shell in ["bash", "zsh", "fish"] {
        assert!(story.ok(["completions", shell]).contains("exec"), "{shell}");
    }
}

#[test]
fn each_subcommand_has_a_manual_page() {
    let story = StoryEnv::new();
    let dir = story.directory("manual").join("man1");
    story.ok(["completions", "--man", dir.to_str().unwrap()]);
    let page = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert!(page("brigade.1").contains("brigade\\-exec(1)"));
    assert!(page("brigade-exec.1").contains("\\-\\-detach"));
    assert!(page("brigade-daemon-stop.1").contains("SYNOPSIS"));
    assert_eq!(story.run(["completions"]).code, 2);
    assert_eq!(story.run(["completions", "zsh", "--man", "x"]).code, 2);
}

#[test]
fn the_demonstration_keeps_its_promises() {
    let story = StoryEnv::new();
    let ran = story.command(["demo"]).env("TMPDIR", story.directory("tmp")).output().unwrap();
    let shown = String::from_utf8(ran.stdout).unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), &*err), (Some(0), ""), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.starts_with("  kept ")).count(), 11, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains("Chef: Dinner is served: leek soup, roast lamb, pears without nuts."));
    assert_eq!(std::fs::read_dir(story.directory("tmp")).unwrap().count(), 0, "nothing is left");
}
