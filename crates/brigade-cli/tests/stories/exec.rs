//! Running a command.

use std::process::Stdio;

use rustix::process::Signal;

use crate::kitchen::{BRIGADE, Kitchen, Ran, kill, poll};

#[test]
fn an_attached_command_is_seen_through() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["exec", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (3, "out\n", "err\n"));
    let ran = kitchen.run(["exec", "--shell", "echo $((6 * 7)); pwd"]);
    let here = kitchen.project();
    assert_eq!((ran.code, ran.out), (0, format!("42\n{}\n", here.display())));
}

#[test]
fn output_is_the_same_byte_for_byte() {
    let kitchen = Kitchen::new();
    // Every byte there is, often, and no line's end at the end.
    let script = "i=0; while [ $i -lt 400 ]; do cat all; i=$((i+1)); done; printf x";
    let all: Vec<u8> = (0..=255).collect();
    std::fs::write(kitchen.project().join("all"), &all).unwrap();
    let ran = kitchen.command(["exec", "--shell", script]).output().unwrap();
    let expect = [all.repeat(400), b"x".to_vec()].concat();
    assert_eq!(ran.stdout.len(), expect.len());
    assert!(ran.stdout == expect);
}

#[test]
fn arguments_arrive_as_they_are() {
    let kitchen = Kitchen::new();
    let odd = ["--json", "-n", "", "a b", "$HOME", "'q'", "ü\n", "*"];
    let args = ["exec", "--", "printf", "[%s]"].into_iter().chain(odd);
    let ran = kitchen.command(args).output().unwrap();
    let expect: String = odd.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expect);
}

#[test]
fn exit_codes_say_how_it_ended() {
    let kitchen = Kitchen::new();
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
    for (args, code, said) in table {
        let ran = kitchen.command(["exec"].iter().chain(args)).output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(said) && err.is_empty() == said.is_empty(), "{args:?}: {err}");
    }
}

#[test]
fn patience_ends_and_the_command_goes_on() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["exec", "--timeout", "100ms", "--shell", "sleep 0.5; echo done"]);
    assert_eq!((ran.code, &*ran.out), (124, ""));
    assert!(ran.err.contains("brigade wait process:1"), "{}", ran.err);
    assert_eq!(kitchen.ok(["wait", "process:1"]), "process:1 succeeded\n");
    assert_eq!(kitchen.ok(["logs", "1"]), "done\n");
}

#[test]
fn a_detached_command_has_an_address_at_once() {
    let kitchen = Kitchen::new();
    assert_eq!(kitchen.ok(["exec", "-d", "--name", "Sleeper", "--", "sleep", "60"]), "process:1\n");
    assert_eq!(kitchen.json(["show", "1"])["name"], "Sleeper");
    let taken = kitchen.run(["exec", "-d", "--name", "sleeper", "--", "true"]);
    assert_eq!(taken.code, 120, "{}", taken.err);
    for bad in ["all", "9lives", ""] {
        assert_eq!(kitchen.run(["exec", "--name", bad, "--", "true"]).code, 2, "{bad}");
    }
}

#[test]
fn the_same_key_is_the_same_task() {
    let kitchen = Kitchen::new();
    let exec = ["exec", "--key", "once", "--shell", "echo ran >> ran; echo said"];
    assert_eq!(kitchen.ok(exec), "said\n");
    assert_eq!(kitchen.ok(exec), "said\n");
    assert_eq!(kitchen.file("ran"), "ran\n");
    let started =
        kitchen.json(["exec", "-d", "--key", "once", "--shell", "echo ran >> ran; echo said"]);
    assert_eq!(
        (&started["existed"], &started["task"]["address"]),
        (&true.into(), &"process:1".into())
    );
    let other = kitchen.run(["exec", "--key", "once", "--", "true"]);
    assert_eq!(other.code, 120, "{}", other.err);
    assert!(other.err.contains("which differs in: command; use another key"), "{other:?}");
}

#[test]
fn variables_come_from_the_caller_from_references_and_from_files() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    std::fs::write(kitchen.project().join("secret"), "hidden\n").unwrap();
    let file = format!("TOKEN={}", kitchen.project().join("secret").display());
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
    let ran = kitchen.command(args).env("PATH", path).env("UNLISTED", "x").output().unwrap();
    let expect = format!("hi=there 6 {} {path}\n", kitchen.home().display());
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expect);
    let stored = kitchen.ok(["events", "--json"]);
    assert!(!stored.contains("hidden"), "{stored}");
    assert_eq!(kitchen.run(["exec", "--env", "NOTHING", "--", "true"]).code, 2);
    assert_eq!(kitchen.run(["exec", "--env", "BRIGADE_TASK=x", "--", "true"]).code, 2);
}

#[test]
fn json_is_one_value_with_the_ending() {
    let kitchen = Kitchen::new();
    let started = kitchen.json(["exec", "--shell", "echo said"]);
    // Read by its end: what is printed is the task, not the output.
    assert_eq!(started["task"]["state"], "succeeded");
    assert_eq!(started["task"]["exit_code"], 0);
    assert_eq!(started["task"]["result"]["tail"], "said\n");
    let failed = kitchen.run(["exec", "--json", "--shell", "exit 4"]);
    assert_eq!(failed.code, 4);
    assert!(failed.out.contains(r#""exit_code":4"#), "{}", failed.out);
}

#[test]
fn our_input_becomes_its_input() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run_with_input(["exec", "--stdin", "--", "cat", "-n"], "one\ntwo\n");
    assert_eq!((ran.code, &*ran.out), (0, "     1\tone\n     2\ttwo\n"));
    let ran = kitchen.run_with_input(["exec", "--", "cat"], "nobody reads this");
    assert_eq!((ran.code, &*ran.out), (0, ""));
}

#[test]
fn one_interrupt_stops_and_a_second_forces() {
    let kitchen = Kitchen::new();
    let kind = kitchen.start([
        "exec",
        "--shell",
        "trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait",
    ]);
    poll("it is up", || kitchen.run(["logs", "1"]).out.contains("up").then_some(()));
    kill(kind.id(), Signal::INT);
    let ran: crate::kitchen::Ran = kind.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (121, "up\nbye\n"));
    assert!(ran.err.contains("stopping process:1"), "{}", ran.err);

    let stubborn = "trap '' TERM; echo up; while :; do sleep 1; done";
    let stubborn = kitchen.start(["exec", "--grace", "1h", "--shell", stubborn]);
    poll("it is up", || kitchen.run(["logs", "2"]).out.contains("up").then_some(()));
    kill(stubborn.id(), Signal::INT);
    kitchen.until_state("2", "stopping");
    kill(stubborn.id(), Signal::INT);
    let ran: crate::kitchen::Ran = stubborn.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 121, "{ran:?}");
    assert!(ran.err.contains("forcing process:2"), "{}", ran.err);
    assert_eq!(kitchen.json(["show", "2"])["signal"], 9);
}

#[test]
fn a_terminal_that_goes_away_takes_nothing_with_it() {
    let kitchen = Kitchen::new();
    let mut client = kitchen.start(["exec", "--shell", "echo up; sleep 0.5; echo on > on"]);
    poll("it is up", || kitchen.run(["logs", "1"]).out.contains("up").then_some(()));
    kill(client.id(), Signal::HUP);
    client.wait().unwrap();
    assert_eq!(kitchen.file("on"), "on\n");
    assert_eq!(kitchen.run(["wait", "1"]).code, 0);
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let kitchen = Kitchen::new();
    let mut client = kitchen.command(["exec", "--shell", "while :; do echo y; done"]);
    let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(client.stdout.take());
    let ran: crate::kitchen::Ran = client.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 141, "{ran:?}");
    assert_eq!(kitchen.state_of("1"), "running");
    assert!(ran.err.contains("process:1 goes on"), "{}", ran.err);
}

#[test]
fn a_command_that_reads_enough_is_no_failure() {
    let kitchen = Kitchen::new();
    let lines = "a line\n".repeat(3000);
    let mut client = kitchen.start_fed(["exec", "--stdin", "--", "head", "-n1"]);
    // It may be gone before it was sent everything.
    let _ = std::io::Write::write_all(client.stdin.as_mut().unwrap(), lines.as_bytes());
    let ran: crate::kitchen::Ran = client.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "a line\n"), "{}", ran.err);
}

#[test]
fn a_carriage_return_is_part_of_its_line() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run_with_input(["exec", "--stdin", "--", "od", "-An", "-c"], "a\r\n");
    assert_eq!(ran.out.split_whitespace().collect::<Vec<_>>(), ["a", "\\r", "\\n"]);
}

#[test]
fn a_removed_directory_is_no_obstacle_to_another_one() {
    let kitchen = Kitchen::new();
    let gone = kitchen.folder("gone");
    let from_there = |words: &str| {
        let mut shell = std::process::Command::new("sh");
        kitchen.hermetic(&mut shell);
        let script = format!("rmdir '{}' && exec {BRIGADE} {words}", gone.display());
        std::fs::create_dir_all(&gone).unwrap();
        Ran::from(shell.args(["-c", &script]).current_dir(&gone).output().unwrap())
    };
    let ran = from_there("exec --cwd / -- pwd");
    assert_eq!((ran.code, &*ran.out), (0, "/\n"), "{ran:?}");
    let ran = from_there("--workspace kitchen exec --cwd / -- pwd");
    assert_eq!((ran.code, &*ran.out), (0, "/\n"), "{ran:?}");
    for words in ["exec -- pwd", "exec --cwd sub -- pwd", "ps", "run Go"] {
        let ran = from_there(words);
        assert_eq!(ran.code, 2, "{words}: {ran:?}");
        assert!(ran.err.contains("the current directory was removed"), "{words}: {ran:?}");
        assert!(ran.err.contains("--workspace NAME"), "{words}: {ran:?}");
    }
}

#[test]
fn the_size_of_kept_output_is_written_as_people_write_it() {
    let kitchen = Kitchen::new();
    let ran = kitchen.run(["exec", "--output-cap", "1G", "--", "echo", "kept"]);
    assert_eq!((ran.code, &*ran.out), (0, "kept\n"), "{ran:?}");
    let short = ["exec", "-d", "--output-cap", "8K", "--", "seq", "100000"];
    kitchen.ok(short);
    kitchen.ok(["wait", "2"]);
    assert!(kitchen.ok(["logs", "2"]).len() < 20_000);
    let wrong = kitchen.run(["exec", "--output-cap", "much", "--", "true"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("such as 512M"), "{wrong:?}");
}
