//! `brigade exec`.

use std::process::Stdio;

use rustix::process::Signal;

use crate::story_env::{BRIGADE, Ran, StoryEnv, kill, poll};

#[test]
fn exec_prints_the_output_and_exits_with_the_exit_code() {
    let story = StoryEnv::new();
    let ran = story.run(["exec", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (3, "out\n", "err\n"));
    let ran = story.run(["exec", "--shell", "echo $((6 * 7)); pwd"]);
    let here = story.project();
    assert_eq!((ran.code, ran.out), (0, format!("42\n{}\n", here.display())));
}

#[test]
fn output_is_the_same_byte_for_byte() {
    let story = StoryEnv::new();
    // All byte values, repeated, without a newline at the end.
    let script = "i=0; while [ $i -lt 400 ]; do cat all; i=$((i+1)); done; printf x";
    let all: Vec<u8> = (0..=255).collect();
    std::fs::write(story.project().join("all"), &all).unwrap();
    let ran = story.command(["exec", "--shell", script]).output().unwrap();
    let expect = [all.repeat(400), b"x".to_vec()].concat();
    assert_eq!(ran.stdout.len(), expect.len());
    assert!(ran.stdout == expect);
}

#[test]
fn arguments_arrive_as_they_are() {
    let story = StoryEnv::new();
    let odd = ["--json", "-n", "", "a b", "$HOME", "'q'", "ü\n", "*"];
    let args = ["exec", "--", "printf", "[%s]"].into_iter().chain(odd);
    let ran = story.command(args).output().unwrap();
    let expect: String = odd.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expect);
}

#[test]
fn exit_codes_follow_the_outcome() {
    let story = StoryEnv::new();
    let table: [(&[&str], i32, &str); 9] = [
        (&["--", "true"], 0, ""),
        (&["--", "sh", "-c", "exit 7"], 7, ""),
        (&["--", "sh", "-c", "exit 255"], 255, ""),
        (&["--shell", "kill -9 $$"], 137, "signal 9"),
        (&["--", "/nonexistent/program"], 120, "`/nonexistent/program` cannot be executed"),
        (&["--", "no-such-program"], 120, "No such file or directory in its PATH"),
        (&["--cwd", "/nonexistent", "--", "true"], 120, "its working directory /nonexistent"),
        (&["--deadline", "100ms", "--", "sleep", "60"], 124, "timeout"),
        (&["--", ""], 2, "no program"),
    ];
    for (args, code, message) in table {
        let ran = story.command(["exec"].iter().chain(args)).output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(message) && err.is_empty() == message.is_empty(), "{args:?}: {err}");
    }
}

#[test]
fn a_process_keeps_running_after_the_timeout() {
    let story = StoryEnv::new();
    let ran = story.run(["exec", "--timeout", "100ms", "--shell", "sleep 0.5; echo done"]);
    assert_eq!((ran.code, &*ran.out), (124, ""));
    assert!(ran.err.contains("brigade wait process:1"), "{}", ran.err);
    assert_eq!(story.ok(["wait", "process:1"]), "process:1 succeeded\n");
    assert_eq!(story.ok(["logs", "1"]), "done\n");
}

#[test]
fn a_detached_command_has_an_address_at_once() {
    let story = StoryEnv::new();
    assert_eq!(story.ok(["exec", "-d", "--name", "Sleeper", "--", "sleep", "60"]), "process:1\n");
    assert_eq!(story.json(["show", "1"])["name"], "Sleeper");
    let taken = story.run(["exec", "-d", "--name", "sleeper", "--", "true"]);
    assert_eq!(taken.code, 120, "{}", taken.err);
    for bad in ["all", "9lives", ""] {
        assert_eq!(story.run(["exec", "--name", bad, "--", "true"]).code, 2, "{bad}");
    }
}

#[test]
fn the_same_key_is_the_same_task() {
    let story = StoryEnv::new();
    let exec = ["exec", "--key", "once", "--shell", "echo ran >> ran; echo said"];
    assert_eq!(story.ok(exec), "said\n");
    assert_eq!(story.ok(exec), "said\n");
    assert_eq!(story.file("ran"), "ran\n");
    let started =
        story.json(["exec", "-d", "--key", "once", "--shell", "echo ran >> ran; echo said"]);
    assert_eq!(
        (&started["existed"], &started["task"]["address"]),
        (&true.into(), &"process:1".into())
    );
    let other = story.run(["exec", "--key", "once", "--", "true"]);
    assert_eq!(other.code, 120, "{}", other.err);
    assert!(other.err.contains("which differs in: command; use another key"), "{other:?}");
}

#[test]
fn variables_come_from_the_caller_from_references_and_from_files() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    std::fs::write(story.project().join("secret"), "hidden\n").unwrap();
    let file = format!("TOKEN={}", story.project().join("secret").display());
    let script = "echo $GREETING ${#TOKEN} $COPY $PATH $UNLISTED";
    let args = [
        "exec",
        "--env",
        "GREETING=hi=there",
        "--env-file",
        &file,
        "--env-from",
        "COPY=HOME",
        "--shell",
        script,
    ];
    let path = "/usr/bin:/bin:/nowhere";
    let ran = story.command(args).env("PATH", path).env("UNLISTED", "x").output().unwrap();
    let expect = format!("hi=there 6 {} {path}\n", story.home().display());
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expect);
    let stored = story.ok(["events", "--json"]);
    assert!(!stored.contains("hidden"), "{stored}");
    assert_eq!(story.run(["exec", "--env", "NOTHING", "--", "true"]).code, 2);
    assert_eq!(story.run(["exec", "--env", "BRIGADE_TASK=x", "--", "true"]).code, 2);
}

#[test]
fn json_is_one_value_with_the_outcome() {
    let story = StoryEnv::new();
    let started = story.json(["exec", "--shell", "echo said"]);
    // The task is printed, not its output.
    assert_eq!(started["task"]["state"], "succeeded");
    assert_eq!(started["task"]["exit_code"], 0);
    assert_eq!(started["task"]["result"]["tail"], "said\n");
    let failed = story.run(["exec", "--json", "--shell", "exit 4"]);
    assert_eq!(failed.code, 4);
    assert!(failed.out.contains(r#""exit_code":4"#), "{}", failed.out);
}

#[test]
fn stdin_is_forwarded() {
    let story = StoryEnv::new();
    let ran = story.run_with_input(["exec", "--stdin", "--", "cat", "-n"], "one\ntwo\n");
    assert_eq!((ran.code, &*ran.out), (0, "     1\tone\n     2\ttwo\n"));
    let ran = story.run_with_input(["exec", "--", "cat"], "not forwarded");
    assert_eq!((ran.code, &*ran.out), (0, ""));
}

#[test]
fn one_interrupt_is_graceful_and_a_second_forced() {
    let story = StoryEnv::new();
    let polite =
        story.start(["exec", "--shell", "trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait"]);
    poll("it is up", || story.run(["logs", "1"]).out.contains("up").then_some(()));
    kill(polite.id(), Signal::INT);
    let ran: crate::story_env::Ran = polite.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (121, "up\nbye\n"));
    assert!(ran.err.contains("stopping process:1"), "{}", ran.err);

    let stubborn = "trap '' TERM; echo up; while :; do sleep 1; done";
    let stubborn = story.start(["exec", "--grace", "1h", "--shell", stubborn]);
    poll("it is up", || story.run(["logs", "2"]).out.contains("up").then_some(()));
    kill(stubborn.id(), Signal::INT);
    story.until_state("2", "stopping");
    kill(stubborn.id(), Signal::INT);
    let ran: crate::story_env::Ran = stubborn.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 121, "{ran:?}");
    assert!(ran.err.contains("forcing process:2"), "{}", ran.err);
    assert_eq!(story.json(["show", "2"])["signal"], 9);
}

#[test]
fn a_process_survives_a_hangup_of_its_client() {
    let story = StoryEnv::new();
    let mut client = story.start(["exec", "--shell", "echo up; sleep 0.5; echo on > on"]);
    poll("it is up", || story.run(["logs", "1"]).out.contains("up").then_some(()));
    kill(client.id(), Signal::HUP);
    client.wait().unwrap();
    assert_eq!(story.file("on"), "on\n");
    assert_eq!(story.run(["wait", "1"]).code, 0);
}

#[test]
fn a_closed_reader_does_not_stop_the_process() {
    let story = StoryEnv::new();
    let mut client = story.command(["exec", "--shell", "while :; do echo y; done"]);
    let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(client.stdout.take());
    let ran: crate::story_env::Ran = client.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 141, "{ran:?}");
    assert_eq!(story.state_of("1"), "running");
    assert!(ran.err.contains("process:1 keeps running"), "{}", ran.err);
}

#[test]
fn a_process_may_stop_reading_its_input() {
    let story = StoryEnv::new();
    let lines = "a line\n".repeat(3000);
    let mut client = story.start_fed(["exec", "--stdin", "--", "head", "-n1"]);
    // The process may end before all of it is sent.
    let _ = std::io::Write::write_all(client.stdin.as_mut().unwrap(), lines.as_bytes());
    let ran: crate::story_env::Ran = client.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "a line\n"), "{}", ran.err);
}

#[test]
fn a_carriage_return_is_part_of_its_line() {
    let story = StoryEnv::new();
    let ran = story.run_with_input(["exec", "--stdin", "--", "od", "-An", "-c"], "a\r\n");
    assert_eq!(ran.out.split_whitespace().collect::<Vec<_>>(), ["a", "\\r", "\\n"]);
}

#[test]
fn exec_runs_elsewhere_from_a_removed_directory() {
    let story = StoryEnv::new();
    let removed = story.directory("removed");
    let run_there = |words: &str| {
        let mut shell = std::process::Command::new("sh");
        story.hermetic(&mut shell);
        let script = format!("rmdir '{}' && exec {BRIGADE} {words}", removed.display());
        std::fs::create_dir_all(&removed).unwrap();
        Ran::from(shell.args(["-c", &script]).current_dir(&removed).output().unwrap())
    };
    let ran = run_there("exec --cwd / -- pwd");
    assert_eq!((ran.code, &*ran.out), (0, "/\n"), "{ran:?}");
    let ran = run_there("--workspace named exec --cwd / -- pwd");
    assert_eq!((ran.code, &*ran.out), (0, "/\n"), "{ran:?}");
    for words in ["exec -- pwd", "exec --cwd sub -- pwd", "ps", "run Go"] {
        let ran = run_there(words);
        assert_eq!(ran.code, 2, "{words}: {ran:?}");
        assert!(ran.err.contains("the current directory was removed"), "{words}: {ran:?}");
        assert!(ran.err.contains("--workspace NAME"), "{words}: {ran:?}");
    }
}

#[test]
fn the_output_cap_has_a_unit() {
    let story = StoryEnv::new();
    let ran = story.run(["exec", "--output-cap", "1G", "--", "echo", "kept"]);
    assert_eq!((ran.code, &*ran.out), (0, "kept\n"), "{ran:?}");
    let short = ["exec", "-d", "--output-cap", "8K", "--", "seq", "100000"];
    story.ok(short);
    story.ok(["wait", "2"]);
    assert!(story.ok(["logs", "2"]).len() < 20_000);
    let wrong = story.run(["exec", "--output-cap", "much", "--", "true"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("such as 512M"), "{wrong:?}");
}
