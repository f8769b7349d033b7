//! Memory, processor time, open files.

use brigade_process::{ProcessExit, ProcessLimits};

use crate::support::{Place, Run};

const XCPU: i32 = 24;
const KILL: i32 = 9;

fn limited(limits: ProcessLimits) -> Run<'static> {
    Run { limits, ..Run::default() }
}

#[tokio::test]
async fn memory_beyond_the_limit_is_not_to_be_had() {
    let place = Place::new();
    // `tail` keeps a line whole, and there is no end of this one.
    let hungry = "head -c 400000000 /dev/zero | tail -n 1 | wc -c";
    let limits = ProcessLimits { memory: Some(200 << 20), ..ProcessLimits::default() };
    let ran = limited(limits).script(&place, hungry).await;
    assert!(ran.text.contains("memory") && !ran.text.contains("400000000"), "{}", ran.text);
    let free = Run::default().script(&place, hungry).await;
    assert_eq!(free.text, "400000000\n");
}

#[tokio::test]
async fn whoever_computes_for_too_long_is_ended_by_a_signal_that_says_so() {
    let place = Place::new();
    let limits = ProcessLimits { cpu_seconds: Some(1), ..ProcessLimits::default() };
    let ran = limited(limits).script(&place, "while :; do :; done").await;
    assert_eq!(ran.record.exit, Some(ProcessExit::Signal(XCPU)));
    let ran = limited(limits).script(&place, "trap '' XCPU; while :; do :; done").await;
    assert_eq!(ran.record.exit, Some(ProcessExit::Signal(KILL)));
}

#[tokio::test]
async fn files_beyond_the_limit_are_not_opened() {
    let place = Place::new();
    let limits = ProcessLimits { open_files: Some(16), ..ProcessLimits::default() };
    let many = "ulimit -n; ulimit -Hn; exec cat $(yes file | head -n 100)";
    let ran = limited(limits).script(&place, many).await;
    assert!(ran.text.starts_with("16\n16\n"), "{}", ran.text);
    let open = "exec bash -c 'for i in $(seq 10 40); do eval \"exec $i<file\" || exit 4; done'";
    let ran = limited(limits).script(&place, open).await;
    assert!(
        ran.text.contains("oo many open files") || ran.text.contains("ad file"),
        "{}",
        ran.text
    );
    assert_ne!(ran.record.exit, Some(ProcessExit::Code(0)));
    assert_eq!(Run::default().script(&place, open).await.record.exit, Some(ProcessExit::Code(0)));
}

#[tokio::test]
async fn a_limit_above_the_one_that_holds_already_does_not_raise_it() {
    let place = Place::new();
    let limits = ProcessLimits { open_files: Some(1 << 40), ..ProcessLimits::default() };
    let ran = limited(limits).script(&place, "ulimit -Hn").await;
    let free = Run::default().script(&place, "ulimit -Hn").await;
    assert_eq!(ran.text, free.text);
}
