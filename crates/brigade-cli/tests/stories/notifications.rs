//! Notifications: commands and webhooks that are called for outcomes, questions and approvals.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::story_env::{BRIGADE, StoryEnv, TOO_LONG, is_there, poll};

/// Pauses short enough for a story.
const FAST: &str = "first_pause = \"20ms\"\nmax_pause = \"100ms\"\n";

/// Appends the notification to the file `got`, as one line and with one write.
const RECEIVE: &str = "body=$(cat); printf '%s\\n' \"$body\" >> \"$HOME/got\"";

fn home_file(story: &StoryEnv, name: &str) -> PathBuf {
    story.home().join(name)
}

/// Configures a notifier that runs a shell script, and a script as the model.
fn configure(story: &StoryEnv, script: &str, settings: &str, agents: &str) {
    let model = story.home().join("agents.script");
    fs::write(&model, agents).unwrap();
    let command = toml::Value::from(vec!["/bin/sh", "-c", script]);
    story.configure(&format!(
        "model = \"script:{}\"\n[notify.receiver]\ncommand = {command}\n{FAST}{settings}",
        model.display()
    ));
}

fn received(story: &StoryEnv) -> Vec<Value> {
    let text = fs::read_to_string(home_file(story, "got")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for a number of notifications, and returns them by the time of their event.
#[track_caller]
fn until_received(story: &StoryEnv, count: usize) -> Vec<Value> {
    let mut all = poll(&format!("{count} notifications"), || {
        let all = received(story);
        assert!(all.len() <= count, "{all:#?}");
        (all.len() == count).then_some(all)
    });
    all.sort_by_key(|one| one["at"].as_u64());
    all
}

fn log(story: &StoryEnv) -> String {
    fs::read_to_string(story.state().join("daemon.log")).unwrap_or_default()
}

fn lines(story: &StoryEnv, name: &str) -> Vec<String> {
    let text = fs::read_to_string(home_file(story, name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn each_outcome_is_notified_once_with_its_details() {
    let story = StoryEnv::new();
    configure(&story, RECEIVE, "", "");
    story.ok(["exec", "--name", "Oven", "--", "sh", "-c", "echo warm"]);
    assert_eq!(story.run(["exec", "--", "sh", "-c", "exit 3"]).code, 3);
    story.ok(["exec", "-d", "--name", "Pan", "--", "sleep", "600"]);
    story.ok(["stop", "Pan"]);
    let all = until_received(&story, 3);
    let (oven, failed, pan) = (&all[0], &all[1], &all[2]);
    assert_eq!(oven["event"], "ended");
    assert_eq!(oven["notifier"], "receiver");
    assert_eq!((&oven["address"], &oven["name"]), (&"process:1".into(), &"Oven".into()));
    assert_eq!((&oven["kind"], &oven["run"]), (&"process".into(), &1.into()));
    assert_eq!(oven["outcome"]["state"], "succeeded");
    assert_eq!(oven["outcome"]["exit_code"], 0);
    assert!(oven["outcome"]["result"].as_str().unwrap().contains("warm"), "{oven}");
    assert!(oven["at"].as_u64() >= oven["spawned_at"].as_u64(), "{oven}");
    let session = oven["session"].as_str().unwrap();
    assert_eq!(oven["summary"], format!("{session}/process:1 (Oven) succeeded"));
    assert_eq!(failed["outcome"]["state"], "failed");
    assert_eq!(failed["outcome"]["failure"], "exit_code");
    assert_eq!(failed["outcome"]["exit_code"], 3);
    assert_eq!(failed["outcome"]["detail"], "failed (exit code 3)");
    assert_eq!(pan["outcome"]["state"], "cancelled");
    let keys: BTreeSet<String> = all.iter().map(|one| one["key"].to_string()).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    story.kill_daemon();
    story.ok(["exec", "--", "true"]);
    assert_eq!(until_received(&story, 4)[3]["address"], "process:4", "no earlier one again");
}

#[test]
fn questions_and_approvals_reach_the_operator_also_from_a_sub_agent() {
    let story = StoryEnv::new();
    let agents = r#"
agent Chef
turn
  call spawn_agent {"task": "taste", "name": "Cook"}
turn
  call wait_tasks {"mode": "all"}
turn
  call ask_parent {"question": "Red or blue?"}
turn
  say Served.

agent Cook
turn
  call run_process {"command": "echo salt >> soup"}
turn
  say Tasted.
"#;
    configure(&story, RECEIVE, "", agents);
    story.ok(["run", "-d", "--name", "Chef", "--ask", "run_process", "Go"]);
    let approval = &until_received(&story, 1)[0];
    assert_eq!(approval["event"], "approval");
    assert_eq!((&approval["address"], &approval["parent"]), (&"agent:2".into(), &"1".into()));
    assert_eq!(approval["name"], "Cook");
    assert_eq!(approval["approval"]["tool"], "run_process");
    assert_eq!(approval["approval"]["text"], "run_process(echo salt >> soup)");
    let arguments = approval["approval"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments["command"], "echo salt >> soup");
    let pending = &story.json(["approve"])["pending"][0];
    assert_eq!(pending["call"], approval["approval"]["call"]);
    let digest = pending["digest"].as_str().unwrap().to_owned();
    story.ok(["approve", "agent:2", "--digest", &digest]);
    let question = &until_received(&story, 2)[1];
    assert_eq!((&question["event"], &question["address"]), (&"question".into(), &"agent:1".into()));
    assert_eq!(question["question"]["text"], "Red or blue?");
    story.ok(["answer", "Chef", "blue"]);
    let ended = &until_received(&story, 3)[2];
    assert_eq!((&ended["event"], &ended["address"]), (&"ended".into(), &"agent:1".into()));
    assert_eq!(ended["outcome"]["result"], "Served.");
}

#[test]
fn a_notifier_can_select_events_and_the_outcomes_of_all_tasks() {
    let story = StoryEnv::new();
    let agents = "agent Chef\nturn\n  call spawn_agent {\"task\": \"taste\", \"name\": \"Cook\"}\n\
        turn\n  call wait_tasks {\"mode\": \"all\"}\nturn\n  say Served.\n\
        agent Cook\nturn\n  say Tasted.\n";
    configure(&story, RECEIVE, "on = [\"ended\"]\ntasks = \"all\"\n", agents);
    story.ok(["run", "--name", "Chef", "Go"]);
    let all = until_received(&story, 2);
    let ended: BTreeSet<&str> = all.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(ended, BTreeSet::from(["Chef", "Cook"]));
}

#[test]
fn a_killed_daemon_delivers_after_its_restart() {
    let story = StoryEnv::new();
    let script = format!(
        "echo $$ >> \"$HOME/begun\"; until [ -e \"$HOME/go\" ]; do sleep 0.02; done; {RECEIVE}"
    );
    configure(&story, &script, "", "");
    story.ok(["exec", "--name", "Oven", "--", "true"]);
    let begun = poll("the command runs", || lines(&story, "begun").first().cloned());
    story.kill_daemon();
    let begun: u32 = begun.parse().unwrap();
    poll("the command ended with the daemon", || (!is_there(begun)).then_some(()));
    fs::write(home_file(&story, "go"), "").unwrap();
    assert!(received(&story).is_empty());
    story.ok(["daemon", "start"]);
    assert_eq!(until_received(&story, 1)[0]["name"], "Oven");
    assert_eq!(lines(&story, "begun").len(), 2, "one attempt of each daemon");
}

#[test]
fn an_outcome_without_a_daemon_is_notified_by_the_next_one() {
    let story = StoryEnv::new();
    configure(&story, RECEIVE, "", "");
    let line = "until [ -e go ]; do sleep 0.02; done; echo done > done";
    story.ok(["exec", "-d", "--name", "Oven", "--", "sh", "-c", line]);
    story.kill_daemon();
    fs::write(story.project().join("go"), "").unwrap();
    story.file("done");
    assert!(received(&story).is_empty());
    story.ok(["daemon", "start"]);
    let all = until_received(&story, 1);
    assert_eq!((&all[0]["name"], &all[0]["outcome"]["exit_code"]), (&"Oven".into(), &0.into()));
}

#[test]
fn a_command_that_fails_is_tried_again_with_the_same_notification() {
    let story = StoryEnv::new();
    let script = "body=$(cat); printf '%s\\n' \"$body\" >> \"$HOME/got\"; \
        printf '\\033[31mno \\007salt\\n' >&2; [ \"$(wc -l < \"$HOME/got\")\" -ge 3 ]";
    configure(&story, script, "", "");
    story.ok(["exec", "--", "true"]);
    let all = until_received(&story, 3);
    assert!(all.iter().all(|one| *one == all[0]), "{all:#?}");
    story.ok(["exec", "--", "true"]);
    let last = &until_received(&story, 4)[3];
    assert_ne!(last["key"], all[0]["key"]);
    let log = log(&story);
    assert!(log.contains("the command ended with exit code 1: "), "{log}");
    assert!(log.contains("salt") && !log.contains(['\u{7}', '\u{1b}']), "{log:?}");
}

#[test]
fn a_command_that_hangs_is_ended_with_its_children_and_delays_no_task() {
    let story = StoryEnv::new();
    let script = format!(
        "if [ -e \"$HOME/hung\" ]; then {RECEIVE}; exit; fi; sleep 600 & \
         echo \"$$ $!\" > \"$HOME/hung.new\"; mv \"$HOME/hung.new\" \"$HOME/hung\"; wait"
    );
    configure(&story, &script, "timeout = \"2s\"\n", "");
    story.ok(["exec", "--name", "Oven", "--", "true"]);
    let hung = poll("the command hangs", || lines(&story, "hung").first().cloned());
    let pids: Vec<u32> = hung.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    // The second notification is delivered while the first attempt hangs, or after it.
    story.ok(["exec", "--name", "Pan", "--", "true"]);
    for pid in pids {
        poll("the command and its child are gone", || (!is_there(pid)).then_some(()));
    }
    let all = until_received(&story, 2);
    let names: BTreeSet<&str> = all.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["Oven", "Pan"]));
    assert!(log(&story).contains("the command was ended after 2s"), "{}", log(&story));
}

#[test]
fn a_command_that_floods_its_output_is_no_harm() {
    let story = StoryEnv::new();
    let script = format!(
        "{RECEIVE}; head -c 30000000 /dev/zero; head -c 3000000 /dev/zero | tr '\\0' x >&2; \
         [ \"$(wc -l < \"$HOME/got\")\" -ge 2 ]"
    );
    configure(&story, &script, "", "");
    story.ok(["exec", "--", "true"]);
    until_received(&story, 2);
    let log = log(&story);
    assert!(log.contains("xxxx") && log.len() < 20_000, "{} bytes", log.len());
}

#[test]
fn a_missing_command_is_named_in_the_log_and_given_up() {
    let story = StoryEnv::new();
    let settings = format!("{FAST}give_up_after = \"300ms\"\n");
    story.configure(&format!(
        "idle_exit = \"5s\"\n[notify.receiver]\ncommand = [\"no-such-notifier\"]\n{settings}"
    ));
    story.ok(["exec", "--", "true"]);
    let pid = story.daemon_pid();
    let log = poll("it is given up", || {
        Some(log(&story)).filter(|log| log.contains("a notification was given up"))
    });
    assert!(log.contains("no-such-notifier cannot be found"), "{log}");
    let doctor = story.run(["doctor"]).out;
    assert!(doctor.contains("receiver: no-such-notifier cannot be found"), "{doctor}");
    let expect =
        "receiver: 0 notifications pending, 1 dead letter; the last problem: no-such-notifier";
    assert!(doctor.contains(expect), "{doctor}");
    let metrics = story.ok(["metrics"]);
    let expect = "brigade_notifications_total{notifier=\"receiver\",result=\"dead_letter\"} 1";
    assert!(metrics.contains(expect), "{metrics}");
    poll("the daemon is idle", || (!is_there(pid)).then_some(()));
}

#[test]
fn a_daemon_with_a_pending_notification_does_not_shut_down_and_one_without_does() {
    let story = StoryEnv::new();
    let script =
        format!("[ -e \"$HOME/go\" ] || {{ echo x >> \"$HOME/tries\"; exit 1; }}; {RECEIVE}");
    let command = toml::Value::from(vec!["/bin/sh", "-c", &*script]);
    let pauses = "first_pause = \"700ms\"\nmax_pause = \"700ms\"\n";
    story.configure(&format!(
        "idle_exit = \"500ms\"\n[notify.receiver]\ncommand = {command}\n{pauses}"
    ));
    story.ok(["exec", "--", "true"]);
    let pid = story.daemon_pid();
    // Without the notification, the daemon would be gone after a few of its checks.
    poll("some tries", || (lines(&story, "tries").len() >= 6).then_some(()));
    fs::write(home_file(&story, "go"), "").unwrap();
    until_received(&story, 1);
    poll("the daemon is idle", || (!is_there(pid)).then_some(()));
}

#[test]
fn a_notifier_that_is_added_later_gets_no_old_events() {
    let story = StoryEnv::new();
    configure(&story, RECEIVE, "", "");
    story.ok(["exec", "--", "true"]);
    until_received(&story, 1);
    story.ok(["daemon", "stop"]);
    story.configure("");
    story.ok(["exec", "--", "true"]);
    story.ok(["daemon", "stop"]);
    configure(&story, RECEIVE, "", "");
    story.ok(["exec", "--name", "New", "--", "true"]);
    assert_eq!(until_received(&story, 2)[1]["name"], "New");
}

#[test]
fn a_task_can_request_a_notifier_that_is_configured() {
    let story = StoryEnv::new();
    configure(&story, RECEIVE, "tasks = \"requested\"\n", "agent *\nturn\n  say Done.\n");
    story.ok(["exec", "--name", "Quiet", "--", "true"]);
    story.ok(["exec", "--notify=receiver", "--name", "Oven", "--", "true"]);
    story.ok(["run", "--notify", "--name", "Cook", "Go"]);
    let all = until_received(&story, 2);
    assert_eq!((&all[0]["name"], &all[1]["name"]), (&"Oven".into(), &"Cook".into()));
    let wrong = story.run(["exec", "--notify=reciever", "--", "true"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("did you mean receiver?"), "{wrong:?}");
    let line = format!("'{BRIGADE}' exec --notify -- true");
    let within = story.run(["exec", "--", "sh", "-c", &line]);
    assert_eq!(within.code, 126, "{within:?}");
    assert!(within.err.contains("only the operator may choose a notifier"), "{within:?}");
}

#[test]
fn without_a_notifier_a_request_for_one_is_refused() {
    let story = StoryEnv::new();
    let ran = story.run(["exec", "--notify", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("no notifier is configured"), "{ran:?}");
}

/// Answers each request with the next status, and returns the requests: head and body.
fn serve(listener: &TcpListener, statuses: &[&str]) -> Vec<(String, Vec<u8>)> {
    let answer = |status: &&str| {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TOO_LONG)).unwrap();
        let mut bytes = Vec::new();
        loop {
            let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
                let length = header(&head, "content-length").parse::<usize>().unwrap();
                if bytes.len() >= end + 4 + length {
                    write!(
                        stream,
                        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                    )
                    .unwrap();
                    return (head, bytes[end + 4..].to_vec());
                }
            }
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the request ended early");
            bytes.extend(&buffer[..count]);
        }
    };
    statuses.iter().map(answer).collect()
}

#[track_caller]
fn header(head: &str, name: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name}: {head}")).to_owned()
}

#[test]
fn a_webhook_that_fails_gets_the_signed_notification_again() {
    const SECRET: &str = "0123456789abcdef0123";
    let story = StoryEnv::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/secret-path", listener.local_addr().unwrap());
    let file = home_file(&story, "secret");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    story.configure(&format!(
        "[notify.hook]\nurl = \"{url}\"\nsecret_file = \"{}\"\n{FAST}",
        file.display()
    ));
    assert_eq!(story.run(["exec", "--name", "Oven", "--", "sh", "-c", "exit 3"]).code, 3);
    let statuses =
        ["500 Oops", "503 Busy\r\nretry-after: 1", "302 Found\r\nlocation: /x", "204 Done"];
    let requests = serve(&listener, &statuses);
    for (head, body) in &requests {
        assert!(head.starts_with("post /secret-path http/1.1"), "{head}");
        let notification: Value = serde_json::from_slice(body).unwrap();
        assert_eq!(notification["outcome"]["exit_code"], 3);
        assert_eq!(header(head, "brigade-notification-key"), notification["key"]);
        let time = header(head, "brigade-timestamp");
        let mut signed = format!("{time}.").into_bytes();
        signed.extend(body);
        let expect = format!("t={time},v1={}", hmac_sha256(SECRET.as_bytes(), &signed));
        assert_eq!(header(head, "brigade-signature"), expect);
        assert_eq!(*body, requests[0].1, "a repeat is the same");
    }
    let log = log(&story);
    assert!(log.contains("the receiver answered 503"), "{log}");
    assert!(!log.contains("secret-path") && !log.contains(SECRET), "{log}");
}

#[test]
fn a_webhook_that_rejects_a_notification_gets_it_three_times() {
    let story = StoryEnv::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = home_file(&story, "url");
    fs::write(&file, format!("http://{}/\n", listener.local_addr().unwrap())).unwrap();
    story.configure(&format!("[notify.hook]\nurl_file = \"{}\"\n{FAST}", file.display()));
    story.ok(["exec", "--", "true"]);
    serve(&listener, &["404 No"; 3]);
    poll("it is given up", || log(&story).contains("a notification was given up").then_some(()));
    story.ok(["exec", "--name", "Pan", "--", "true"]);
    let next = serve(&listener, &["200 Ok"]);
    let next: Value = serde_json::from_slice(&next[0].1).unwrap();
    assert_eq!(next["name"], "Pan");
}

/// Returns an HMAC as the standard defines it: H(key ^ opad, H(key ^ ipad, text)).
fn hmac_sha256(key: &[u8], text: &[u8]) -> String {
    let pad = |byte: u8| {
        let key = key.iter().copied().chain(std::iter::repeat(0)).take(64);
        key.map(|part| part ^ byte).collect::<Vec<u8>>()
    };
    let inner = Sha256::digest([pad(0x36), text.to_vec()].concat());
    let outer = Sha256::digest([pad(0x5c), inner.to_vec()].concat());
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}
