//! `exec`, `run`, `serve` and `top` on a real terminal of tmux: keys, resizes, Ctrl-C, a closed
//! terminal.
//! Without tmux the tests are skipped.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support;

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use support::{BRIGADE, SOON, Terminal, TerminalSize, eventually};

#[test]
fn exec_prints_output_and_exits_with_the_process_s_code() {
    let Some(terminal) =
        Terminal::open("exec -- sh -c 'echo first; sleep 0.3; echo second; exit 5'")
    else {
        return;
    };
    assert_eq!(terminal.exit(), "exit 5");
}

#[test]
fn the_first_interrupt_is_graceful_and_the_second_forced() {
    let deaf = "exec --grace 1h --name Deaf -- sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.1; done'";
    let Some(terminal) = Terminal::open(deaf) else { return };
    terminal.shows("up");
    terminal.press(&["C-c"]);
    eventually("the stop", || terminal.stdout(&["ps"]).contains("stopping"));
    assert!(!terminal.home.path().join("exit").exists(), "it waits for the end");
    terminal.press(&["C-c"]);
    assert_eq!(terminal.exit(), "exit 121");
    assert!(terminal.stdout(&["ps", "--ended"]).contains("cancelled (signal 9)"));
}

#[test]
fn interrupts_work_while_nobody_reads_the_output() {
    let hung = "| sh -c 'trap \"\" INT; exec sleep 60'";
    let Some(terminal) = Terminal::open(&format!("exec --name Flood -- yes {hung}")) else {
        return;
    };
    eventually("more output than a pipe holds", || {
        let output = terminal.stdout(&["logs", "--tail", "1M", "Flood"]);
        output.len() > 500_000
    });
    terminal.press(&["C-c"]);
    terminal.shows("stopping process:1; Ctrl-C again to force it");
    eventually("the end", || terminal.stdout(&["ps", "--ended"]).contains("cancelled"));
    terminal.press(&["C-c"]);
    terminal.shows("forcing process:1; Ctrl-C again to detach");
    terminal.press(&["C-c"]);
    terminal.shows("process:1 was asked to stop; `brigade show process:1` prints its outcome");
}

#[test]
fn a_process_keeps_running_after_its_terminal_closes() {
    let Some(terminal) = Terminal::open("exec --name Long -- sh -c 'echo up; sleep 60'") else {
        return;
    };
    terminal.shows("up");
    assert!(terminal.tmux().arg("kill-server").status().unwrap().success());
    thread::sleep(Duration::from_millis(200));
    assert!(terminal.stdout(&["ps"]).contains("running"));
    assert!(terminal.stdout(&["logs", "Long"]).contains("up"));
}

#[test]
fn top_lists_reads_sends_and_stops() {
    let Some(terminal) = Terminal::open("top") else { return };
    terminal.shows("No tasks run here");
    terminal.brigade(&["exec", "-d", "--stdin", "--name", "Parrot", "--", "cat"]);
    terminal.shows("Parrot");
    terminal.shows("output of Parrot");
    terminal.press(&["m"]);
    terminal.press(&["-l", "hello there"]);
    terminal.shows("message: hello there");
    terminal.press(&["Enter"]);
    terminal.shows("sent to process:1");
    eventually("the echo", || terminal.screen().lines().any(|line| line == "hello there"));
    terminal.press(&["s"]);
    terminal.shows("cancelled");
    terminal.press(&["q"]);
    assert_eq!(terminal.exit(), "exit 0");
}

#[test]
fn top_survives_narrow_terminals_and_a_killed_daemon() {
    let Some(terminal) = Terminal::open("top") else { return };
    terminal.brigade(&["exec", "-d", "--name", "Sleeper", "--", "sleep", "60"]);
    terminal.shows("Sleeper");
    for (columns, rows) in [("30", "6"), ("12", "3"), ("120", "40")] {
        let resized = self::resize(&terminal, columns, rows);
        assert!(resized.status.success());
        eventually("the new size", || {
            let screen = terminal.screen();
            screen.lines().all(|line| line.chars().count() <= columns.parse().unwrap())
        });
    }
    terminal.shows("Sleeper");
    let status = terminal.stdout(&["daemon", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let pid = status["status"]["pid"].as_u64().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    terminal.shows("the daemon was replaced");
    eventually("the list", || terminal.screen().contains("running"));
    for _ in 0..3 {
        // The key removes the note. It must not remove the next one.
        terminal.press(&["Down"]);
        eventually("no note", || !terminal.screen().contains("the daemon was replaced"));
        terminal.brigade(&["daemon", "stop"]);
        terminal.shows("the daemon was replaced");
    }
    eventually("the list", || terminal.screen().contains("running"));
    terminal.press(&["C-c"]);
    assert_eq!(terminal.exit(), "exit 0");
}

fn resize(terminal: &Terminal, columns: &str, rows: &str) -> Output {
    terminal.tmux().args(["resize-window", "-x", columns, "-y", rows]).output().unwrap()
}

/// A boss with two helpers. One of them waits for a file in a process.
const FAMILY: &str = r#"
agent Boss
usage input=900 output=100
turn
  say I send two.
  call spawn_agent {"name": "North", "task": "Look in the north."}
  call spawn_agent {"name": "A helper with a name that is rather long", "task": "Look."}
turn
  when has started
  call wait_tasks {"mode": "all"}
turn
  say Both are back.

agent North
turn
  say I look behind every tree, however many there are, and that takes some time.
  call run_process {"command": "echo tree one; until [ -e go ]; do sleep 0.02; done"}
turn
  say Nothing in the north.

agent A helper*
turn
  delay 300ms
  say Mushrooms 日本語 here.
"#;

const LOOK: &str = "run --name Boss --allow run_process Look";

fn family(columns: u16, rows: u16) -> Option<Terminal> {
    let terminal = Terminal::playing(FAMILY, TerminalSize { columns, rows }, LOOK)?;
    terminal.shows("tree one");
    terminal.shows("succeeded");
    Some(terminal)
}

/// Returns the screen without ages, which differ each time.
fn ageless(terminal: &Terminal) -> Vec<String> {
    let is_age = |word: &&str| {
        word.strip_suffix('s').is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()))
    };
    let line = |line: &str| {
        let words = line.split(' ').map(|word| if is_age(&word) { "_s" } else { word });
        words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    let screen = terminal.screen();
    screen.trim_end().lines().map(line).collect()
}

fn go(terminal: &Terminal) {
    std::fs::write(terminal.home.path().join("go"), "").unwrap();
}

#[test]
fn run_draws_the_tree_and_prints_the_result() {
    let Some(terminal) = family(80, 20) else { return };
    let expect = [
        "agent:1 Boss                     waiting    _s   2000 tokens  step 2, wait_tas…",
        "├─ agent:2 North                 waiting    _s   step 1, run_process — I look …",
        "│  └─ process:4                  running    _s   tree one",
        "└─ agent:3 A helper with a nam…  succeeded  _s",
    ];
    eventually("the tree", || ageless(&terminal) == expect);
    go(&terminal);
    assert_eq!(terminal.exit(), "exit 0");
    let expect = [
        "agent:1 Boss                     succeeded  _s   3000 tokens",
        "├─ agent:2 North                 succeeded  _s",
        "│  └─ process:4                  succeeded  _s",
        "└─ agent:3 A helper with a nam…  succeeded  _s",
        "Both are back.",
    ];
    assert_eq!(ageless(&terminal), expect);
}

#[test]
fn run_prints_the_reason_of_a_failure_once() {
    let script = "agent *\nturn\n  call list_tasks {}\nturn\n  say Done.\n";
    let size = TerminalSize { columns: 90, rows: 20 };
    let Some(terminal) = Terminal::playing(script, size, "run --steps 1 Look") else { return };
    assert_eq!(terminal.exit(), "exit 120");
    let screen = terminal.screen();
    assert_eq!(screen.matches("max steps").count(), 1, "{screen}");
    assert!(screen.contains("brigade: agent:1 failed (max steps: 1)"), "{screen}");
}

#[test]
fn run_fits_narrow_and_wide_terminals_and_those_that_change() {
    for width in [60, 120] {
        let Some(terminal) = family(width, 20) else { return };
        let lines = ageless(&terminal);
        assert_eq!(lines.len(), 4, "{lines:#?}");
        for columns in ["40", "100", "30", "80"] {
            assert!(resize(&terminal, columns, "20").status.success());
            let mut lines: Vec<String> = Vec::new();
            let deadline = Instant::now() + SOON;
            while !(lines.len() == 4 && lines[0].starts_with("agent:1 Boss")) {
                assert!(Instant::now() < deadline, "no tree in {columns} columns: {lines:#?}");
                thread::sleep(Duration::from_millis(20));
                lines = ageless(&terminal);
            }
        }
        go(&terminal);
        assert_eq!(terminal.exit(), "exit 0");
        let lines = ageless(&terminal);
        assert_eq!((lines.len(), &*lines[4]), (5, "Both are back."), "{lines:#?}");
    }
}

#[test]
fn run_shows_alive_tasks_if_there_are_more_tasks_than_lines() {
    let many: String = (1..=12)
        .map(|no| format!("  call spawn_agent {{\"name\": \"N{no}\", \"task\": \"x\"}}\n"))
        .collect();
    let script = format!(
        "agent Boss\nturn\n{many}turn\n  when has started\n  call wait_tasks {{\"mode\": \"all\"}}\n\
         turn\n  say All are back.\n\
         agent N12\nturn\n  call run_process {{\"command\": \"until [ -e go ]; do sleep 0.02; done\"}}\n\
         turn\n  say Late.\nagent N*\nturn\n  say Soon.\n"
    );
    let Some(terminal) = Terminal::playing(&script, TerminalSize { columns: 80, rows: 8 }, LOOK)
    else {
        return;
    };
    let expect = |lines: &[String]| {
        lines.len() == 7
            && lines[0].starts_with("agent:1 Boss")
            && lines[6].starts_with("… ")
            && lines[6].ends_with(" succeeded")
            && lines.iter().any(|line| line.contains("N12 "))
            && lines.iter().any(|line| line.contains("process:14"))
    };
    eventually("the alive tasks", || expect(&ageless(&terminal)));
    go(&terminal);
    assert_eq!(terminal.exit(), "exit 0");
    let lines = ageless(&terminal);
    assert_eq!(lines.last().unwrap(), "All are back.", "{lines:#?}");
    let whole = terminal.tmux().args(["capture-pane", "-p", "-S", "-"]).output().unwrap();
    let whole = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert_eq!(whole.matches("agent:1 ").count(), 1, "nothing stale: {whole}");
}

#[test]
fn run_names_the_tasks_that_an_interrupt_stops() {
    let Some(terminal) = family(100, 20) else { return };
    terminal.press(&["C-c"]);
    let named =
        "brigade: stopping agent:1 (Boss), agent:2 (North) and process:4; Ctrl-C again to force it";
    terminal.shows(named);
    assert_eq!(terminal.exit(), "exit 121");
    let lines = ageless(&terminal);
    assert_eq!(lines.iter().filter(|line| *line == named).count(), 1, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("cancelled")).count(), 4, "{lines:#?}");
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("agent:1 Boss")).count(),
        1,
        "{lines:#?}"
    );
    assert!(terminal.stdout(&["ps"]).lines().count() == 1, "no task is left");
}

#[test]
fn run_forces_the_stop_with_the_second_interrupt() {
    let script = "agent *\nturn\n  call run_process {\"command\": \"trap '' TERM; echo up; \
                  while :; do sleep 0.05; done\"}\nturn\n  say Never.\n";
    let Some(terminal) = Terminal::playing(script, TerminalSize { columns: 100, rows: 20 }, LOOK)
    else {
        return;
    };
    terminal.shows("up");
    terminal.press(&["C-c"]);
    terminal.shows("stopping agent:1 (Boss) and process:2");
    terminal.shows("stopping   ");
    terminal.press(&["C-c"]);
    terminal.shows("forcing agent:1 (Boss) and process:2; Ctrl-C again to detach");
    assert_eq!(terminal.exit(), "exit 121");
    assert!(terminal.stdout(&["ps", "--ended"]).contains("cancelled (signal 9)"));
}

#[test]
fn agents_keep_running_after_their_terminal_closes() {
    let Some(terminal) = family(80, 20) else { return };
    assert!(terminal.tmux().arg("kill-server").status().unwrap().success());
    thread::sleep(Duration::from_millis(200));
    assert!(terminal.stdout(&["ps"]).contains("process:4"));
    go(&terminal);
    assert_eq!(terminal.stdout(&["wait", "Boss"]), "agent:1 (Boss) succeeded\n");
}

#[test]
fn run_asks_at_the_terminal_and_reads_a_line() {
    let script = r#"
agent *
turn
  call ask_parent {"question": "Red or blue?"}
turn
  when The answer: red
  call ask_parent {"question": "Light or dark?"}
turn
  when The answer: dark
  say Dark red it is.
"#;
    let Some(terminal) = Terminal::playing(
        script,
        TerminalSize { columns: 80, rows: 20 },
        "run --name Painter Paint",
    ) else {
        return;
    };
    terminal.shows("agent:1 (Painter) asks: Red or blue?");
    terminal.press(&["Enter"]);
    eventually("another prompt", || terminal.screen().matches("\n>").count() == 2);
    terminal.press(&["-l", "red"]);
    terminal.press(&["Enter"]);
    terminal.shows("agent:1 (Painter) asks: Light or dark?");
    // Answered elsewhere, it is not asked again.
    terminal.brigade(&["answer", "Painter", "dark"]);
    assert_eq!(terminal.exit(), "exit 0");
    let lines = ageless(&terminal);
    assert_eq!(lines.last().unwrap(), "Dark red it is.", "{lines:#?}");
    let asked = lines.iter().filter(|line| line.contains(") asks: ")).count();
    assert_eq!(asked, 2, "{lines:#?}");
    assert!(lines.contains(&"> red".to_owned()), "{lines:#?}");
}

#[test]
fn run_asks_for_approval_at_the_terminal() {
    let script = r#"
agent Boss
turn
  call spawn_agent {"name": "Hand", "task": "Touch.", "wait": true}
turn
  say Heard.

agent Hand
turn
  call run_process {"command": "echo 1 >> one"}
turn
  call run_process {"command": "echo 2 >> two"}
turn
  when it was denied: not that one
  call run_process {"command": "echo 1 >> one"}
turn
  say Touched.
"#;
    let arguments = "run --ask run_process --name Boss Go";
    let Some(terminal) =
        Terminal::playing(script, TerminalSize { columns: 100, rows: 30 }, arguments)
    else {
        return;
    };
    terminal.shows("agent:2 (Hand) needs approval: run_process");
    terminal.shows("command │ echo 1 >> one");
    terminal.press(&["-l", "perhaps"]);
    terminal.press(&["Enter"]);
    terminal.shows("y, a or n >");
    terminal.press(&["-l", "a"]);
    terminal.press(&["Enter"]);
    terminal.shows("command │ echo 2 >> two");
    terminal.press(&["-l", "n not that one"]);
    terminal.press(&["Enter"]);
    assert_eq!(terminal.exit(), "exit 0");
    let lines = ageless(&terminal);
    assert_eq!(lines.last().unwrap(), "Heard.", "{lines:#?}");
    let asked = lines.iter().filter(|line| line.contains(") needs approval: ")).count();
    assert_eq!(asked, 2, "a call that is allowed always is not asked again: {lines:#?}");
}

#[test]
fn a_key_typed_for_one_call_does_not_allow_another() {
    let script = r#"
agent Boss
turn
  call spawn_agent {"name": "One", "task": "Touch."}
  call spawn_agent {"name": "Two", "task": "Touch.", "wait": true}
turn
  say Heard.

agent One
turn
  call run_process {"command": "echo 1 >> one"}
turn
  say Touched.

agent Two
turn
  call run_process {"command": "echo 2 >> two"}
turn
  when it was denied: not that one
  say Left.
"#;
    let arguments = "run --ask run_process --name Boss Go";
    let Some(terminal) =
        Terminal::playing(script, TerminalSize { columns: 100, rows: 30 }, arguments)
    else {
        return;
    };
    eventually("both approvals", || {
        let pending = terminal.stdout(&["approve", "--list"]);
        pending.contains("echo 1 >> one") && pending.contains("echo 2 >> two")
    });
    terminal.shows("agent:2 (One) needs approval: run_process");
    terminal.press(&["-l", "y"]);
    terminal.shows("> y");
    terminal.stdout(&["stop", "One"]);
    terminal.shows("agent:3 (Two) needs approval: run_process");
    terminal.press(&["Enter"]);
    terminal.shows("the question has changed; answer again");
    assert!(terminal.stdout(&["show", "Two"]).contains("waiting"));
    terminal.press(&["-l", "n not that one"]);
    terminal.press(&["Enter"]);
    assert_eq!(terminal.exit(), "exit 0");
}

#[test]
fn a_key_does_not_allow_a_call_that_the_screen_does_not_show() {
    // The end of the call looks like a prompt of ours.
    let forged = "ls\\n".repeat(40) + "\\u001b[2J\\u001b[Hagent:1 needs approval: ls\\n> ";
    let script = format!(
        "\nagent *\nturn\n  call run_process {{\"command\": \"{forged}\"}}\nturn\n  say Ended.\n"
    );
    let arguments = "run --ask run_process --name Cook Go";
    let Some(terminal) =
        Terminal::playing(&script, TerminalSize { columns: 100, rows: 24 }, arguments)
    else {
        return;
    };
    terminal.shows("agent:1 (Cook) needs approval: run_process");
    terminal.shows("too long to be allowed here: `brigade approve agent:1 4 --show`");
    let screen = terminal.screen();
    assert!(!screen.lines().any(|line| line.trim_start().starts_with("ls")), "{screen}");
    terminal.press(&["-l", "y"]);
    terminal.press(&["Enter"]);
    terminal.shows("n >");
    assert!(terminal.stdout(&["show", "Cook"]).contains("waiting"));
    terminal.press(&["-l", "n"]);
    terminal.press(&["Enter"]);
    assert_eq!(terminal.exit(), "exit 0");
}

#[test]
fn approve_shows_a_call_and_asks() {
    let script = r#"
agent *
turn
  call run_process {"command": "echo 1 >> one"}
turn
  say Done.
"#;
    let Some(terminal) = Terminal::playing(script, TerminalSize { columns: 100, rows: 24 }, "ps")
    else {
        return;
    };
    assert_eq!(terminal.exit(), "exit 0");
    terminal.brigade(&["run", "-d", "--ask", "run_process", "--name", "Cook", "Go"]);
    eventually("the approval", || terminal.stdout(&["ps"]).contains("needs approval"));
    let decide = |answer: &str, expect: &str| {
        let window = format!("{BRIGADE} approve Cook; echo exit $?; sleep 60");
        let home = terminal.home.path().display().to_string();
        let mut opened = terminal.tmux();
        opened.args(["new-window", "-c", &home, &window]);
        assert!(opened.status().unwrap().success());
        terminal.shows("agent:1 (Cook) needs approval: run_process");
        terminal.shows("command │ echo 1 >> one");
        terminal.shows("Allow it once? [y/n]");
        terminal.press(&["-l", answer]);
        terminal.press(&["Enter"]);
        terminal.shows(expect);
    };
    decide("n", "exit 121");
    assert!(terminal.stdout(&["show", "Cook"]).contains("waiting"));
    decide("y", "exit 0");
    eventually("the end", || terminal.stdout(&["show", "Cook"]).contains("succeeded"));
}

#[test]
fn an_interrupt_stops_an_agent_that_needs_approval() {
    let script = r#"
agent *
turn
  call run_process {"command": "echo 1 >> one"}
turn
  say Never.
"#;
    let arguments = "run --ask run_process --name Cook Go";
    let Some(terminal) =
        Terminal::playing(script, TerminalSize { columns: 100, rows: 30 }, arguments)
    else {
        return;
    };
    terminal.shows("command │ echo 1 >> one");
    terminal.press(&["C-c"]);
    assert_eq!(terminal.exit(), "exit 121");
    assert!(terminal.stdout(&["show", "Cook"]).contains("cancelled"));
}

#[test]
fn top_shows_the_activity_of_agents_and_answers() {
    let script = r#"
agent *
turn
  say I have a question.
  call ask_parent {"question": "Red or blue?"}
turn
  when The answer: blue
  say Blue it is.
"#;
    let Some(terminal) = Terminal::playing(script, TerminalSize { columns: 90, rows: 20 }, "top")
    else {
        return;
    };
    terminal.shows("No tasks run here");
    terminal.brigade(&["run", "-d", "--name", "Painter", "Paint"]);
    terminal.shows("asks: Red or blue?");
    terminal.shows("I have a question.");
    terminal.press(&["m"]);
    terminal.press(&["-l", "blue"]);
    terminal.shows("answer: blue");
    terminal.press(&["Enter"]);
    terminal.shows("Blue it is.");
    terminal.shows("succeeded");
    terminal.press(&["q"]);
    assert_eq!(terminal.exit(), "exit 0");
}

#[test]
fn serve_shows_its_addresses_without_log_lines() {
    let Some(terminal) = Terminal::open("serve --listen 127.0.0.1:0") else { return };
    terminal.shows("codex mcp add");
    let screen = terminal.screen();
    assert!(screen.starts_with("listening on http://127.0.0.1:"), "{screen}");
    terminal.press(&["C-c"]);
    assert_eq!(terminal.exit(), "exit 0");
    assert!(!terminal.screen().contains("INFO"), "{}", terminal.screen());
}
