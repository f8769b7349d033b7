//! A process with a terminal: its size, its input, its end.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod shim_support;

use std::fs::OpenOptions;
use std::io::Write;

use brigade_process::shim::layout::STDIN;
use brigade_process::shim::record::ProcessExit;
use shim_support::*;

fn with_terminal() -> TestArgs {
    TestArgs { settings: "terminal=24x101", ..TestArgs::default() }
}

fn type_text(shim: &Shim, text: &str) {
    let path = shim.path(STDIN);
    let mut pipe = eventually("its input", || OpenOptions::new().write(true).open(&path).ok());
    pipe.write_all(text.as_bytes()).unwrap();
}

fn wait_for_text(shim: &Shim, text: &str) {
    shim.wait_until(|_| shim.text(0).contains(text));
}

#[test]
fn the_process_gets_a_terminal_of_the_requested_size() {
    let mut shim =
        with_terminal().script("tty; stty size; stty size <&1; stty size <&2; ps -o tty= -p $$");
    let record = shim.done();
    assert_eq!(record.exit, Some(ProcessExit::Code(0)), "{}", shim.text(0));
    let text = shim.text(0);
    let lines: Vec<&str> = text.lines().collect();
    let name = lines[0].strip_prefix("/dev/").expect("a terminal");
    assert_eq!(lines[1..], ["24 101", "24 101", "24 101", name]);
    assert_eq!((record.produced_bytes[1], record.has_terminal), (0, true), "one stream");
}

#[test]
fn the_last_output_of_a_process_is_stored() {
    for _ in 0..20 {
        let mut shim = with_terminal().script("seq 1 2000; echo last >/dev/tty");
        shim.done();
        let text = shim.text(0);
        assert_eq!((text.lines().count(), text.lines().last()), (2001, Some("last")));
    }
}

#[test]
fn lines_and_the_end_of_the_input_reach_the_process() {
    let mut shim = with_terminal().script("stty -echo; echo ready; cat; echo over");
    wait_for_text(&shim, "ready");
    type_text(&shim, "one\n");
    wait_for_text(&shim, "one");
    type_text(&shim, "two\n");
    wait_for_text(&shim, "two");
    shim.signal(Signal::USR2);
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
    assert_eq!(shim.text(0), "ready\r\none\r\ntwo\r\nover\r\n");
    assert!(!shim.path(STDIN).exists());
}

#[test]
fn input_before_the_end_arrives_before_it() {
    let mut shim = with_terminal().script("stty -echo; echo ready; cat | wc -l");
    wait_for_text(&shim, "ready");
    // More than a terminal buffers.
    type_text(&shim, &"a line of text\n".repeat(2_000));
    shim.signal(Signal::USR2);
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
    assert_eq!(shim.text(0), "ready\r\n2000\r\n");
}

#[test]
fn control_c_interrupts_the_foreground_process() {
    let mut shim = with_terminal()
        .script("trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done");
    wait_for_text(&shim, "ready");
    type_text(&shim, "\x03");
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(3)));
    assert!(shim.text(0).contains("caught"), "{}", shim.text(0));
}

#[test]
fn a_stop_reaches_all_descendants() {
    if !is_full_linux() {
        return;
    }
    let script = "echo $$ >> $D/pids; setsid sh -c 'echo $$ >> $D/pids; sleep 1000' & \
                  sh -c 'echo $$ >> $D/pids; trap \"\" HUP; sleep 1000; :' & wait";
    let mut shim = with_terminal().script(script);
    let pids = shim.pids(3);
    shim.signal(Signal::TERM);
    let record = shim.done();
    assert_eq!(record.exit, Some(ProcessExit::Signal(15)));
    assert_eq!(record.survivors_total, 0);
    assert_ended(&pids);
}

#[test]
fn the_exit_of_the_leader_hangs_up_its_descendants() {
    let script = "sh -c 'echo $$ >> $D/pids; exec sleep 1000' & \
                  while [ ! -s $D/pids ]; do sleep 0.01; done; exit 5";
    let mut shim = with_terminal().script(script);
    let record = shim.done();
    assert_eq!(record.exit, Some(ProcessExit::Code(5)));
    assert_ended(&shim.pids(1));
}

#[test]
fn a_closed_terminal_can_be_opened_again() {
    let mut shim = with_terminal()
        .script("exec <&- >&- 2>&-; sleep 0.1; exec </dev/tty >/dev/tty; echo again; tty");
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
    let text = shim.text(0);
    assert!(text.starts_with("again\r\n"), "{text:?}");
}
