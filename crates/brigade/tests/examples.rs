//! Runs the short examples and compares their output.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of an example, which is beside the directory of the test programs.
fn example(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    let target = me.parent().and_then(Path::parent).expect("in target/debug/deps");
    target.join("examples").join(name)
}

/// Runs an example to its end, and returns its output.
fn run(name: &str) -> String {
    let output = Command::new(example(name))
        .output()
        .expect("the example is built (cargo build --examples)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn hello_job_prints_its_result_and_its_events() {
    let text = run("hello_job");
    assert!(text.starts_with("job:1 is running\njob:1 returned \"hello, world\"\n"), "{text}");
    for event in ["Spawned", "Progressed", "Ended", "Collected"] {
        assert!(text.contains(event), "no {event} in\n{text}");
    }
}

#[test]
fn fan_out_sums_up_a_thousand_children() {
    let text = run("fan_out");
    assert!(text.starts_with("1000 children, sum 500500, in "), "{text}");
}

#[test]
fn a_performer_succeeds_and_confirms_a_stop() {
    let text = run("performer");
    assert_eq!(text, "print:1: printed 20 pages\nprint:2: cancelled\n");
}

#[test]
#[cfg(feature = "agents")]
fn a_typed_tool_gets_its_arguments() {
    assert_eq!(run("typed_tool"), "Leave the umbrella at home.\n");
}

#[test]
#[cfg(feature = "agents")]
fn a_plugin_refuses_an_end_and_changes_a_result() {
    assert_eq!(run("plugin"), "Nothing is on the stove.\n");
}

#[test]
#[cfg(feature = "processes")]
fn live_output_prints_both_streams_and_the_report() {
    let text = run("live_output");
    let expected = "oven: 60 degrees\noven: 120 degrees\noven: 180 degrees\nhot\n\
                    exit code Some(0), 4 bytes on stderr\n";
    assert_eq!(text, expected);
}
